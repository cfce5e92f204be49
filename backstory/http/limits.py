"""Limits of the server: the size of a body, the time that it may take, and how many requests run at once.

A request takes its place when its body is there: a client that sends slowly holds up no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal
from urllib.parse import parse_qs

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstory.http.access.callers import Caller
from backstory.http.access.refusals import refusal

__all__ = ["Limiter", "Limits", "RequestKind"]


class Limits(msgspec.Struct, frozen=True):
    """What one server takes on. One token gets three quarters at most of requests, streams and the bytes of bodies.

    Attributes:
        body_bytes: Of the body of a request.
        body_seconds: How long a client may take to send a body.
        bodies_bytes: Of the bodies of all requests that are being sent, wait or run.
        requests: How many requests run at once. Half of them at most change the same memory: while it is locked they
            wait, and must leave places for reads and for other memories.
        waiting: How many more may wait for their turn; the next is refused.
        wait_seconds: How long one waits at most.
        streams: How many event streams and answers of the proxy are open at once.
    """

    body_bytes: int = 16 * 2**20
    body_seconds: float = 30.0
    bodies_bytes: int = 2**30
    requests: int = 64
    waiting: int = 20_000
    wait_seconds: float = 30.0
    streams: int = 1_000


RequestKind = Literal["free", "passed_on", "stream", "place"]
"""How a request is admitted.

`free`: whatever else runs, and its body is not read. `passed_on`: as a stream, whatever its body, since another server
gets it. `stream`: it may stay open, so it does not take the place of another. `place`: among those that run at once.
"""


class _Share:
    """The places that requests of one token, or changes of one memory, may take; how many have or want one."""

    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.requests = 0


class _Pool:
    """An amount of which one caller gets three quarters at most."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken: Counter[str | None] = Counter()

    def take(self, caller: str | None, amount: int) -> bool:
        """Take an amount for a caller; return whether it was there."""
        if self._taken.total() + amount > self._size or self._taken[caller] + amount > _most_of(self._size):
            return False
        self._taken[caller] += amount
        return True

    def give_back(self, caller: str | None, amount: int) -> None:
        """Give back what a caller has taken."""
        self._taken[caller] -= amount
        if not self._taken[caller]:
            del self._taken[caller]


class _Refused(Exception):  # noqa: N818 it is an answer
    """A request that went over a limit: which one, and the answer."""

    def __init__(self, limit: str, status: int, detail: str, retry_after: int | None = None) -> None:
        self.limit, self.status, self.detail = limit, status, detail
        self.headers = None if retry_after is None else {"Retry-After": str(retry_after)}


