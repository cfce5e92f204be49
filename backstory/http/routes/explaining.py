"""Routes that explain: the log, why and why not, differences, another policy, verification."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from backstory.http.bodies import WhatIfQuestion
from backstory.http.examples import LOG, WHY
from backstory.http.exchange import Reading
from backstory.http.pages import LogPage, Refusals, offset_of
from backstory.http.routes.reading import Cursor
from backstory.http.schemas import returns
from backstory.memory import MemoryHandle
from backstory.operations.services import known_policy
from backstory.projections.history.audit import Why
from backstory.projections.history.history import Diff
from backstory.projections.history.section_audit import WhySection
from backstory.projections.integrity.verify import Verification
from backstory.results import WhatIf

router = APIRouter(prefix="/v1", tags=["Explain"])

Moment = Annotated[str, Query(description="The number of a commit, or a time in ISO 8601.", examples=["3"])]


@router.get("/log", responses=returns(LogPage, cached=True, example=LOG))
async def list_commits(
    reading: Reading,
    *,
    fact: Annotated[str | None, Query(description="Only commits about this fact.")] = None,
    thread: Annotated[str | None, Query(max_length=512, description="Only commits about this conversation.")] = None,
    since: Annotated[str | None, Query(description="Only from this time, or this commit's number, on.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 50,
    cursor: Cursor = None,
) -> Response:
    """List commits, newest first."""

    def read(memory: MemoryHandle) -> LogPage:
        before = None if cursor is None else max(1, offset_of(cursor))
        found = memory.log(limit=limit + 1, fact=fact, thread=thread, since=since, before=before)
        shown = found[:limit]
        return LogPage(shown, str(shown[-1].seq) if len(found) > limit else None)

    return await reading.answer(read)


@router.get("/facts/{fact_id:path}/why", responses=returns(Why, cached=True, example=WHY))
async def why(reading: Reading, fact_id: str) -> Response:
    """Explain where a fact comes from, live or gone, down to the turns it was learned from."""
    return await reading.answer(lambda memory: memory.why(fact_id), turns=True)


@router.get("/sections/{section}/why", responses=returns(WhySection, cached=True))
async def why_section(reading: Reading, section: str) -> Response:
    """Explain where the text of a section comes from, such as `user.workContext`."""
    return await reading.answer(lambda memory: memory.why_section(section), turns=True)


@router.get("/why-not", responses=returns(Refusals, cached=True))
async def why_not(
    reading: Reading,
    text: Annotated[str, Query(min_length=1, max_length=10_000, description="What is missing from memory.")],
) -> Response:
    """Find refused candidates and removed facts that are like a text, each with its rule."""

    def read(memory: MemoryHandle) -> Refusals:
        found = memory.why_not(text)
        return Refusals(tuple(found), found.remembered)

    return await reading.answer(read)


@router.get("/diff", responses=returns(Diff, cached=True))
async def diff(reading: Reading, a: Moment, b: Moment) -> Response:
    """Compare memory at two moments; what only `b` has is added."""
    return await reading.answer(lambda memory: memory.diff(a, b))


@router.post("/what-if", responses=returns(WhatIf))
async def what_if(reading: Reading, asked: WhatIfQuestion) -> Response:
    """Decide the whole history again under another policy, and compare. Nothing is written."""
    policy = asked.values()
    known_policy(policy)

    def read(memory: MemoryHandle) -> WhatIf:
        return memory.what_if(until=asked.until, progress=None, **policy)

    return await reading.answer(read, tagged=False, long=True)


@router.get("/verify", responses=returns(Verification))
async def verify(
    reading: Reading,
    expect_head: Annotated[
        str | None, Query(max_length=200, description="A hash that has to be in the ledger's chain.")
    ] = None,
) -> Response:
    """Verify both hash chains, and memory.json and the index against them."""
    return await reading.answer(lambda memory: memory.verify(expect_head=expect_head), tagged=False, long=True)
