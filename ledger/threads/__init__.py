"""Threads: the turns of a scope's transcript, which of them are covered, and which messages are new.

May import `core`, `text`, `erasure` and `messages`.
"""
