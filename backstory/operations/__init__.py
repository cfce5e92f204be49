"""Operations: what the methods of a memory do. May import the ledger, projections, `config`, `outbox` and `witness`."""
