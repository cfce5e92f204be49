"""Witness: sends the heads of a home's streams to a file, a command or a URL outside of the home.

`witness` is what a home uses, `sender` sends in the background and remembers what was sent, `destinations` has the
kinds of destinations, and `signing` signs heads. It may import `ledger`, `projections` and `outbox`.
"""
