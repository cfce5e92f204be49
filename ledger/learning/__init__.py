"""Learning: when to ask a model, and the commit made from its answer. May import everything else in the ledger."""
