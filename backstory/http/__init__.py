"""HTTP server: REST, DeerFlow's routes, proxies of model servers, MCP and events over HTTP, for `backstory serve`.

It may import everything but the command line. `app` puts it together; `access` decides who may see what.
"""
