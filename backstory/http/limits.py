"""Limits of the server: the size of a body, the time that it may take, and how many requests run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstory.http.access.refusals import refusal

__all__ = ["Counts", "Limiter", "Limits"]


class Limits(msgspec.Struct, frozen=True):
    """What one server takes on.

    Attributes:
        body_bytes: Of the body of a request.
        body_seconds: How long a client may take to send a body.
        requests: How many requests run at once.
        waiting: How many more may wait for their turn; the next is refused.
        wait_seconds: How long one waits at most.
        streams: How many event streams and answers of the proxy are open at once.
    """

    body_bytes: int = 16 * 2**20
    body_seconds: float = 30.0
    requests: int = 64
    waiting: int = 20_000
    wait_seconds: float = 30.0
    streams: int = 1_000


class Counts(Protocol):
    """Counts refusals of a limit."""

    def over(self, limit: str) -> None:
        """Count a request that went over the limit of this name."""


class Limiter:
    """ASGI middleware that refuses what goes over a limit; nothing of such a request reaches a memory.

    Args:
        app: The server.
        limits: The limits.
        is_stream: Whether requests of a path stay open: they do not take the place of other requests.
        counts: Counts the refusals.
    """

    def __init__(self, app: ASGIApp, limits: Limits, is_stream: Callable[[str], bool], counts: Counts) -> None:
        self._app = app
        self._limits = limits
        self._is_stream = is_stream
        self._counts = counts
        self._running = asyncio.Semaphore(limits.requests)
        self._waiting = 0
        self._streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (too_large := self._declared_too_large(scope)) is not None:
            self._counts.over("body_bytes")
            await refusal(scope["path"], 413, too_large)(scope, receive, send)
            return
        limited = self._limited(receive)
        if self._is_stream(scope["path"]):
            await self._stream(scope, limited, send)
            return
        if not self._running.locked():
            async with self._running:
                await self._app(scope, limited, send)
            return
        if not await self._wait():
            self._counts.over("requests")
            busy = refusal(
                scope["path"], 503, "too many requests at once: send this one again later", {"Retry-After": "1"}
            )
            await busy(scope, receive, send)
            return
        try:
            await self._app(scope, limited, send)
        finally:
            self._running.release()

    async def _wait(self) -> bool:
        """Wait for a place; return whether there is one."""
        if self._waiting >= self._limits.waiting:
            return False
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.wait_seconds):
                await self._running.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._streams >= self._limits.streams:
            self._counts.over("streams")
            busy = refusal(scope["path"], 503, "too many open streams: try again later", {"Retry-After": "5"})
            await busy(scope, receive, send)
            return
        self._streams += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._streams -= 1

    def _declared_too_large(self, scope: Scope) -> str | None:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._limits.body_bytes:
                return self._too_large()
        return None

    def _too_large(self) -> str:
        return f"the body has more than {self._limits.body_bytes:,} bytes: send less at once"

    def _limited(self, receive: Receive) -> Receive:
        """Return a `receive` that counts bytes and time until the body has ended."""
        left = self._limits.body_bytes
        end = 0.0
        ended = False

        async def limited() -> Message:
            nonlocal left, end, ended
            if ended:
                return await receive()
            end = end or asyncio.get_running_loop().time() + self._limits.body_seconds
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                self._counts.over("body_seconds")
                raise HTTPException(
                    408, f"the body took longer than {self._limits.body_seconds:g} seconds: send it faster, or in parts"
                ) from None
            left -= len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if left < 0:
                self._counts.over("body_bytes")
                raise HTTPException(413, self._too_large())
            return message

        return limited
