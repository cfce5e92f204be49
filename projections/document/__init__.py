"""Document: memory.json in DeerFlow's shape, kept up to date in the background. May import the ledger."""
