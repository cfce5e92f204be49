"""Event stream of one long request: how far it is, and then its result.

A client that sends `Accept: text/event-stream` gets events `progress` with the steps that are done and their total, ten
times a second at most, then one `result` with the JSON that others get, or one `error` with a problem. The work ends
when the client goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from backstory.http.exchange import ReadExchange
from backstory.http.openapi.schemas import Responses
from backstory.http.problems import problem_of
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.errors import BackstoryError
from backstory.memory import MemoryHandle
from backstory.services.services import Progress

__all__ = ["streamed", "with_progress"]

_SECONDS = 0.1
"""How often the progress is sent at most."""

_EVENTS = "text/event-stream"


class _StoppedError(Exception):
    """The client is gone, so the work ends."""


class _Steps:
    """Steps of work in another thread; as its callback it ends the work once the client is gone."""

    def __init__(self) -> None:
        self.done = 0
        self.stopped = False

    def __call__(self, done: int) -> None:
        if self.stopped:
            raise _StoppedError
        self.done = done


def streamed(responses: Responses) -> Responses:
    """Add the event stream to the responses of a route."""
    responses[200]["content"][_EVENTS] = {"schema": {"type": "string"}}
    return responses


async def with_progress(
    reading: ReadExchange,
    read: Callable[[MemoryHandle, Progress | None], object],
    total: Callable[[MemoryHandle], int],
) -> Response:
    """Read what takes long, and answer with the result, or with an event stream if the client asks for one.

    Args:
        reading: The request.
        read: Reads the memory; it gets the callback that takes the steps done.
        total: Returns how many steps there are.
    """
    if not _wants_events(reading.request):
        return await reading.answer(lambda memory: read(memory, None), tagged=False, long=True)

    def begin() -> tuple[MemoryHandle, int]:
        memory = reading.memory()
        return memory, total(memory)

    # Before the stream begins, so that a memory that cannot be read has its status.
    memory, steps = await run_in_thread(begin)
    return StreamingResponse(_stream(memory, read, steps), media_type=_EVENTS, headers={"Cache-Control": "no-store"})


def _wants_events(request: Request) -> bool:
    accepted = request.headers.get("accept", "").split(",")
    return any(kind.partition(";")[0].strip().casefold() == _EVENTS for kind in accepted)


async def _stream(
    memory: MemoryHandle, read: Callable[[MemoryHandle, Progress | None], object], total: int
) -> AsyncIterator[bytes]:
    steps = _Steps()
    work = asyncio.ensure_future(asyncio.to_thread(read, memory, steps))
    work.add_done_callback(_taken)
    sent = -1
    try:
        while not work.done():
            if steps.done != sent:
                sent = steps.done
                # What is committed meanwhile is read, too.
                yield _event("progress", {"done": sent, "total": max(total, sent)})
            await asyncio.wait({work}, timeout=_SECONDS)
        try:
            yield _event("result", work.result())
        except BackstoryError as error:
            yield _event("error", problem_of(error))
    finally:
        steps.stopped = True


def _taken(work: asyncio.Future[object]) -> None:
    """Take the error of work whose client is gone, which nothing else takes."""
    if not work.cancelled():
        work.exception()


def _event(name: str, data: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))
