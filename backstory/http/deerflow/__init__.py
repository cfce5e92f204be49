"""DeerFlow's routes under /api/memory, for clients of DeerFlow's gateway.

It may import everything but the rest of the server, of which it may import `access` and `openapi`.

`routes` has the routes and the answers to errors, `models` the bodies and the configuration that clients are shown.
"""

from __future__ import annotations

from backstory.http.deerflow.routes import router

__all__ = ["router"]
