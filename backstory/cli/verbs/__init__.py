"""Verbs: one function for each command. May import `pages` and the session."""
