"""Headers: which the proxy passes on, what memory is to do for a request, and how its client names the conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar, get_args

import msgspec

from backstory.ledger.core.sanitize import bounded_name

Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OURS = b"x-backstory-"
_NOT_UP = frozenset(
    {
        # Of the connection to this server; the HTTP client states them for the other one.
        b"host",
        b"content-length",
        b"expect",
        # Of this server's site.
        b"cookie",
        # Where the client is, as a reverse proxy in front of this server says.
        b"forwarded",
        b"via",
        b"x-real-ip",
    }
)
_NOT_DOWN = frozenset(
    {
        # The server that answers states its own.
        b"date",
        b"server",
        # It would set a cookie of this server's site.
        b"set-cookie",
        b"alt-svc",
        b"strict-transport-security",
    }
)


def to_upstream(headers: Iterable[tuple[bytes, bytes]], *, plain: bool) -> Headers:
    """Return the headers of a request as the upstream gets them.

    Args:
        headers: As the client sent them, with names in lower case.
        plain: Whether to ask for an answer without compression, for one that is read on its way.
    """
    kept = [
        (name, value)
        for name, value in _end_to_end(headers)
        if name not in _NOT_UP and not name.startswith((_OURS, b"x-forwarded-"))
    ]
    if plain:
        kept = [(name, value) for name, value in kept if name != b"accept-encoding"]
        kept.append((b"accept-encoding", b"identity"))
    return kept


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of an answer as the client gets them; its bytes are passed on as they came."""
    lower = ((name.lower(), value) for name, value in headers)
    return [(name, value) for name, value in _end_to_end(lower) if name not in _NOT_DOWN and not name.startswith(_OURS)]


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    """Return the text of the first header of a name; empty where there is none."""
    value = next((value for known, value in headers if known == name), b"").strip()
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    given = list(headers)
    named = {option.strip().lower() for name, value in given if name == b"connection" for option in value.split(b",")}
    return [(name, value) for name, value in given if name not in _HOP_BY_HOP and name not in named]


MemoryMode = Literal["record", "read", "off"]
"""Memory is put in and what is said is recorded; it is put in alone; or neither."""

History = Literal["newest", "all"]
"""How much of a conversation that began elsewhere is recorded."""

_NAMING = (
    "thread-id",
    "session-id",
    "x-session-id",
    # As Codex and Open WebUI have named theirs.
    "conversation_id",
    "session_id",
    "x-conversation-id",
    "x-openwebui-chat-id",
)
_NAMING_METADATA = ("thread_id", "session_id", "conversation_id", "chat_id")
_LONGEST_HINT = 200

_T = TypeVar("_T", bound=str)


class UnknownValueError(Exception):
    """A header has a value that it cannot have; the message is for the client."""


class Wishes(msgspec.Struct, frozen=True):
    """What a client says of its request beside the body.

    Attributes:
        mode: What memory does for it.
        history: How much is recorded; None is the setting.
        facts: Whether the client wants the ids of the facts that go in.
        thread: The thread that it names.
        again: Whether it tries the request again.
    """

    mode: MemoryMode = "record"
    history: History | None = None
    facts: bool = False
    thread: str | None = None
    again: bool = False


def wishes_of(headers: Headers) -> Wishes:
    """Read what a client says of its request in its headers.

    Raises:
        UnknownValueError: A header has another value than it may have.
    """
    return Wishes(
        mode=_one_of("X-Backstory-Mode", get_args(MemoryMode), headers) or "record",
        history=_one_of("X-Backstory-History", get_args(History), headers),
        facts=_one_of("X-Backstory-Facts", ("0", "1"), headers) == "1",
        thread=bounded_name(header(headers, b"x-backstory-thread")) or None,
        again=header(headers, b"x-stainless-retry-count") not in ("", "0"),
    )


def _one_of(name: str, values: tuple[_T, ...], headers: Headers) -> _T | None:
    stated = header(headers, name.lower().encode()).lower()
    if not stated:
        return None
    for value in values:
        if value == stated:
            return value
    raise UnknownValueError(f"{name} must be {', '.join(values[:-1])} or {values[-1]}, got {stated[:40]!r}")


def hint_of(headers: Headers, field: Callable[[str], object]) -> str | None:
    """Return the name that a client gives its conversation, with where it stands; None where it gives none.

    Args:
        headers: The headers of the request.
        field: Returns a field of its body by its name; None where there is none.
    """
    named = ((name, header(headers, name.encode())) for name in _NAMING)
    return next((_spelled(name, value) for name, value in named if value), None) or _in_body(field)


def _in_body(field: Callable[[str], object]) -> str | None:
    metadata = field("metadata")
    fields: Mapping[object, object] = metadata if isinstance(metadata, Mapping) else {}
    found = {f"metadata.{name}": fields.get(name) for name in _NAMING_METADATA}
    found |= {"session_id": field("session_id"), "prompt_cache_key": field("prompt_cache_key")}
    return next((_spelled(name, value) for name, value in found.items() if isinstance(value, str) and value), None)


def _spelled(name: str, value: str) -> str:
    return f"{name}={value[:_LONGEST_HINT]}"