class Limiter:
    """ASGI middleware that refuses what goes over a limit; nothing of such a request reaches a memory.

    Args:
        app: The server.
        limits: The limits.
        kind_of: Says how requests of a path are admitted.
        over: Counts a refusal, by the name of its limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        *,
        kind_of: Callable[[str], RequestKind],
        over: Callable[[str], None],
    ) -> None:
        self._app = app
        self._limits = limits
        self._kind_of = kind_of
        self._over = over
        self._running = asyncio.Semaphore(limits.requests)
        self._shares: dict[tuple[str | None, ...], _Share] = {}
        self._waiting = 0
        self._streams = _Pool(limits.streams)
        self._bodies = _Pool(limits.bodies_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it on."""
        if scope["type"] != "http" or (kind := self._kind_of(scope["path"])) == "free":
            await self._app(scope, receive, send)
            return
        caller = _caller(scope)
        name = None if caller is None else caller.name
        try:
            if kind == "passed_on":
                # The upstream decides what is too large or too slow for it.
                with self._stream(name):
                    await self._app(scope, receive, send)
                return
            async with self._body(scope, name, receive) as body:
                if body is None:
                    return
                if kind == "stream":
                    with self._stream(name):
                        await self._app(scope, body, send)
                else:
                    async with self._place(scope, name):
                        await self._app(scope, body, send)
        except _Refused as refused:
            self._over(refused.limit)
            await refusal(scope["path"], refused.status, refused.detail, refused.headers)(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _place(self, scope: Scope, caller: str | None) -> AsyncIterator[None]:
        """Hold a place, in the share of the caller and in that of the memory that the request changes."""
        end = asyncio.get_running_loop().time() + self._limits.wait_seconds
        async with contextlib.AsyncExitStack() as held:
            # First the memory: what waits for a locked one takes nothing from its caller's other requests.
            shares = [held.enter_context(self._share((None, caller), _most_of(self._limits.requests)))]
            if scope["method"] not in _READS:
                shares.insert(0, held.enter_context(self._share(_memory_of(scope), max(1, self._limits.requests // 2))))
            for places in (*shares, self._running):
                if not await self._taken(places, end):
                    raise _Refused("requests", 503, "too many requests at once: send this one again later", 1)
                held.callback(places.release)
            yield

    @contextlib.contextmanager
    def _share(self, key: tuple[str | None, ...], places: int) -> Iterator[asyncio.Semaphore]:
        share = self._shares.setdefault(key, _Share(places))
        share.requests += 1
        try:
            yield share.places
        finally:
            share.requests -= 1
            if not share.requests:
                del self._shares[key]

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

    @contextlib.contextmanager
    def _stream(self, caller: str | None) -> Iterator[None]:
        if not self._streams.take(caller, 1):
            raise _Refused("streams", 503, "too many open streams: try again later", 5)
        try:
            yield
        finally:
            self._streams.give_back(caller, 1)

    @contextlib.asynccontextmanager
    async def _body(self, scope: Scope, caller: str | None, receive: Receive) -> AsyncIterator[Receive | None]:
        """Read the body; give a `receive` that has all of it, or None where the client hung up."""
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > self._limits.body_bytes:
                raise self._too_large()
        parts: list[bytes] = []
        try:
            try:
                async with asyncio.timeout(self._limits.body_seconds):
                    is_whole = await self._read(parts, caller, receive)
            except TimeoutError:
                slow = f"the body took longer than {self._limits.body_seconds:g} seconds: send it faster, or in parts"
                raise _Refused("body_seconds", 408, slow) from None
            yield _again(b"".join(parts), receive) if is_whole else None
        finally:
            self._bodies.give_back(caller, sum(map(len, parts)))

    async def _read(self, parts: list[bytes], caller: str | None, receive: Receive) -> bool:
        """Read a body into parts, which are taken from the pool; return whether it came to its end."""
        left = self._limits.body_bytes
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            part: bytes = message.get("body", b"")
            left -= len(part)
            if left < 0:
                raise self._too_large()
            if not self._bodies.take(caller, len(part)):
                raise _Refused("bodies_bytes", 503, "too many large bodies at once: send this one again later", 1)
            parts.append(part)
            if not message.get("more_body", False):
                return True

    def _too_large(self) -> _Refused:
        return _Refused(
            "body_bytes", 413, f"the body has more than {self._limits.body_bytes:,} bytes: send less at once"
        )


_READS = frozenset({"GET", "HEAD"})


def _most_of(places: int) -> int:
    """Return how much of an amount one caller gets."""
    return max(1, places * 3 // 4)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a whole body that was read, and then what comes after it."""
    is_given = False

    async def received() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


def _caller(scope: Scope) -> Caller | None:
    caller: Caller | None = scope.get("state", {}).get("caller")
    return caller


def _memory_of(scope: Scope) -> tuple[str, ...]:
    """Return the names by which a request asks for a memory."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    users = query.get("user") or [
        value.decode("utf-8", "replace") for name, value in scope["headers"] if name == b"x-backstory-user"
    ]
    caller = _caller(scope)
    if not users and caller is not None and caller.own_user is not None:
        users = [caller.own_user]
    return (*users[-1:], "agent", *query.get("agent", ())[-1:])
