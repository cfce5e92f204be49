"""Ledger: whether the rules could have written each of its commits. May import the modules of `integrity` beside it."""
