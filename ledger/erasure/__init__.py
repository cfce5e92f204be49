"""Erasure: which content of both streams has to go when something is forgotten. Pure; may import `core`."""
