"""Server-sent events: splits a stream of bytes into events, as they come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_LONGEST_END = 4


class Event(NamedTuple):
    """The data of an event, and where it begins in the bytes that it ended in; 0 where it began before them."""

    data: bytes
    begin: int
    is_error: bool = False


class EventSplitter:
    """Splits a stream into events; what is read of an unfinished one is kept, up to a limit.

    Attributes:
        lost: Whether an event was longer than the limit. Nothing is read from then on.

    Args:
        limit: The most bytes of one event.
    """

    def __init__(self, limit: int) -> None:
        self.lost = False
        self._limit = limit
        self._rest = bytearray()
        self._searched = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Take bytes, and yield the events that end in them and have data."""
        if self.lost:
            return
        before = len(self._rest)
        self._rest += chunk
        start = 0
        while (end := self._end()) is not None:
            lines = _LINE.split(bytes(self._rest[start : end[0]]))
            self._searched = end[1]
            if data := b"\n".join(_values(lines, b"data:")):
                yield Event(data, max(0, start - before), [*_values(lines, b"event:")] == [b"error"])
            start = end[1]
        del self._rest[:start]
        self._searched = max(0, len(self._rest) - _LONGEST_END + 1)
        if len(self._rest) > self._limit:
            self.lost = True
            self._rest.clear()

    def _end(self) -> tuple[int, int] | None:
        found = _END.search(self._rest, self._searched)
        return None if found is None else found.span()


def _values(lines: Iterable[bytes], field: bytes) -> Iterator[bytes]:
    return (line.removeprefix(field).removeprefix(b" ") for line in lines if line.startswith(field))
