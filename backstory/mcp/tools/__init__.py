"""Tools of the MCP server, and the shapes of their results. They may import what the MCP server may."""
