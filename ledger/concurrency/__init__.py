"""Concurrency helpers: the fork registry, a lock that survives a fork, background jobs, a bounded mapping.

Everything may import them; they import nothing of this project.
"""
