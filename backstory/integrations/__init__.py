"""Parts of all integrations: whose memory a run uses, threads for blocking calls, closing, the block in a prompt.

They need no other package, and may import everything but the integrations themselves and the command line.
"""
