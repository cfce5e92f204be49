"""Answers of an upstream, read from a copy of the bytes that are passed on.

`readers` finds the reader of a response; each protocol knows its own events and documents. It may import `ledger`, and
nothing else of the server.
"""
