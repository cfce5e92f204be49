"""Event stream of new commits: server-sent events, each with the commit's entry in the log.

The id of an event is the commit's number and hash. A client that connects again sends the last id it got
(`Last-Event-ID`) and gets what came after it: no commit twice, none left out. The stream begins with the id of the
commit that it goes on from, so a client that is dropped before the first event misses none, either. If that commit is
no longer in the log, because the memory was removed or restored from a copy, the stream begins with an event `reset`
and all commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated

import msgspec
from fastapi import Header, Query, Request
from starlette.responses import Response, StreamingResponse

from backstory.http.exchange import ReadingRequest
from backstory.http.news import News
from backstory.http.openapi.schemas import problem
from backstory.http.routes.parameters import versioned
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.errors import BackstoryError, NotFoundError, UsageError
from backstory.memory import MemoryHandle
from backstory.projections.history.views import LogEntry

router = versioned("Explain")

_AT_ONCE = 200
"""How many commits are read and sent at a time."""

_LOOK_SECONDS = 0.25
"""How often a stream looks for commits of other processes."""

_BEAT_SECONDS = 15.0
"""How often a quiet stream sends a comment, by which both ends notice that the other is gone."""

_ID = re.compile(r"(\d{1,18})-([0-9a-f]{64})", re.ASCII)

_ENDED = b"event: removed\ndata: {}\n\n"
_RESET = b"event: reset\ndata: {}\n"

_NONE = "0" * 64
"""In the id that stands before all commits, in place of a hash."""


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {"description": "Commits as they are made.", "content": {"text/event-stream": {}}},
        **{status: problem(status) for status in (400, 403, 404, 422, 503)},
    },
)
async def follow(
    request: Request,
    reading: ReadingRequest,
    since: Annotated[
        int | None, Query(ge=0, lt=10**18, description="Begin after this commit. Default: after the last one.")
    ] = None,
    last_event_id: Annotated[str | None, Header(description="The id of the last event that arrived.")] = None,
) -> Response:
    """Send each commit of a memory as it is made, and those since an earlier one."""
    memory = await run_in_thread(reading.memory)
    start = await run_in_thread(_start, memory, since, last_event_id)
    news: News = request.app.state.news
    stream = _events(memory, start, news, request.state.admitted)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


class _Start(msgspec.Struct, frozen=True):
    """The commit to go on after, and whether the client has to begin again."""

    seq: int
    hash: str
    reset: bool = False


def _start(memory: MemoryHandle, since: int | None, last_id: str | None) -> _Start:
    head = memory.head()
    named = None if last_id is None else _ID.fullmatch(last_id.strip())
    if last_id is not None and named is None:
        raise UsageError(f"Last-Event-ID must be the id of an event of this stream, got {last_id[:40]!r}")
    seq = since if named is None else int(named[1])
    if seq is None:
        return _Start(head.seq, head.hash)
    if seq == 0:
        return _Start(0, "")
    known = memory.log(limit=1, before=seq + 1) if seq <= head.seq else ()
    digest = known[0].hash if known and known[0].seq == seq else None
    if named is not None and digest != named[2]:
        return _Start(0, "", reset=True)
    if digest is None:
        raise NotFoundError(f"there is no commit {seq}: the ledger of {memory.scope} ends at {head.seq}")
    return _Start(seq, digest)


async def _events(
    memory: MemoryHandle, start: _Start, news: News, admitted: Callable[[], bool]
) -> AsyncIterator[bytes]:
    began = _RESET if start.reset else b'event: head\ndata: {"seq":%d}\n' % start.seq
    yield began + b"id: %d-%s\n\n" % (start.seq, (start.hash or _NONE).encode())
    try:
        async with contextlib.aclosing(_followed(memory, start, news, admitted)) as parts:
            async for part in parts:
                yield part
    except BackstoryError as error:
        # The client connects again, and gets the error as an answer if it lasts.
        yield b"event: error\ndata: " + msgspec.json.encode({"detail": str(error)}) + b"\n\n"


async def _followed(
    memory: MemoryHandle, start: _Start, news: News, admitted: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    seq, digest = start.seq, start.hash
    loop = asyncio.get_running_loop()
    sent = loop.time()
    with news.of(memory.scope) as changed:
        while not news.ended:
            # Before the read, so that a commit during it is noticed.
            changed.clear()
            found = await run_in_thread(_after, memory, seq, digest)
            if found is None:
                yield _ENDED
                return
            if not admitted():
                # Its token was revoked. The client connects again, and gets the refusal.
                return
            for entry in found:
                yield _spelled(entry)
                seq, digest = entry.seq, entry.hash
            if found:
                sent = loop.time()
                continue
            if loop.time() - sent >= _BEAT_SECONDS:
                sent = loop.time()
                yield b": still here\n\n"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await changed.wait()


def _after(memory: MemoryHandle, seq: int, digest: str) -> list[LogEntry] | None:
    """Return the next commits, oldest first; None where the log no longer goes on from the last one."""
    head = memory.head()
    if head.seq < seq or (head.seq == seq and digest and head.hash != digest):
        return None
    if head.seq == seq:
        return []
    found = list(memory.log(since=str(max(1, seq)), before=min(head.seq, seq + _AT_ONCE) + 1))
    found.reverse()
    if seq and digest and (not found or found[0].seq != seq or found[0].hash != digest):
        return None
    return [entry for entry in found if entry.seq > seq]


def _spelled(entry: LogEntry) -> bytes:
    return b"id: %d-%s\nevent: commit\ndata: %s\n\n" % (entry.seq, entry.hash.encode(), msgspec.json.encode(entry))
