"""Answers of an upstream, read from a copy of the bytes that are passed on.

`readers` finds the reader of a response; `chat` and `responses` know the two protocols. It may import `ledger`, and
nothing else of the server.
"""
