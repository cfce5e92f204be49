"""Extraction: prompts, the port to a model, and the reading of its answers.

May import `core`, `text`, `rules` and `messages`.
"""
