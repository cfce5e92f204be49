"""Routes that read memory as it is: the document, facts, turns, search, the block for a prompt, the state."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from backstory.http.bodies import FullContext
from backstory.http.exchange import ReadingRequest
from backstory.http.openapi.schemas import returns
from backstory.http.pages import FactPage, ParkedThreads, ThreadPage, TurnPage, offset_of
from backstory.http.routes.parameters import versioned
from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import birth
from backstory.ledger.text.tags import read_filter
from backstory.memory import MemoryHandle
from backstory.operations.search import Within
from backstory.projections.context import Context
from backstory.projections.document.document import Document
from backstory.projections.history.moment import FactOrder, MemoryMoment
from backstory.projections.search.results import Found
from backstory.projections.turns import TurnView
from backstory.results import PolicyResult, Status

router = versioned("Read")

MOST_OFFSET = 10**9
"""More facts than any memory holds."""

MomentQuery = Annotated[
    str | None,
    Query(
        max_length=100,
        description="A commit (its number, HEAD~1, or the beginning of its hash) or a time (ISO 8601, `yesterday`, "
        "`3d ago`), for its end; now unless given.",
        examples=["7"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Cursor = Annotated[str | None, Query(description="The `next` of the page before.", max_length=200)]
ThreadName = Annotated[str, Query(min_length=1, max_length=512, description="The conversation's id.")]
CategoryQuery = Annotated[str | None, Query(description="Only facts of this category.")]
TagsQuery = Annotated[
    list[str] | None,
    Query(
        alias="tag",
        max_length=20,
        description="Only what has this tag, or `name=value` as an attribute; all of them, if it is given again.",
        examples=[["project-a"]],
    ),
]
ValidAt = Annotated[
    str | None,
    Query(
        max_length=100,
        description="Only facts that were true at this time, or at some time in this year, month or day, and with them "
        "those that have ended since.",
        examples=["2026-04"],
    ),
]
Time = Annotated[
    str | None,
    Query(
        max_length=100,
        description="A time: ISO 8601, a date, `yesterday`, `3d ago`.",
        examples=["2026-03-01T00:00:00Z"],
    ),
]


@router.get("/document", responses=returns(Document, cached=True))
async def get_document(reading: ReadingRequest, at: MomentQuery = None) -> Response:
    """Return memory.json, now or at an earlier moment."""
    return await reading.answer(lambda memory: memory.document(at))


@router.get("/memory", responses=returns(MemoryMoment, cached=True))
async def get_memory(
    reading: ReadingRequest,
    *,
    at: MomentQuery = None,
    sort: Annotated[
        FactOrder, Query(description="What facts are sorted by; equal ones are in order of birth.")
    ] = "born",
    descending: Annotated[bool, Query(description="Sort the other way round.")] = False,
    category: CategoryQuery = None,
    contains: Annotated[
        str | None, Query(max_length=1000, description="Only facts with this text in them, in any case and width.")
    ] = None,
    tags: TagsQuery = None,
    offset: Annotated[int, Query(ge=0, le=MOST_OFFSET, description="How many matching facts to skip.")] = 0,
    limit: Annotated[int, Query(ge=0, le=1000, description="How many facts at most.")] = 100,
    valid_at: ValidAt = None,
) -> Response:
    """Return memory after a commit: its sections, a window of its facts, and what that commit changed."""
    return await reading.answer(
        lambda memory: memory.moment(
            at,
            sort=sort,
            descending=descending,
            category=category,
            contains=contains,
            tags=tags,
            offset=offset,
            limit=limit,
            valid_at=valid_at,
        )
    )


@router.get("/facts", responses=returns(FactPage, cached=True))
async def list_facts(
    reading: ReadingRequest,
    *,
    category: CategoryQuery = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    at: MomentQuery = None,
    valid_at: ValidAt = None,
    tags: TagsQuery = None,
) -> Response:
    """List the live facts of one ledger, oldest first. All pages of a list show the same moment."""
    wanted = read_filter(tags or ())

    def read(memory: MemoryHandle) -> FactPage:
        seq, last = _moment(cursor, memory)
        # What was known at a time does not change; of the present the commit of the first page is asked.
        moment = at if at is not None or cursor is None else seq
        found = memory.facts(moment, joined=False, valid_at=valid_at)
        if moment is None and _newest(memory) != seq:
            found = memory.facts(seq, joined=False, valid_at=valid_at)
        # Behind the last fact, not at an offset: an erasure takes facts out of earlier moments, too.
        rest = [fact for fact in found if birth(fact) > last and category in (None, fact.category) and fact.has(wanted)]
        shown = tuple(rest[:limit])
        following = "{}.{}.{}".format(seq, *birth(shown[-1])) if len(rest) > limit else None
        return FactPage(shown, seq, following)

    return await reading.answer(read)


def _moment(cursor: str | None, memory: MemoryHandle) -> tuple[int, tuple[int, int]]:
    """Return the commit of a page of facts, and the birth rank of the last fact before it."""
    if cursor is None:
        return _newest(memory), (-1, -1)
    parts = cursor.split(".")
    if len(parts) != len(("commit", "seq", "place")):
        raise UsageError(f"cursor must be the `next` of an earlier page, got {cursor[:40]!r}")
    seq, *last = map(offset_of, parts)
    return seq, (last[0], last[1])


def _newest(memory: MemoryHandle) -> int:
    return memory.heads()[0].seq


@router.get("/facts/{fact_id:path}", responses=returns(Fact, cached=True))
async def get_fact(reading: ReadingRequest, fact_id: str) -> Response:
    """Return a live fact, by its id or a unique beginning of it."""
    return await reading.answer(lambda memory: memory.fact(fact_id))


@router.get("/threads", responses=returns(ThreadPage, cached=True))
async def list_threads(reading: ReadingRequest, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """List the recorded conversations, in the order of their first turns."""

    def read(memory: MemoryHandle) -> ThreadPage:
        threads, start = memory.threads(), offset_of(cursor)
        end = start + limit
        return ThreadPage(tuple(threads[start:end]), str(end) if end < len(threads) else None)

    return await reading.answer(read, turns=True)


@router.get("/turns", responses=returns(TurnPage, cached=True))
async def list_turns(
    reading: ReadingRequest,
    thread: ThreadName,
    limit: Limit = 100,
    cursor: Annotated[str | None, Query(description="The `next` or `previous` of a page.", max_length=200)] = None,
    around: Annotated[
        str | None, Query(max_length=1000, description="The id of a turn: the page with this turn in its middle.")
    ] = None,
) -> Response:
    """List the turns of a conversation that stand, oldest first."""
    if around is not None and cursor is not None:
        raise UsageError("around and cursor exclude each other: a page has the turn in its middle, or goes on from one")

    def read(memory: MemoryHandle) -> TurnPage:
        turns = memory.transcript(thread)
        if around is not None:
            start = _middle(turns, around, thread, limit)
        elif cursor is not None and cursor.startswith(_BEFORE):
            end = bisect_left(turns, offset_of(cursor.removeprefix(_BEFORE)), key=attrgetter("n"))
            start = max(0, end - limit)
            return _turn_page(turns, start, end)
        else:
            start = bisect_right(turns, offset_of(cursor), key=attrgetter("n"))
        return _turn_page(turns, start, start + limit)

    return await reading.answer(read, turns=True)


_BEFORE = "-"
"""Begins the cursor of a page that ends before a turn."""


def _middle(turns: Sequence[TurnView], turn_id: str, thread: str, limit: int) -> int:
    """Return where a page begins that has a turn in its middle; of several turns with one id, the last."""
    place = next((place for place in reversed(range(len(turns))) if turns[place].id == turn_id), None)
    if place is None:
        raise NotFoundError(f"there is no turn {turn_id} in thread {thread}: it may be superseded or erased")
    return max(0, min(place - limit // 2, len(turns) - limit))


def _turn_page(turns: Sequence[TurnView], start: int, end: int) -> TurnPage:
    shown = tuple(turns[start:end])
    following = str(shown[-1].n) if shown and end < len(turns) else None
    return TurnPage(shown, following, f"{_BEFORE}{shown[0].n}" if shown and start > 0 else None)


@router.get("/search", responses=returns(Found))
async def search(
    reading: ReadingRequest,
    *,
    query: Annotated[str, Query(description="What to look for.", max_length=10_000, examples=["peanuts"])],
    top_k: Annotated[int | None, Query(ge=1, le=1000, description="How many hits at most.")] = None,
    category: CategoryQuery = None,
    within: Annotated[Within, Query(description="Search facts, or turns.")] = "facts",
    thread: Annotated[str | None, Query(max_length=512, description="Only what this conversation is about.")] = None,
    since: Time = None,
    until: Time = None,
    min_similarity: Annotated[float | None, Query(ge=-1, le=1, description="For hits by meaning alone.")] = None,
    explain: Annotated[bool, Query(description="Say of each hit why it has its rank.")] = False,
    valid_at: ValidAt = None,
    include_past: Annotated[bool, Query(description="Also facts that have ended.")] = False,
    tags: TagsQuery = None,
) -> Response:
    """Search facts or turns, by words and by meaning."""
    return await reading.answer(
        lambda memory: memory.search(
            query,
            top_k=top_k,
            category=category,
            within=within,
            thread=thread,
            since=since,
            until=until,
            min_similarity=min_similarity,
            explain=explain,
            valid_at=valid_at,
            include_past=include_past,
            tags=tags,
        ),
        tagged=False,
    )


@router.get("/context", responses=returns(Context))
async def get_context(
    reading: ReadingRequest,
    about: Annotated[
        str | None, Query(alias="for", max_length=100_000, description="What the conversation is about.")
    ] = None,
    max_tokens: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
    tags: TagsQuery = None,
) -> Response:
    """Return the block to put before a model; of the facts with tags only those with all of these."""
    return await reading.answer(lambda memory: memory.context(about, max_tokens, tags=tags), tagged=False)


@router.post("/context", responses=returns(Context))
async def make_context(reading: ReadingRequest, asked: FullContext) -> Response:
    """Return the block to put before a model, for a conversation."""
    return await reading.answer(
        lambda memory: memory.context(
            asked.about(), asked.max_tokens, thread=asked.thread, facts=asked.facts, tags=asked.tags
        ),
        tagged=False,
    )


@router.get("/head", responses=returns(Head, cached=True))
async def get_head(reading: ReadingRequest) -> Response:
    """Return the head of the ledger, to sign or keep elsewhere."""
    return await reading.answer(lambda memory: memory.head())


@router.get("/status", responses=returns(Status))
async def get_status(reading: ReadingRequest) -> Response:
    """Return where the memory stands: its head, what is pending or parked, and recent faults."""
    return await reading.answer(lambda memory: memory.status(), tagged=False)


@router.get("/parked", responses=returns(ParkedThreads))
async def list_parked(reading: ReadingRequest) -> Response:
    """List the turns whose update failed."""
    return await reading.answer(lambda memory: ParkedThreads(memory.status().parked), tagged=False)


@router.get("/policy", responses=returns(PolicyResult))
async def get_policy(reading: ReadingRequest) -> Response:
    """Return the policy in force, and the configured one."""
    return await reading.answer(lambda memory: memory.policy(), tagged=False)
