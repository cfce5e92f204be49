"""Routes of DeerFlow's gateway under /api/memory: the settings page and other clients use them unchanged.

Each route is about the memory of one user, agents aside, as in DeerFlow. The user is the one of the header
`X-Backstory-User`, else the only user of the token, else none: the memory that all users share.

What goes wrong is answered as `{"detail": …}` with the codes and words of DeerFlow's gateway:

400  invalid request, also a fact without text
403  the caller lacks the right
404  no such fact, or no memory that the caller may see
409  duplicate fact, memory full of facts by hand, or another process was faster or holds the lock
422  a body of the wrong shape, as FastAPI answers
500  damaged log, or a change that the store could not take
503  the store could not be read, for which DeerFlow's gateway has no answer of its own
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from backstory.deerflow.memory import HostedMemory
from backstory.http.access.callers import USER_HEADER, Caller, Right, name_in
from backstory.http.deerflow.models import (
    CreatedFact,
    FactPatch,
    Failure,
    ImportedMemory,
    MemoryConfig,
    MemoryStatus,
    config_shown,
)
from backstory.http.openapi.schemas import Responses, returns
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.errors import (
    BackstoryError,
    CapError,
    ConfigError,
    ConflictError,
    CorruptLogError,
    DuplicateFactError,
    ForbiddenError,
    LockTimeoutError,
    NotFoundError,
    RefusedError,
    UsageError,
    WrongExpectedVersionError,
)
from backstory.ledger.core.policy import read_category
from backstory.ledger.core.sanitize import safe_json
from backstory.lifecycle.maintenance import replace_beyond_damage
from backstory.projections.document.document import Document

_log = logging.getLogger(__name__)

_CONFLICT = "Memory changed concurrently; reload and retry."
_CORRUPT = "Stored memory data is corrupted."
_DUPLICATE = "A fact with the same content already exists."
_EMPTY = "Memory fact content cannot be empty."
_FULL = "Fact was not stored because the configured memory.max_facts capacity policy evicted it"
_NOT_READ = "Failed to read memory data."


_ANSWERS: tuple[tuple[type[BackstoryError], int, str | None], ...] = (
    (CorruptLogError, 500, _CORRUPT),
    (LockTimeoutError, 409, _CONFLICT),
    (WrongExpectedVersionError, 409, _CONFLICT),
    (ConflictError, 409, _CONFLICT),
    (DuplicateFactError, 409, _DUPLICATE),
    (CapError, 409, _FULL),
    (NotFoundError, 404, None),
    (ForbiddenError, 403, None),
    (RefusedError, 409, None),
    (UsageError, 400, None),
)
"""The first class that an error belongs to decides; where there are no words, its message is the detail."""


def answer_to(error: BackstoryError | OSError, failed: str | None) -> HTTPException:
    """Return the answer of DeerFlow's gateway to an error.

    Args:
        error: The error.
        failed: What the gateway says if the store does not take this change; None for a request that only reads.

    Returns:
        The code and the detail. What names files of the server goes to its log, and not into the detail.
    """
    found = next(((code, words) for kind, code, words in _ANSWERS if isinstance(error, kind)), None)
    if found is None or isinstance(error, ConfigError):
        answer = HTTPException(503, _NOT_READ) if failed is None else HTTPException(500, failed)
    else:
        answer = HTTPException(found[0], found[1] or str(error))
    if answer.status_code >= 500:  # noqa: PLR2004 the server's own failures begin there
        _log.error("%s %s", answer.detail, error)
    return answer


class DeerFlowRoute(APIRoute):
    """A route whose refusals have FastAPI's own shape, whatever the app makes of errors elsewhere."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        """Return the handler, with errors of the request turned into answers."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                # A body may hold what JSON cannot: NaN, or half of a surrogate pair.
                return JSONResponse({"detail": safe_json(error.errors())}, 422)
            except HTTPException as error:
                return JSONResponse({"detail": error.detail}, error.status_code, error.headers)

        return answered


_T = TypeVar("_T")


def _answers(kind: type) -> Responses:
    return {200: returns(kind)[200]}


_READS: Responses = {
    **_answers(Document),
    400: {"model": Failure, "description": "The user id is not valid"},
    403: {"model": Failure, "description": "The token lacks the right"},
    404: {"model": Failure, "description": "The token covers no such memory"},
    500: {"model": Failure, "description": "The log of this memory is damaged"},
    503: {"model": Failure, "description": "The store cannot be read"},
}
_CHANGES: Responses = {
    **{code: _READS[code] for code in (200, 400, 403, 404)},
    409: {"model": Failure, "description": "Another process was faster or holds the lock"},
    500: {"model": Failure, "description": "The log is damaged, or the store did not take the change"},
}
_CHANGES_FACTS: Responses = {
    **_CHANGES,
    400: {"model": Failure, "description": "The fact has no text, or is too long"},
    404: {"model": Failure, "description": "There is no such fact, or the token covers no such memory"},
    409: {"model": Failure, "description": "Another fact says the same, or memory is full of facts by hand"},
}


async def _answered(work: Callable[[], _T], failed: str | None = None) -> _T:
    """Run blocking work in a thread; see `answer_to` for its errors."""
    try:
        return await run_in_thread(work)
    except (BackstoryError, OSError) as error:
        raise answer_to(error, failed) from error


def _json(content: object) -> Response:
    """Answer with JSON as memory.json has it: no field where there is nothing to say."""
    return Response(msgspec.json.encode(content), media_type="application/json")


