"""Kept answers: the bytes of reads, each with the heads that it depends on, sent again without a thread and a route.

An answer is found only while its heads stand, which one look at each log's file shows, so it is never older than the
memory at the time of the request. Everything here runs on the event loop, one call after the other. An erasure drops
what was read of its memory before the erasure is answered. What another process erases is dropped within seconds.

ETags alone give less. Of a document of 480 facts that has not changed, a read takes 0.14 ms of the processor with or
without `If-None-Match`; without kept answers it takes 0.6 ms with the tag, and 1.4 ms without.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator

import msgspec
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from backstory.http.access.callers import Caller
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.services.services import HeadsSeen

__all__ = ["AnswerKey", "Answers", "KeptAnswer", "Repeating", "key_of", "matches"]

AnswerKey = tuple[Caller, str, bytes]
"""Who asks, the path and the query: what an answer depends on beside the memory."""

RawHeaders = list[tuple[bytes, bytes]]

_SWEEP_SECONDS = 5.0
"""How long what another process has erased may stay here."""


class KeptAnswer(msgspec.Struct, frozen=True):
    """An answer as it was sent.

    Attributes:
        seen: The heads that it depends on.
        tag: Its ETag.
        headers: Its headers.
        body: The bytes; None where only the tag is known, because the client had the bytes or they are too many.
        route: The route that gave it, for the metrics.
    """

    seen: HeadsSeen
    tag: str
    headers: RawHeaders
    body: bytes | None
    route: object

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return len(self.body or b"")


class Answers:
    """Keeps the answers that were asked for last.

    Args:
        most: How many.
        most_bytes: How many bytes all of them may have; one of them may have an eighth.
    """

    def __init__(self, most: int = 512, most_bytes: int = 64 * 2**20) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[AnswerKey, KeptAnswer] = OrderedDict()
        self._bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """How many bytes all of them have."""
        return self._bytes

    def find(self, key: AnswerKey) -> KeptAnswer | None:
        """Return the answer to a request if nothing that it depends on has changed."""
        known = self._kept.get(key)
        if known is None:
            return None
        if not known.seen.stand():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return known

    def keep(self, key: AnswerKey, answer: KeptAnswer) -> None:
        """Keep an answer, unless the memory has changed since it was read."""
        self._drop(key)
        # An erasure may have been completed since: it would not drop what comes after it.
        if not answer.seen.stand():
            return
        if answer.size > self._most_bytes // 8:
            answer = msgspec.structs.replace(answer, body=None)
        self._kept[key] = answer
        self._bytes += answer.size
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            self._drop(next(iter(self._kept)))

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:
        """Listen to the commits of a home; see `ledger.log.writer.Listener`."""
        del before, after
        if commit.cause.kind == "redaction" and self._loop is not None:
            # It runs before the erasure is answered, since that has to come back to the event loop, too.
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._purge, scope)

    def sweep(self) -> None:
        """Drop every answer that is outdated, for example because its memory was removed."""
        for key in [key for key, answer in self._kept.items() if not answer.seen.stand()]:
            self._drop(key)

    @contextlib.asynccontextmanager
    async def swept(self) -> AsyncIterator[None]:
        """Hear of erasures, and sweep every few seconds."""
        self._loop = asyncio.get_running_loop()
        sweeping = self._loop.create_task(self._sweep_often())
        try:
            yield
        finally:
            sweeping.cancel()
            self._kept.clear()
            self._bytes = 0

    async def _sweep_often(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep()

    def _purge(self, scope: Scope) -> None:
        for key in [key for key, answer in self._kept.items() if scope in answer.seen.scopes]:
            self._drop(key)

    def _drop(self, key: AnswerKey) -> None:
        known = self._kept.pop(key, None)
        if known is not None:
            self._bytes -= known.size


def key_of(connection: Connection) -> AnswerKey:
    """Return what the answer to a read depends on beside the memory. The gate has set the caller."""
    return connection["state"]["caller"], connection["path"], connection["query_string"]


def matches(stated: str, tag: str) -> bool:
    """Whether a list of ETags holds a tag. A proxy that compresses answers makes tags weak."""
    return any(one.strip().removeprefix("W/") == tag for one in stated.split(","))


class Repeating:
    """ASGI middleware that answers reads whose answer is known and stands.

    Args:
        app: The server.
        answers: The answers that are known.
    """

    def __init__(self, app: ASGIApp, answers: Answers) -> None:
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
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


def _has_it(scope: Connection, known: KeptAnswer) -> bool:
    """Whether the client has these bytes already."""
    for name, value in scope["headers"]:
        if name == b"if-none-match":
            stated: str = value.decode("latin-1")
            return stated.strip() == "*" or matches(stated, known.tag)
    return False
