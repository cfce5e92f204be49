"""Anthropic's protocol for the proxy: `/proxy/anthropic`."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from backstory.config.settings import Settings
from backstory.http.access.refusals import anthropic_error
from backstory.http.proxy.answers import AnswerForm
from backstory.http.proxy.anthropic.answers import MessageEvents, message_of
from backstory.http.proxy.anthropic.requests import read_request
from backstory.http.proxy.protocol import Endpoint, Protocol

DEFAULT_UPSTREAM = "https://api.anthropic.com"

_MESSAGES = Endpoint(read_request, AnswerForm(MessageEvents, message_of))


def upstream_of(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the base URL that requests are forwarded to; the version is part of their paths.

    Args:
        settings: The configuration, with `anthropic_base_url`.
        environ: The environment, with `ANTHROPIC_BASE_URL`.
    """
    given = settings.anthropic_base_url or environ.get("ANTHROPIC_BASE_URL", "").strip() or DEFAULT_UPSTREAM
    return given.rstrip("/").removesuffix("/v1")


def _error(status: int, _: str, message: str) -> Response:
    return anthropic_error(status, message)


def _endpoint(path: str) -> Endpoint | None:
    return _MESSAGES if path == "/v1/messages" else None


ANTHROPIC = Protocol(
    name="Anthropic",
    path="/proxy/anthropic",
    usual="/v1/messages",
    endpoint=_endpoint,
    error=_error,
    upstream_key="anthropic_base_url",
    upstream=upstream_of,
)
