"""Routes that change memory: extracting, facts by hand, undo, import, policy, erasure."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from backstory.http.bodies import (
    Clearing,
    EditedFact,
    Extraction,
    FactToAdd,
    Flushing,
    Forgetting,
    Importing,
    OfThread,
    PolicyChanges,
    RemovingUser,
    Retrying,
    Reverting,
    RollingBack,
)
from backstory.http.exchange import ErasingRequest, JsonResponse, WritingOnceRequest, WritingRequest
from backstory.http.kept_answers import Answers
from backstory.http.openapi.schemas import Responses, returns
from backstory.http.routes.parameters import versioned
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.learning.flushed import Flushed
from backstory.memory import MemoryHandle
from backstory.operations.undoing import UndoResult
from backstory.projections.document.document import Document
from backstory.results import (
    Extracted,
    FactChange,
    Forgotten,
    ImportedDocument,
    PolicyResult,
    RemovedUser,
)
from backstory.services.named import read_policy

router = versioned()

_LEARN: list[str | Enum] = ["Record and learn"]
_CHANGE: list[str | Enum] = ["Change"]
_ERASE: list[str | Enum] = ["Erase"]


def _changes(kind: type, *problems: int, status: int = 200) -> Responses:
    """Return the responses of a route that changes memory."""
    return returns(kind, 409, 412, *problems, status=status)


@router.post("/extract", tags=_LEARN, responses=_changes(Extracted, 502))
async def extract(writing: WritingRequest, asked: Extraction | None = None) -> Response:
    """Run every pending update now. It answers when all are done, which takes as long as the model does."""
    wanted = asked or Extraction()
    replies = None if wanted.replies is None else [reply.model_dump() for reply in wanted.replies]
    return await writing.change(lambda memory: memory.extract(replies, thread=wanted.thread), long=True)


@router.post("/flush", tags=_LEARN, responses=_changes(Flushed))
async def flush(writing: WritingRequest, asked: Flushing | None = None) -> Response:
    """Run everything pending within a time, and bring memory.json up to date."""
    return await writing.change(lambda memory: memory.flush((asked or Flushing()).timeout), long=True)


@router.post("/retry", tags=_LEARN, responses=_changes(Extracted, 502))
async def retry(writing: WritingRequest, asked: Retrying | None = None) -> Response:
    """Run parked updates again."""
    return await writing.change(lambda memory: memory.retry((asked or Retrying()).thread), long=True)


@router.post("/discard", tags=_LEARN, responses=_changes(Extracted))
async def discard(writing: WritingRequest, asked: OfThread) -> Response:
    """Give up the parked updates of a conversation: its turns are covered without learning from them."""
    return await writing.change(lambda memory: memory.discard(asked.thread))


@router.post("/facts", status_code=201, tags=_CHANGE, responses=_changes(FactChange, status=201))
async def add_fact(writing: WritingOnceRequest, fact: FactToAdd) -> Response:
    """Add a fact by hand. No model changes it from then on."""
    return await writing.change(
        lambda memory: memory.add_fact(fact.content, fact.category, fact.confidence, **fact.stated), status=201
    )


@router.patch("/facts/{fact_id:path}", tags=_CHANGE, responses=_changes(FactChange))
async def edit_fact(writing: WritingOnceRequest, fact_id: str, fact: EditedFact) -> Response:
    """Change a fact by hand, by its full id."""
    return await writing.change(
        lambda memory: memory.edit_fact(fact_id, fact.content, fact.category, fact.confidence, **fact.stated)
    )


@router.delete("/facts/{fact_id:path}", tags=_CHANGE, responses=_changes(FactChange))
async def remove_fact(
    writing: WritingOnceRequest,
    fact_id: str,
    *,
    ended: Annotated[bool, Query(description="It was not wrong: it was true until now, or until a time.")] = False,
    valid_until: Annotated[
        str | None, Query(description="Until when it was true: a year, month, day or moment.", examples=["2026-03"])
    ] = None,
) -> Response:
    """Remove a fact, by its full id. The log keeps it; `forget` erases it."""
    return await writing.change(lambda memory: memory.remove_fact(fact_id, ended=ended, valid_until=valid_until))


@router.post("/revert", tags=_CHANGE, responses=_changes(UndoResult))
async def revert(writing: WritingRequest, asked: Reverting) -> Response:
    """Undo what is still in force of one update. Where later work conflicts nothing is written: see `conflicts`."""

    def undo(memory: MemoryHandle) -> UndoResult:
        return memory.revert(asked.seq, dry_run=asked.dry_run, force=asked.force, with_agents=asked.with_agents)

    return await (writing.preview(undo) if asked.dry_run else writing.change(undo))


@router.post("/rollback", tags=_CHANGE, responses=_changes(UndoResult))
async def rollback(writing: WritingRequest, asked: RollingBack) -> Response:
    """Bring back the facts and sections of an earlier moment, under today's policy."""

    def undo(memory: MemoryHandle) -> UndoResult:
        return memory.rollback(asked.to, dry_run=asked.dry_run)

    return await (writing.preview(undo) if asked.dry_run else writing.change(undo))


