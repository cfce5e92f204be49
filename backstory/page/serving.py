"""Route of the page: `/` and its files under `/page/`, with a strict policy of what they may load."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["FOLDER", "WEB", "add_page"]

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
    files = GZipMiddleware(_WithHeaders(StaticFiles(directory=WEB)), minimum_size=500)
    app.mount(FOLDER, files, name="page")
    index = (WEB / "index.html").read_bytes()

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> Response:
        return Response(index, media_type="text/html", headers=_HEADERS)


class _WithHeaders:
    """ASGI middleware that adds the headers of the page to each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the app does, with the headers."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, sent)
