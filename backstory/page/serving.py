"""Routes of pages: `/` with its files under `/page/`, and Swagger UI at `/docs`; policies say what they may load."""

from __future__ import annotations

from pathlib import Path

import fastapi_offline
from fastapi import FastAPI, Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

__all__ = ["FOLDER", "WEB", "add_docs", "add_page"]

WEB = Path(__file__).parent / "web"
FOLDER = "/page"
"""Where the files are served. They hold no memory, so no token is needed for them."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A browser asks each time, and gets 304: a new version of the package counts at once.
    "Cache-Control": "no-cache",
}


def add_page(app: FastAPI) -> None:
    """Serve the page at `/`, and its files."""
    files = GZipMiddleware(_PageFiles(directory=WEB), minimum_size=500)
    app.mount(FOLDER, files, name="page")
    index = (WEB / "index.html").read_bytes()

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> Response:
        return Response(index, media_type="text/html", headers=_HEADERS)


class _PageFiles(StaticFiles):
    """The files, each with the headers of the page."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Answer with a file, or with 304."""
        answer = await super().get_response(path, scope)
        answer.headers.update(_HEADERS)
        return answer


_DOCS_FILES = Path(fastapi_offline.__file__).parent / "static"
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_DOCS_PAGE = """<!doctype html>
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
_DOCS_BEGIN = """const root = new URL("..", document.currentScript.src).pathname;
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
    app.mount("/static", StaticFiles(directory=_DOCS_FILES), name="static")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        return HTMLResponse(_DOCS_PAGE.format(root=root), headers={"Content-Security-Policy": _DOCS_POLICY})

    @app.get("/docs/begin.js", include_in_schema=False)
    async def begin() -> Response:
        return Response(_DOCS_BEGIN, media_type="text/javascript")
