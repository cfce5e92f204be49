"""Services of a home and of one memory: what operations share.

They may import the ledger, projections, `config`, `outbox` and `witness`.
"""
