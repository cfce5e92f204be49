"""Routes that explain: the log, why and why not, differences, graphs, another policy, verification.

Where a request may be long, a client that sends `Accept: text/event-stream` gets events `progress` with the steps that
are done and their total, ten times a second at most, then one `result` with the JSON that others get, or one `error`
with a problem. The work ends when the client goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated

import msgspec
from fastapi import Path, Query, Request
from msgspec.structs import asdict
from starlette.responses import Response, StreamingResponse

from backstory.http.bodies import WhatIfQuestion
from backstory.http.exchange import ReadExchange, ReadingRequest
from backstory.http.openapi.schemas import Responses, returns
from backstory.http.pages import (
    CommitRefusals,
    LogPage,
    PolicyKeys,
    PolicyKeyShown,
    Refusals,
    offset_of,
)
from backstory.http.problems import problem_of
from backstory.http.routes.parameters import versioned
from backstory.http.routes.reading import Cursor, Time
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.errors import BackstoryError, CorruptLogError, NotFoundError
from backstory.ledger.core.policy import POLICY_KEYS, policy_key
from backstory.memory import MemoryHandle
from backstory.projections.context.why_said import WhySaid
from backstory.projections.graph import Graph, MessageFlow
from backstory.projections.history.audit import Why
from backstory.projections.history.section_audit import WhySection
from backstory.projections.history.views import Diff, LogEntry
from backstory.projections.index.timeline import ModelUsage, Timeline
from backstory.projections.integrity.verify import Verification
from backstory.results import WhatIf
from backstory.services.named import read_policy
from backstory.services.services import Progress

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


router = versioned("Explain")

Seq = Annotated[
    str,
    Path(
        max_length=100, description="A commit: its number, HEAD, HEAD~1, or the beginning of its hash.", examples=["2"]
    ),
]
ThreadQuery = Annotated[str | None, Query(max_length=512, description="Only what this conversation is about.")]
BoundQuery = Annotated[
    str | None,
    Query(max_length=100, description="A commit or a time, as for `/v1/document`.", examples=["2026-03-01T00:00:00Z"]),
]
ExactMomentQuery = Annotated[
    str,
    Query(
        max_length=100, description="A commit, or a time that is no whole day, as for `/v1/document`.", examples=["3"]
    ),
]


@router.get("/log", responses=returns(LogPage, cached=True))
async def list_commits(
    reading: ReadingRequest,
    *,
    fact: Annotated[str | None, Query(description="Only commits about this fact.")] = None,
    thread: Annotated[str | None, Query(max_length=512, description="Only commits about this conversation.")] = None,
    since: Annotated[str | None, Query(max_length=100, description="Only from this commit or this time on.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 50,
    cursor: Cursor = None,
    events: Annotated[bool, Query(description="False leaves the events out, for a long list.")] = True,
) -> Response:
    """List commits, newest first."""

    def read(memory: MemoryHandle) -> LogPage:
        before = None if cursor is None else max(1, offset_of(cursor))
        found = memory.log(limit=limit + 1, fact=fact, thread=thread, since=since, before=before)
        shown = found[:limit]
        if not events:
            shown = tuple(msgspec.structs.replace(entry, events=()) for entry in shown)
        return LogPage(shown, str(shown[-1].seq) if len(found) > limit else None)

    return await reading.answer(read)


@router.get("/commits/{seq}", responses=returns(LogEntry, cached=True))
async def get_commit(reading: ReadingRequest, seq: Seq) -> Response:
    """Return one commit, by its number."""

    def read(memory: MemoryHandle) -> LogEntry:
        number = memory.seq_of(seq)
        found = memory.log(limit=1, before=number + 1)
        if not found or found[0].seq != number:
            raise NotFoundError(f"there is no commit {number}: the ledger ends at {found[0].seq if found else 0}")
        return found[0]

    return await reading.answer(read)


@router.get("/timeline", responses=returns(Timeline, cached=True))
async def get_timeline(
    reading: ReadingRequest,
    since: BoundQuery = None,
    until: BoundQuery = None,
    buckets: Annotated[int, Query(ge=1, le=2000, description="How many stretches of equal width.")] = 200,
) -> Response:
    """Count commits by time and kind, between two moments that are both included; empty stretches are left out."""
    return await reading.answer(lambda memory: memory.timeline(since, until, buckets=buckets))


@router.get("/usage", responses=returns(ModelUsage, cached=True))
async def get_usage(reading: ReadingRequest, since: Time = None, until: Time = None) -> Response:
    """Count updates and tokens by day, in UTC, and model; the days of both times are included."""
    return await reading.answer(lambda memory: memory.usage(since, until))


@router.get("/commits/{seq}/refusals", responses=returns(CommitRefusals, cached=True))
async def get_refusals(reading: ReadingRequest, seq: Seq) -> Response:
    """Return what a commit refused, and the policy value that would have accepted each candidate."""
    return await reading.answer(lambda memory: CommitRefusals(memory.refusals(seq)), long=True)


@router.get("/facts/{fact_id:path}/why", responses=returns(Why, cached=True))
async def why(reading: ReadingRequest, fact_id: str) -> Response:
    """Explain where a fact comes from, live or gone, down to the turns it was learned from."""
    return await reading.answer(lambda memory: memory.why(fact_id), turns=True)


@router.get("/sections/{section}/why", responses=returns(WhySection, cached=True))
async def why_section(reading: ReadingRequest, section: str) -> Response:
    """Explain where the text of a section comes from, such as `user.workContext`."""
    return await reading.answer(lambda memory: memory.why_section(section), turns=True)


@router.get("/why-said", responses=returns(WhySaid, cached=True))
async def why_said(
    reading: ReadingRequest,
    turn: Annotated[
        str, Query(min_length=1, max_length=512, description="The id of the answer's turn.", examples=["m2"])
    ],
    thread: Annotated[str | None, Query(max_length=512, description="The conversation's id.")] = None,
) -> Response:
    """Explain what the agent had been given to read when it said something."""
    return await reading.answer(lambda memory: memory.why_said(turn, thread), turns=True)


@router.get("/why-not", responses=returns(Refusals, cached=True))
async def why_not(
    reading: ReadingRequest,
    text: Annotated[str, Query(min_length=1, max_length=10_000, description="What is missing from memory.")],
) -> Response:
    """Find refused candidates and removed facts that are like a text, each with its rule."""

    def read(memory: MemoryHandle) -> Refusals:
        found = memory.why_not(text)
        return Refusals(tuple(found), found.remembered)

    # It reads all of the history.
    return await reading.answer(read, long=True)


@router.get("/diff", responses=returns(Diff, cached=True))
async def diff(reading: ReadingRequest, a: ExactMomentQuery, b: ExactMomentQuery) -> Response:
    """Compare memory at two moments; what only `b` has is added."""
    return await reading.answer(lambda memory: memory.diff(a, b))


@router.get("/graph", responses=returns(Graph, cached=True))
async def get_graph(
    reading: ReadingRequest,
    *,
    thread: ThreadQuery = None,
    fact: Annotated[
        str | None,
        Query(description="Only this fact, its sources and its successors; the beginning of its id is enough."),
    ] = None,
    since: Annotated[
        str | None, Query(max_length=100, description="Only updates from this commit or this time on.", examples=["3"])
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many updates at most, the newest first.")] = 200,
) -> Response:
    """Return facts, the updates and threads that they came from, and what superseded what, as nodes and edges."""

    def read(memory: MemoryHandle) -> Graph:
        return memory.graph(thread=thread, fact=fact, since=since, limit=limit)

    return await reading.answer(read)


@router.get("/messages-graph", responses=returns(MessageFlow, cached=True))
async def get_messages_graph(
    reading: ReadingRequest,
    *,
    thread: ThreadQuery = None,
    since: Time = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many routes at most, the busiest ones.")] = 200,
) -> Response:
    """Count the turns from each sender to each receiver."""
    return await reading.answer(lambda memory: memory.message_flow(thread=thread, since=since, limit=limit), turns=True)


@router.get("/policy/keys", responses=returns(PolicyKeys))
async def list_policy_keys(reading: ReadingRequest) -> Response:
    """List the policy keys: what each takes, its default, and its value in force."""

    def read(memory: MemoryHandle) -> PolicyKeys:
        policy = memory.policy().policy
        known = map(policy_key, POLICY_KEYS)
        return PolicyKeys(tuple(PolicyKeyShown(**asdict(key), value=getattr(policy, key.key)) for key in known))

    return await reading.answer(read, tagged=False)


@router.post("/what-if", responses=streamed(returns(WhatIf)))
async def what_if(reading: ReadingRequest, asked: WhatIfQuestion) -> Response:
    """Decide the whole history again under another policy, and compare. Nothing is written.

    With `Accept: text/event-stream` it sends its progress, and then the result.
    """
    policy = read_policy(asked.policy)

    def read(memory: MemoryHandle, progress: Progress | None) -> WhatIf:
        return memory.what_if(until=asked.until, progress=progress, **policy)

    def total(memory: MemoryHandle) -> int:
        last = memory.head().seq
        return last if asked.until is None else min(memory.seq_of(asked.until), last)

    return await with_progress(reading, read, total)


@router.get("/verify", responses=streamed(returns(Verification)))
async def verify(
    reading: ReadingRequest,
    expect_head: Annotated[
        str | None, Query(max_length=200, description="A hash that has to be in the ledger's chain.")
    ] = None,
) -> Response:
    """Verify both hash chains, and memory.json and the index against them.

    With `Accept: text/event-stream` it sends its progress, and then the result.
    """

    def read(memory: MemoryHandle, progress: Progress | None) -> Verification:
        return memory.verify(expect_head=expect_head, progress=progress)

    def total(memory: MemoryHandle) -> int:
        try:
            ledger, *_, transcript = memory.heads(turns=True)
        except CorruptLogError:
            return 0  # The result names the damage.
        return ledger.seq + transcript.seq

    return await with_progress(reading, read, total)
