"""Operations on a memory, as functions. May import the ledger, projections, `outbox` and `witness`."""
