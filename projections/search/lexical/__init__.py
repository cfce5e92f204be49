"""Lexical search: BM25 over words. Imports nothing else of `search`."""
