"""MCP server: memory as tools, resources and a prompt for assistants. It may import everything but the other doors."""
