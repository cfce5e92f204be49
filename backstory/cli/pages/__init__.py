"""Pages: print results as text, for a pipe or a terminal. They may import result types only."""
