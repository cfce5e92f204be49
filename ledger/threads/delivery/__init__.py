"""Delivery: which messages that a host sends are new to a thread. May import the modules of `threads` beside it."""
