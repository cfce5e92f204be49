"""Interactive documentation at `/docs`: Swagger UI, served from an installed package, with no request elsewhere."""

from __future__ import annotations

from pathlib import Path

import fastapi_offline
from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

__all__ = ["add_docs"]

_FILES = Path(fastapi_offline.__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Backstory: HTTP interface</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}/static/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="{root}/static/swagger-ui-bundle.js"></script>
<script src="{root}/docs/begin.js"></script>
</body>
</html>
"""
# The page may hold no script of its own, so that its policy can forbid such scripts.
_BEGIN = """const root = new URL("..", document.currentScript.src).pathname;
SwaggerUIBundle({
  url: root + "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  persistAuthorization: false,
  validatorUrl: null,
});
"""


def add_docs(app: FastAPI) -> None:
    """Serve the page and its files."""
    app.mount("/static", StaticFiles(directory=_FILES), name="static")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        return HTMLResponse(_PAGE.format(root=root), headers={"Content-Security-Policy": _POLICY})

    @app.get("/docs/begin.js", include_in_schema=False)
    async def begin() -> Response:
        return Response(_BEGIN, media_type="text/javascript")
