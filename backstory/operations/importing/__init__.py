"""Imports into a memory: of a document, and of a file in a format of another tool. May import what `operations` may."""
