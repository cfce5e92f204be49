"""Rows of turns, and a list from which any row can be dropped without moving the others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from backstory.ledger.messages import Kept


class TurnView(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One turn as it was kept; `n` is its ordinal in its `thread`."""

    id: str
    role: str
    content: str
    at: str
    n: int
    name: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}
    thread: str = ""
    tags: tuple[str, ...] = ()


MessageWords: TypeAlias = "TurnView | Kept"
"""A message, recorded or to record: what it says and to whom makes two of them one, apart from their ids."""

_all_words: Callable[[MessageWords], tuple[object, ...]] = attrgetter(
    "role", "content", "name", "cause_by", "sent_from", "send_to", "metadata"
)


def words_of(said: MessageWords) -> int:
    """Return what two messages share that may be one but for their ids; what shares it is still to be compared."""
    return hash((said.role, said.content, said.name, said.cause_by, said.sent_from, said.send_to))


def same_words(a: MessageWords, b: MessageWords) -> bool:
    """Whether two messages are one but for their ids, their times and their threads."""
    return _all_words(a) == _all_words(b)


class TurnRow(msgspec.Struct, eq=False, gc=False):
    """A turn's place: `serial` counts all turns of a scope in the order they were recorded, from 1."""

    serial: int
    said: TurnView
    stands: bool = True


_serial = attrgetter("serial")


class Series:
    """Rows by serial; those that stand no longer are passed over, and swept out once they are the greater part.

    Adding and dropping cost the same whatever the length, on average; asking costs what the answer holds.
    """

    __slots__ = ("_begin", "_dead", "_rows")

    def __init__(self) -> None:
        self._rows: list[TurnRow] = []
        self._dead = 0
        self._begin = 0
        """No row before this place stands."""

    def __len__(self) -> int:
        return len(self._rows) - self._dead

    def append(self, row: TurnRow) -> None:
        """Add a row that comes after all others."""
        self._rows.append(row)

    def insert(self, row: TurnRow) -> None:
        """Add a row at its place."""
        insort(self._rows, row, key=_serial)
        self._begin = 0

    def drop(self) -> None:
        """Take note that one of the rows has ceased to stand."""
        self._dead += 1
        if self._dead * 2 > len(self._rows):
            self._sweep()

    def _sweep(self) -> None:
        self._rows = [row for row in self._rows if row.stands]
        self._dead = self._begin = 0

    def since(self, serial: int = 0) -> list[TurnRow]:
        """Return the rows from a serial on."""
        rows = self._rows[bisect_left(self._rows, serial, key=_serial) :] if serial else self._rows
        return [row for row in rows if row.stands] if self._dead else rows[:]

    def backwards(self) -> Iterator[TurnRow]:
        """Yield the rows, the newest first."""
        return (row for row in reversed(self._rows) if row.stands)

    def newest(self, count: int) -> list[TurnRow]:
        """Return the `count` newest rows, the oldest of them first."""
        self.last()
        return list(islice(self.backwards(), count))[::-1]

    def from_end(self, count: int) -> TurnRow | None:
        """Return the first of the `count` newest rows, at least one; None where there are fewer."""
        if not self._dead:
            return self._rows[-count] if count <= len(self._rows) else None
        return next(islice(self.backwards(), count - 1, None), None)

    def first(self) -> TurnRow | None:
        """Return the oldest row."""
        while self._begin < len(self._rows):
            if self._rows[self._begin].stands:
                return self._rows[self._begin]
            self._begin += 1
        return None

    def last(self) -> TurnRow | None:
        """Return the newest row."""
        while self._rows and not self._rows[-1].stands:
            self._rows.pop()
            self._dead -= 1
        return self._rows[-1] if self._rows else None

    def at(self, place: int) -> TurnRow | None:
        """Return the row at a place, from 0; None where there is none."""
        if self._dead:
            self._sweep()
        return self._rows[place] if 0 <= place < len(self._rows) else None
