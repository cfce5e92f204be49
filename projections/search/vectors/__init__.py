"""Semantic search: embeddings, their file, and the nearest of them. May import `lexical`."""
