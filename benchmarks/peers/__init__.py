"""Backstory beside other memories for agents, in one run: `make bench-peers`."""
