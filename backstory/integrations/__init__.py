"""What the integrations share: whose memory a run uses, threads for blocking calls, closing, the block in a prompt.

It needs no other package. It may import everything but the integrations and the command line.
"""