def _content(content: str) -> str:
    text = content.strip()
    if not text:
        raise HTTPException(400, _EMPTY)
    return text


def _memory(request: Request, right: Right) -> HostedMemory:
    """Return the memory that is asked for; it opens logs.

    Raises:
        ScopeError: The user id is not valid.
        NotFoundError: The caller does not see this memory.
        ForbiddenError: The caller lacks the right.
    """
    caller: Caller = request.state.caller
    return HostedMemory.of(caller.memory(request.app.state.home, name_in(request, USER_HEADER), None, right))


async def _changed(request: Request, change: Callable[[HostedMemory], object], failed: str) -> Response:
    """Change the memory, and answer with the document."""
    return _json(await _answered(lambda: _after(request, change), failed))


def _after(request: Request, change: Callable[[HostedMemory], object]) -> Document:
    memory = _memory(request, Right.WRITE)
    change(memory)
    return memory.document()


async def _replaced(
    request: Request, replace: Callable[[HostedMemory], object], failed: str, *, whole_user: bool = False
) -> Response:
    """Replace the memory, also where its logs are damaged, and answer with the document.

    Args:
        request: The request.
        replace: Replaces it.
        failed: See `answer_to`.
        whole_user: Whether this also concerns the agents of the user.
    """
    caller: Caller = request.state.caller

    def replaced() -> Document:
        scope = caller.scope(name_in(request, USER_HEADER), None)
        caller.must_have(Right.WRITE)
        # The memory is opened anew for each attempt: a repair puts another log in the place of the one that was open.
        document, _ = replace_beyond_damage(
            request.app.state.home, scope, lambda: _after(request, replace), whole_user=whole_user
        )
        return document

    return _json(await _answered(replaced, failed))


@contextmanager
def _of_fact(fact_id: str) -> Iterator[None]:
    """Answer for a fact that is not there."""
    try:
        yield
    except NotFoundError as error:
        raise HTTPException(404, f"Memory fact '{fact_id}' not found.") from error


async def _document(request: Request) -> Response:
    return _json(await _answered(lambda: _memory(request, Right.READ).document()))


def _config(request: Request) -> MemoryConfig:
    return config_shown(request.app.state.home.config.settings, request.state.caller)


router = APIRouter(
    prefix="/api/memory",
    tags=["deerflow"],
    route_class=DeerFlowRoute,
    generate_unique_id_function=lambda route: f"deerflow_{route.name}",
)
"""The routes, for an app whose `state.home` is the open home; `request.state.caller` has to be who sends a request."""


@router.get("", responses=_READS)
async def get_memory(request: Request) -> Response:
    """Return the memory of the user."""
    return await _document(request)


@router.get("/export", responses=_READS)
async def export_memory(request: Request) -> Response:
    """Return the memory of the user, for a backup or an import elsewhere."""
    return await _document(request)


@router.post("/reload", responses=_READS)
async def reload_memory(request: Request) -> Response:
    """Read the log again, update memory.json and return the memory."""
    return _json(await _answered(lambda: _memory(request, Right.READ).reload()))


@router.delete("", responses=_CHANGES)
async def clear_memory(request: Request) -> Response:
    """Empty the memory of the user and of the user's agents. The history stays, and an undo restores it.

    Damaged logs are moved aside first.
    """
    return await _replaced(
        request, lambda memory: memory.clear(all_agents=True), "Failed to clear memory data.", whole_user=True
    )


@router.post("/import", responses=_CHANGES)
async def import_memory(body: ImportedMemory, request: Request) -> Response:
    """Replace the memory of the user by a document, in one commit. The history stays, and an undo restores it.

    Damaged logs are moved aside first.
    """

    def replace(memory: HostedMemory) -> None:
        memory.overwrite(body.model_dump(by_alias=True, exclude_none=True))

    return await _replaced(request, replace, "Failed to import memory data.")


@router.post("/facts", responses=_CHANGES_FACTS)
async def create_fact(body: CreatedFact, request: Request) -> Response:
    """Add a fact by hand, and return the memory."""

    def add(memory: HostedMemory) -> None:
        memory.add_fact(_content(body.content), read_category(body.category), body.confidence)

    return await _changed(request, add, "Failed to create memory fact.")


@router.patch("/facts/{fact_id}", responses=_CHANGES_FACTS)
async def update_fact(fact_id: str, body: FactPatch, request: Request) -> Response:
    """Change a fact by hand, and return the memory."""

    def change(memory: HostedMemory) -> None:
        content = None if body.content is None else _content(body.content)
        category = None if body.category is None else read_category(body.category)
        with _of_fact(fact_id):
            memory.change(fact_id, content, category, body.confidence)

    return await _changed(request, change, "Failed to update memory fact.")


@router.delete("/facts/{fact_id}", responses=_CHANGES_FACTS)
async def delete_fact(fact_id: str, request: Request) -> Response:
    """Remove a fact, and return the memory. The history keeps it."""

    def remove(memory: HostedMemory) -> None:
        with _of_fact(fact_id):
            memory.remove_fact(fact_id)

    return await _changed(request, remove, "Failed to delete memory fact.")


@router.get("/config", responses=_answers(MemoryConfig))
async def get_config(request: Request) -> Response:
    """Return the configuration of memory, without secrets."""
    return _json(_config(request))


@router.get("/status", responses=_READS | _answers(MemoryStatus))
async def get_status(request: Request) -> Response:
    """Return the configuration and the memory of the user."""
    data = await _answered(lambda: _memory(request, Right.READ).document())
    return _json(MemoryStatus(_config(request), data))
