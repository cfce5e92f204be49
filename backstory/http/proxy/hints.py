"""Hints: how a client names its conversation. They decide between threads, and never join two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from backstory.http.proxy.headers import header

_HEADERS = (
    "thread-id",
    "session-id",
    "x-session-id",
    # As Codex and Open WebUI have named theirs.
    "conversation_id",
    "session_id",
    "x-conversation-id",
    "x-openwebui-chat-id",
)
_METADATA = ("thread_id", "session_id", "conversation_id", "chat_id")
_LONGEST = 200


def hint_of(headers: Iterable[tuple[bytes, bytes]], field: Callable[[str], object]) -> str | None:
    """Return the name that a client gives its conversation, with where it stands; None where it gives none.

    Args:
        headers: The headers of the request.
        field: Returns a field of its body by its name; None where there is none.
    """
    given = list(headers)
    named = ((name, header(given, name.encode())) for name in _HEADERS)
    return next((_spelled(name, value) for name, value in named if value), None) or _in_body(field)


def _in_body(field: Callable[[str], object]) -> str | None:
    metadata = field("metadata")
    fields: Mapping[object, object] = metadata if isinstance(metadata, Mapping) else {}
    found = {f"metadata.{name}": fields.get(name) for name in _METADATA}
    found |= {"session_id": field("session_id"), "prompt_cache_key": field("prompt_cache_key")}
    return next((_spelled(name, value) for name, value in found.items() if isinstance(value, str) and value), None)


def _spelled(name: str, value: str) -> str:
    return f"{name}={value[:_LONGEST]}"
