"""Integrity: checks of the logs and of what is derived from them, and repairs.

May import `document`, `history` and `turns`.
"""
