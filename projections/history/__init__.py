"""History: the log, differences, memory at any moment, and the origin of a fact. May import the ledger."""
