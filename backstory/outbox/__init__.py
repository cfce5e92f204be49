"""Outbox: queues conversations that could not be recorded and retries them, so that memory never breaks an answer.

`fail_safe` is what integrations use, `outbox` retries, and `faults` counts failures. It may import `ledger`,
`projections` and `operations`.
"""
