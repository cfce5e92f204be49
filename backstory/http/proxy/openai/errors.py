"""Errors of the proxy itself, in the shape of OpenAI's errors, which its clients know."""

from __future__ import annotations

import msgspec
from starlette.responses import Response


class _Error(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str


class _Body(msgspec.Struct):
    error: _Error


def error_response(status: int, code: str, message: str) -> Response:
    """Return an error in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""
    kind = "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004 the class of the status
    body = msgspec.json.encode(_Body(_Error(message, kind, None, code)))
    return Response(body, status, media_type="application/json")
