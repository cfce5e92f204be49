"""Concurrency helpers: the fork registry, background jobs and loads, a bounded mapping, the clock.

Everything may import them; they import nothing of this project.
"""
