"""What the proxy needs of a protocol, and what reading one has in common with reading another.

`protocol` is the seam: `openai/` and `anthropic/` each make one. It may import `ledger`, `integrations`, `config` and
`answers`, and nothing else of the server.
"""
