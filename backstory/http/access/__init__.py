"""Access to the server: tokens, what a caller may see and do, and the checks of hosts and origins.

It may import everything but the rest of the server.
"""
