"""Turns of a thread by ordinal, loaded a block at a time when they are asked for."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeVar, cast, overload

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Redacted, Turn, TurnRecorded

T = TypeVar("T")

Load = Callable[[int], None]
"""Loads the turns around an ordinal."""


class Trace(msgspec.Struct, frozen=True):
    """What is left of an erased turn: its id, its length in characters, and the keyed digest of its role and text.

    `digest` is None where the turn was erased before digests were kept, or together with everything else. `expired`:
    its retention time was over; no request to forget it.
    """

    n: int
    id: str
    size: int
    digest: str | None = None
    expired: bool = False

    @classmethod
    def of(cls, event: Redacted) -> Trace | None:
        """Return what a redaction leaves of a turn; None where it says too little to recognise the turn."""
        if event.n is None or event.turn is None or event.size is None:
            return None
        return cls(event.n, event.turn, event.size, event.digest, event.what == "expired")

    @property
    def anonymous(self) -> bool:
        """Whether its id was ours."""
        return self.id == f"t{self.n}"


class Block(msgspec.Struct, frozen=True):
    """Turns that follow each other, from the ordinal `first` on: each turn, its commit's seq and its commit's time.

    `traces` are of the turns among them that were erased.
    """

    first: int
    turns: Sequence[Turn | None]
    seqs: Sequence[int]
    recorded_at: Sequence[str]
    traces: Mapping[int, Trace]


class EarlierTurns(Protocol):
    """The turns of a thread as they were at the moment that a transcript goes on from.

    Attributes:
        count: How many there were.
        seq: The transcript's seq at that moment.
        superseded: The ordinals that stood no longer.
        withdrawn: Those of them that were taken back.
        restored: The turns that are to be learned from again since they were restored, and the commit that did it.
        redacted: Whether any of the turns was erased.
    """

    count: int
    seq: int
    superseded: set[int]
    withdrawn: set[int]
    restored: Mapping[int, int]
    redacted: bool

    def block(self, n: int) -> Block:
        """Return the turns around an ordinal, that one among them."""

    def recorded_by(self, seq: int) -> int:
        """Return how many were recorded up to an earlier commit of the transcript."""


class _Unread(enum.Enum):
    UNREAD = enum.auto()


_UNREAD: Literal[_Unread.UNREAD] = _Unread.UNREAD


class TurnColumn(Sequence[T]):
    """One value for each turn of a thread, from ordinal 1 at index 0; `load` fills in what is asked for."""

    def __init__(self, count: int = 0, load: Load | None = None) -> None:
        self._values: list[T | Literal[_Unread.UNREAD]] = [_UNREAD] * count
        self._missing = count
        self._load = load

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            if self._missing:
                return [self[at] for at in range(*index.indices(len(self._values)))]
            return cast("list[T]", self._values[index])
        value = self._values[index]
        if value is not _UNREAD:
            return value
        n = range(1, len(self._values) + 1)[index]
        if self._load is not None:
            self._load(n)
        value = self._values[index]
        if value is _UNREAD:
            raise LookupError(f"turn {n} was not loaded")
        return value

    def __iter__(self) -> Iterator[T]:
        if self._missing:
            return (self[at] for at in range(len(self._values)))
        return iter(cast("list[T]", self._values))

    def append(self, value: T) -> None:
        """Add the value of one more turn."""
        self._values.append(value)

    def put(self, index: int, value: T) -> None:
        """Put another value in a turn's place, which is loaded."""
        self._values[index] = value

    def fill(self, start: int, values: Sequence[T]) -> None:
        """Put in what was loaded, from an index on."""
        end = start + len(values)
        self._missing -= sum(value is _UNREAD for value in self._values[start:end])
        self._values[start:end] = values


def turns_of(commit: Commit, count: int) -> list[Turn | None]:
    """Return the turns that a commit records in a thread that holds `count`; None where one is missing, or was erased.

    The recorded turns stand last in the commit, so that an erased one keeps its ordinal. Where a transcript was cut
    short, or an older copy put in its place, ordinals are missing.
    """
    recorded = commit.cause.turns
    if recorded is None:
        return []
    here = commit.events[len(commit.events) - (recorded.last - recorded.first + 1) :]
    lost: list[Turn | None] = [None] * (recorded.first - 1 - count)
    return lost + [event.turn if isinstance(event, TurnRecorded) else None for event in here]
