"""JSONL: the default engine, a file of lines for each stream. May import the port and `disk`."""