@router.post("/clear", tags=_CHANGE, responses=_changes(Document))
async def clear(writing: WritingRequest, asked: Clearing | None = None) -> Response:
    """Empty the memory and keep its history."""
    return await writing.change(lambda memory: memory.clear(all_agents=(asked or Clearing()).all_agents))


@router.post("/import", tags=_CHANGE, responses=_changes(ImportedDocument))
async def import_document(writing: WritingRequest, asked: Importing) -> Response:
    """Import a memory in one commit; what is refused of it is listed."""
    return await writing.change(lambda memory: memory.import_document(asked.document, replace=asked.replace))


@router.patch("/policy", tags=_CHANGE, responses=_changes(PolicyResult))
async def set_policy(writing: WritingRequest, changes: PolicyChanges) -> Response:
    """Change the policy. Facts that it does not allow leave memory in the same commit."""
    values = read_policy(changes.root)
    return await writing.change(lambda memory: memory.set_policy(**values))


@router.post("/forget", tags=_ERASE, responses=_changes(Forgotten))
async def forget(erasing: ErasingRequest, asked: Forgetting) -> Response:
    """Erase content for good, everywhere: a fact, a conversation, a text, or everything."""

    def erase(memory: MemoryHandle) -> Forgotten:
        return memory.forget(
            asked.fact_id,
            thread_id=asked.thread,
            matching=asked.matching,
            everything=asked.everything,
            with_evidence=asked.with_evidence,
            dry_run=asked.dry_run,
        )

    return await (erasing.preview(erase, turns=True) if asked.dry_run else erasing.change(erase))


@router.post("/forget-user", tags=_ERASE, responses=_changes(RemovedUser))
async def forget_user(erasing: ErasingRequest, asked: RemovingUser | None = None) -> Response:
    """Remove a user altogether: the user's memories, those of the user's agents, and the name."""
    if asked is not None and asked.dry_run:
        return await erasing.preview(lambda memory: erasing.home.forget_user(_whole(memory), dry_run=True), turns=True)
    removing: threading.Lock = erasing.request.app.state.removing

    def work() -> Response:
        # One after the other, since a removal does not look at the head itself.
        with removing:
            return remove()

    def remove() -> Response:
        memory = erasing.guarded(erasing.memory())
        user = _whole(memory)
        try:
            removed = erasing.home.forget_user(user)
        except NotFoundError:
            # Another request may have removed the user since the look at the head.
            erasing.guarded(memory)
            raise
        return JsonResponse(removed, headers={"Cache-Control": "no-store"})

    answers: Answers = erasing.request.app.state.answers
    try:
        return await run_in_thread(work)
    finally:
        # Also after a removal that was interrupted.
        answers.sweep()


def _whole(memory: MemoryHandle) -> str:
    """Return the user of a memory that is a user's own.

    Raises:
        UsageError: It is an agent's, or of no user.
    """
    scope = memory.scope
    if scope.user is None or scope.agent is not None:
        raise UsageError("forget-user removes a whole user: name the user, and no agent")
    return scope.user
