"""History: the log, differences, any moment, why a fact is there. May import the ledger."""
