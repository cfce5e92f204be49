"""Refusal of a request before any route: its body in the shape that clients of the path expect."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

PROBLEM = "application/problem+json"

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as RFC 9457 describes it. `detail` is the message that the command line gives.

    `error` is the class of the error. `rule`, `fact_id` and `seq` are of a refusal that the ledger recorded, `errors`
    are the wrong values of a request.
    """

    status: int
    title: str
    detail: str
    type: str = "about:blank"
    error: str | None = None
    rule: str | None = None
    fact_id: str | None = None
    seq: int | None = None
    errors: tuple[WrongValue, ...] = ()


class WrongValue(msgspec.Struct, frozen=True):
    """A value of a request that is not valid: where it stands, and why."""

    where: str
    why: str


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response that carries a problem."""
    return Response(msgspec.json.encode(problem), problem.status, headers, PROBLEM)


def refusal(path: str, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the refusal of a request.

    Args:
        path: The path of the request: clients of DeerFlow, Anthropic and OpenAI read other shapes than a problem.
        status: The HTTP status.
        detail: What is wrong, and what to do.
        headers: Further headers.
    """
    if path.startswith("/api/memory"):
        return Response(msgspec.json.encode({"detail": detail}), status, headers, "application/json")
    if path.startswith("/proxy/anthropic/"):
        return anthropic_error(status, detail, headers)
    if path.startswith("/proxy/"):
        kind = _OPENAI_TYPES.get(status, "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "error")
        return openai_error(status, kind, None, detail, headers)
    return problem_response(Problem(status, HTTPStatus(status).phrase, detail), headers)


def openai_error(
    status: int, kind: str, code: str | None, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Response(msgspec.json.encode({"error": error}), status, headers, "application/json")


def anthropic_error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error in Anthropic's shape: `{"type": "error", "error": {"type", "message"}}`."""
    usual = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    error = {"type": _ANTHROPIC_TYPES.get(status, usual), "message": message}
    return Response(msgspec.json.encode({"type": "error", "error": error}), status, headers, "application/json")
