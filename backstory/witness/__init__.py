"""Witness: sends the heads of a home's streams to a file, a command or a URL outside of the home.

`witness` is what a home uses, `sender` sends in the background, `destinations` has the kinds of destinations,
`sent_heads` remembers what was sent, and `signing` signs heads. It may import `ledger`, `projections` and `outbox`.
"""
