"""Headers that the proxy passes on: end-to-end ones, without what is between the client and this server alone."""

from __future__ import annotations

from collections.abc import Iterable

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
