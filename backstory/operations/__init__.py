"""Operations on a memory, the parts of its handle. May import the ledger, projections, `outbox` and `witness`."""
