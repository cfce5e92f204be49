"""HEAD requests: what GET answers, without its body."""

from __future__ import annotations

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HeadRequests"]


class HeadRequests:
    """ASGI middleware that answers HEAD wherever GET is answered, with the same status and headers.

    Args:
        app: The server.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, HEAD as GET."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def headers_only(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
                return
            await send({"type": "http.response.body", "body": b""})
            if message.get("more_body", False):
                # A stream of events would never end.
                answered.cancel()

        with anyio.CancelScope() as answered:
            await self._app({**scope, "method": "GET"}, receive, headers_only)
