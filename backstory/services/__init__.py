"""Services of a memory: what its operations share. May import the ledger, projections, `outbox` and `witness`."""
