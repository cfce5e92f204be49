"""Errors as responses: which status and which body each error of a memory has."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstory.http.access.refusals import Problem, WrongValue, problem_response, refusal
from backstory.ledger.core.errors import (
    BackstoryError,
    CapError,
    DuplicateFactError,
    ForbiddenError,
    KeyReusedError,
    ModelError,
    NoModelError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UsageError,
    WrongExpectedVersionError,
)

__all__ = ["BrokenAnswerError", "Unexpected", "answer_errors", "problem_of"]

_log = logging.getLogger(__name__)

_STATUS: tuple[tuple[type[BackstoryError], int], ...] = (
    (KeyReusedError, 422),
    (UsageError, 400),
    (NoModelError, 409),
    (NotFoundError, 404),
    (ForbiddenError, 403),
    (RefusedError, 409),
    (WrongExpectedVersionError, 412),
    (UnavailableError, 503),
    (ModelError, 502),
)
"""The first class that an error belongs to decides."""

_MOST_VALUES = 20
_NO_OBJECT = ("model_attributes_type", "dict_type", "model_type")
_OF_THE_ROUTER = {
    404: "there is no such path: /docs shows all of them",
    405: "this path does not take this method: /docs shows those that it takes",
}


def answer_errors(app: FastAPI) -> None:
    """Have an app answer errors as problems."""
    app.add_exception_handler(BackstoryError, _of_memory)
    app.add_exception_handler(RequestValidationError, _of_values)
    app.add_exception_handler(HTTPException, _of_http)


def problem_of(error: BackstoryError) -> Problem:
    """Return an error as a problem."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return Problem(
        status,
        HTTPStatus(status).phrase,
        str(error),
        error=type(error).__name__,
        rule=(error.rule or None) if isinstance(error, RefusedError) else None,
        fact_id=error.fact_id if isinstance(error, DuplicateFactError) else None,
        seq=(error.seq or None) if isinstance(error, DuplicateFactError | CapError) else None,
    )


async def _of_memory(_: Request, error: Exception) -> Response:
    if not isinstance(error, BackstoryError):
        raise error
    return problem_response(problem_of(error), {"Retry-After": "1"} if isinstance(error, UnavailableError) else None)


async def _of_values(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    is_json = "json" in request.headers.get("content-type", "").lower()
    # The value itself is left out: it may be content, and long.
    wrong = tuple(
        WrongValue(".".join(map(str, item["loc"])), _why(item, is_json=is_json))
        for item in error.errors()[:_MOST_VALUES]
    )
    detail = "; ".join(f"{one.where.removeprefix('query.')}: {one.why}" for one in wrong) or "the request is not valid"
    return problem_response(Problem(422, HTTPStatus(422).phrase, detail, error="InputError", errors=wrong))


def _why(item: Mapping[str, object], *, is_json: bool) -> str:
    """Return what is wrong with a value, in words that say what to send."""
    kind = item["type"]
    if kind in _NO_OBJECT and item["loc"] == ("body",):
        return "must be a JSON object" if is_json else "must be JSON, with the header Content-Type: application/json"
    if kind == "missing":
        return "is missing"
    if kind == "json_invalid":
        context = item.get("ctx")
        return f"is no JSON: {context['error']}" if isinstance(context, dict) else "is no JSON"
    return str(item["msg"])


async def _of_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    detail = str(error.detail)
    if detail == HTTPStatus(error.status_code).phrase:
        # Of the router: no code of ours had anything to say.
        detail = _OF_THE_ROUTER.get(error.status_code, detail)
    return refusal(request.url.path, error.status_code, detail, error.headers)


class Unexpected:
    """ASGI middleware that answers an unexpected error.

    It logs neither the error's message nor its traceback, since both may hold content.

    Args:
        app: The server.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and answer if it fails."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if scope["type"] != "http":
                raise
            kind = type(error).__name__
            # The path itself may hold a name, or a line break that forges a line of the log.
            route = getattr(scope.get("route"), "path", None) or "a request"
            _log.error("%s of %s failed: %s in %s", scope["method"], route, kind, _place(error))
            if begun:
                # Only a broken connection shows the client that the answer is not whole.
                raise BrokenAnswerError(kind) from None
            failed = f"this failed unexpectedly ({kind}), see the server's log; what is durable stays so"
            await refusal(scope["path"], 500, failed)(scope, receive, send)


class BrokenAnswerError(Exception):
    """An answer that had begun cannot be completed."""


def _place(error: BaseException) -> str:
    """Return the file and line in which an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
