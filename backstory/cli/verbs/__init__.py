"""Verbs of the command line, one function each. They may import `pages` and the session."""
