"""Learning: when a model is asked, and what becomes of its answer. May import everything else in the ledger."""
