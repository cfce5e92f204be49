"""Folded: what both streams of a scope come to, read from a snapshot on. May import the log's `commits`."""
