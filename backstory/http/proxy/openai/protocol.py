"""OpenAI's protocol for the proxy: `/proxy/v1`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from starlette.responses import Response

from backstory.config.settings import Settings
from backstory.http.access.refusals import openai_error
from backstory.http.proxy.answers import AnswerForm
from backstory.http.proxy.openai.answers import ChatEvents, ResponseEvents, completion_of, response_of
from backstory.http.proxy.openai.requests import read_request
from backstory.http.proxy.protocol import Endpoint, Protocol


def _error(status: int, code: str, message: str) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004 the class of the status
    return openai_error(status, kind, code, message)


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


_ENDPOINTS = {
    "chat/completions": Endpoint(functools.partial(read_request, "chat"), AnswerForm(ChatEvents, completion_of)),
    "responses": Endpoint(functools.partial(read_request, "responses"), AnswerForm(ResponseEvents, response_of)),
}


def _endpoint(path: str) -> Endpoint | None:
    found = _CONVERSATION.fullmatch(path)
    return None if found is None else _ENDPOINTS[found[1]]


OPENAI = Protocol(
    name="OpenAI",
    path="/proxy/v1",
    usual="/chat/completions",
    endpoint=_endpoint,
    error=_error,
    upstream_key="proxy_upstream",
    upstream=upstream_of,
)
