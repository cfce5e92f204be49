"""Lifecycle: how the services of a home are made. It may import everything but the home and the doors."""
