"""Headers by which a client says what memory does for its request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar, get_args

import msgspec

from backstory.http.proxy.exchange import History
from backstory.http.proxy.headers import header

Mode = Literal["record", "read", "off"]
"""Memory is put in and what is said is recorded; it is put in alone; or neither."""

_T = TypeVar("_T", bound=str)


class UnknownValueError(Exception):
    """A header has a value that it cannot have; the message is for the client."""


class Wishes(msgspec.Struct, frozen=True):
    """What a client asks of memory in its headers; None is the setting."""

    mode: Mode = "record"
    history: History | None = None
    facts: bool = False


def wishes_of(headers: Iterable[tuple[bytes, bytes]]) -> Wishes:
    """Read what a client asks of memory.

    Raises:
        UnknownValueError: A header has another value than it may have.
    """
    given = list(headers)
    return Wishes(
        mode=_one_of("X-Backstory-Mode", get_args(Mode), given) or "record",
        history=_one_of("X-Backstory-History", get_args(History), given),
        facts=_one_of("X-Backstory-Facts", ("0", "1"), given) == "1",
    )


def _one_of(name: str, values: tuple[_T, ...], headers: Iterable[tuple[bytes, bytes]]) -> _T | None:
    stated = header(headers, name.lower().encode()).lower()
    if not stated:
        return None
    for value in values:
        if value == stated:
            return value
    raise UnknownValueError(f"{name} must be {', '.join(values[:-1])} or {values[-1]}, got {stated[:40]!r}")
