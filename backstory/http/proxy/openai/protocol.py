"""OpenAI's protocol for the proxy: `/proxy/v1`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

import msgspec
from starlette.responses import Response

from backstory.config.settings import Settings
from backstory.http.proxy.answers import AnswerForm
from backstory.http.proxy.openai.answers import ChatEvents, ResponseEvents, completion_of, response_of
from backstory.http.proxy.openai.requests import Api, read_request
from backstory.http.proxy.protocol import Asked, Endpoint, Protocol
from backstory.ledger.text.scaffolding import Scaffolding


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


DEFAULT_UPSTREAM = "https://api.openai.com/v1"

_CONVERSATION = re.compile(r"(?:/openai(?:/v1|/deployments/[^/]+)?)?/(chat/completions|responses)")
"""OpenAI's paths, and those of Azure OpenAI."""


def upstream_of(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the base URL that requests are forwarded to.

    Args:
        settings: The configuration, with `proxy_upstream`.
        environ: The environment, with `OPENAI_BASE_URL`.
    """
    return (settings.proxy_upstream or environ.get("OPENAI_BASE_URL", "").strip() or DEFAULT_UPSTREAM).rstrip("/")


def _read(kind: Api, body: bytes, _: Callable[[str], str], scaffolding: Scaffolding) -> Asked:
    return read_request(kind, body, scaffolding)


_ENDPOINTS = {
    "chat/completions": Endpoint(functools.partial(_read, "chat"), AnswerForm(ChatEvents, completion_of)),
    "responses": Endpoint(functools.partial(_read, "responses"), AnswerForm(ResponseEvents, response_of)),
}


def _endpoint(path: str) -> Endpoint | None:
    found = _CONVERSATION.fullmatch(path)
    return None if found is None else _ENDPOINTS[found[1]]


OPENAI = Protocol(
    name="OpenAI",
    path="/proxy/v1",
    usual="/chat/completions",
    endpoint=_endpoint,
    error=error_response,
    upstream_key="proxy_upstream",
    upstream=upstream_of,
)
