"""Engines: the port that keeps streams (`port`), a folder for each engine, and what engines share.

May import `core`, `concurrency` and `disk`.
"""
