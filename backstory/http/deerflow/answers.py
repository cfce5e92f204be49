"""Answers of DeerFlow's routes to what goes wrong: `{"detail": …}` with the codes and words of DeerFlow's gateway.

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
from collections.abc import Callable, Coroutine

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

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
from backstory.ledger.core.sanitize import safe_json

__all__ = ["DeerFlowRoute", "answer_to", "empty_content", "unknown_fact"]

_log = logging.getLogger(__name__)

_CONFLICT = "Memory changed concurrently; reload and retry."
_CORRUPT = "Stored memory data is corrupted."
_DUPLICATE = "A fact with the same content already exists."
_EMPTY = "Memory fact content cannot be empty."
_FULL = "Fact was not stored because the configured memory.max_facts capacity policy evicted it"
_NOT_READ = "Failed to read memory data."


def unknown_fact(fact_id: str) -> HTTPException:
    """Return the answer for a fact that is not there."""
    return HTTPException(404, f"Memory fact '{fact_id}' not found.")


def empty_content() -> HTTPException:
    """Return the answer for a fact without text."""
    return HTTPException(400, _EMPTY)


def answer_to(error: BackstoryError | OSError, failed: str | None) -> HTTPException:
    """Return the answer of DeerFlow's gateway to an error.

    Args:
        error: The error.
        failed: What the gateway says if the store does not take this change; None for a request that only reads.

    Returns:
        The code and the detail. What names files of the server goes to its log, and not into the detail.
    """
    match error:
        case CorruptLogError():
            answer = HTTPException(500, _CORRUPT)
        case LockTimeoutError() | WrongExpectedVersionError() | ConflictError():
            answer = HTTPException(409, _CONFLICT)
        case DuplicateFactError():
            answer = HTTPException(409, _DUPLICATE)
        case CapError():
            answer = HTTPException(409, _FULL)
        case NotFoundError():
            answer = HTTPException(404, str(error))
        case ForbiddenError():
            answer = HTTPException(403, str(error))
        case RefusedError():
            answer = HTTPException(409, str(error))
        case UsageError() if not isinstance(error, ConfigError):
            answer = HTTPException(400, str(error))
        case _:
            answer = HTTPException(503, _NOT_READ) if failed is None else HTTPException(500, failed)
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
