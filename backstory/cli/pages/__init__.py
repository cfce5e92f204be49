"""Pages: results as text, for a pipe or a terminal. May import results only."""
