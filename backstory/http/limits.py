"""Limits of the server: the size of a body, the time that it may take, and how many requests run at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol
from urllib.parse import parse_qs

import msgspec
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstory.http.access.callers import Caller
from backstory.http.access.refusals import refusal

__all__ = ["Counts", "Limiter", "Limits"]


class Limits(msgspec.Struct, frozen=True):
    """What one server takes on.

    Attributes:
        body_bytes: Of the body of a request.
        body_seconds: How long a client may take to send a body.
        requests: How many requests run at once. Half of them at most change the same memory: while it is locked they
            wait, and must leave places for reads and for other memories.
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


class _Share:
    """The places that changes of one memory may take, and how many requests have or want one."""

    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.requests = 0


class Limiter:
    """ASGI middleware that refuses what goes over a limit; nothing of such a request reaches a memory.

    Args:
        app: The server.
        limits: The limits.
        is_stream: Whether requests of a path stay open: they do not take the place of other requests.
        is_passed_on: Whether requests of a path are passed on to another server, whatever their body.
        counts: Counts the refusals.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        is_stream: Callable[[str], bool],
        is_passed_on: Callable[[str], bool],
        counts: Counts,
    ) -> None:
        self._app = app
        self._limits = limits
        self._is_stream = is_stream
        self._is_passed_on = is_passed_on
        self._counts = counts
        self._running = asyncio.Semaphore(limits.requests)
        self._shares: dict[tuple[str, ...], _Share] = {}
        self._waiting = 0
        self._streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._is_passed_on(scope["path"]):
            # The upstream decides what is too large or too slow for it.
            await self._stream(scope, receive, send)
            return
        if (too_large := self._declared_too_large(scope)) is not None:
            self._counts.over("body_bytes")
            await refusal(scope["path"], 413, too_large)(scope, receive, send)
            return
        limited = self._limited(receive)
        if self._is_stream(scope["path"]):
            await self._stream(scope, limited, send)
            return
        async with self._place(None if scope["method"] in _READS else _memory_of(scope)) as has_place:
            if has_place:
                await self._app(scope, limited, send)
                return
        self._counts.over("requests")
        busy = refusal(scope["path"], 503, "too many requests at once: send this one again later", {"Retry-After": "1"})
        await busy(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _place(self, changed: tuple[str, ...] | None) -> AsyncIterator[bool]:
        """Hold a place, in the share of the memory that the request changes; say whether there was one in time."""
        end = asyncio.get_running_loop().time() + self._limits.wait_seconds
        if changed is None:
            has_place = await self._taken(self._running, end)
            try:
                yield has_place
            finally:
                if has_place:
                    self._running.release()
            return
        share = self._shares.setdefault(changed, _Share(max(1, self._limits.requests // 2)))
        share.requests += 1
        try:
            async with contextlib.AsyncExitStack() as held:
                for places in (share.places, self._running):
                    if not await self._taken(places, end):
                        yield False
                        return
                    held.callback(places.release)
                yield True
        finally:
            share.requests -= 1
            if not share.requests:
                del self._shares[changed]

    async def _taken(self, places: asyncio.Semaphore, end: float) -> bool:
        """Take a place; return whether there was one before a time."""
        if not places.locked():
            return await places.acquire()
        if self._waiting >= self._limits.waiting:
            return False
        self._waiting += 1
        try:
            async with asyncio.timeout_at(end):
                return await places.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1

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


_READS = frozenset({"GET", "HEAD"})


def _memory_of(scope: Scope) -> tuple[str, ...]:
    """Return the names by which a request asks for a memory."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    users = query.get("user") or [
        value.decode("utf-8", "replace") for name, value in scope["headers"] if name == b"x-backstory-user"
    ]
    caller: Caller | None = scope.get("state", {}).get("caller")
    if not users and caller is not None and caller.users is not None and len(caller.users) == 1:
        users = list(caller.users)
    return (*users[-1:], "agent", *query.get("agent", ())[-1:])
