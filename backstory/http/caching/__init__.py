"""Answers to reads that are kept as bytes for as long as the logs they depend on stand. May import access."""
