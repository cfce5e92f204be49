"""MCP over HTTP: the endpoint, and what makes it at its first request. It may import `access` and the MCP server."""
