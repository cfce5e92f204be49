"""Integrity: checks and repairs of the logs and of the read models.

May import `document`, `history` and `turns`.
"""
