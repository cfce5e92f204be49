"""Concurrency helpers: the fork registry, a lock that survives a fork, and a bounded mapping.

Everything may import them; they import nothing of this project.
"""
