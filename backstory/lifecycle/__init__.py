"""Lifecycle: how a home is checked, mended and moved.

It may import everything but the doors. Only `maintenance` imports the home.
"""
