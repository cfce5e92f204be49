"""OpenAPI document: its page, the schemas and the examples of answers. May import `access`."""
