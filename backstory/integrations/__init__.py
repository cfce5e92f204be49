"""Parts of all integrations: the memory of runs and whose it is, threads for blocking calls, closing, prompts.

They need no other package, and may import everything but the integrations themselves and the command line.
"""
