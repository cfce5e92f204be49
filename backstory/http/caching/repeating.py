"""Middleware that answers a read again, from what was kept of it, without a thread and without a route."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from backstory.http.caching.answers import Answers, KeptAnswer, key_of, matches

__all__ = ["Repeating"]


class Repeating:
    """ASGI middleware that answers reads whose answer is known and stands.

    Args:
        app: The server.
        answers: The answers that are known.
    """

    def __init__(self, app: ASGIApp, answers: Answers) -> None:
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "http" and scope["method"] == "GET":
            known = self._answers.find(key_of(scope))
            if known is not None:
                if _has_it(scope, known):
                    status, headers, body = 304, [each for each in known.headers if each[0] in _OF_304], b""
                elif known.body is not None:
                    status, headers, body = 200, list(known.headers), known.body
                else:
                    await self._app(scope, receive, send)
                    return
                scope["route"] = known.route
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": body})
                return
        await self._app(scope, receive, send)


_OF_304 = frozenset({b"etag", b"cache-control"})


def _has_it(scope: Scope, known: KeptAnswer) -> bool:
    """Whether the client has these bytes already."""
    for name, value in scope["headers"]:
        if name == b"if-none-match":
            stated: str = value.decode("latin-1")
            return stated.strip() == "*" or matches(stated, known.tag)
    return False
