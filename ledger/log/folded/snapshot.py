"""Snapshot of a scope, as a read model stored it: the port that spares opening a scope a replay from the first commit.

Turns are always read from the lines themselves, and each line is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.threads.coverage import ThreadCoverage
from backstory.ledger.threads.ranges import Ranges
from backstory.ledger.threads.turn_columns import Trace


class Place(msgspec.Struct, frozen=True):
    """Where a line is: its seq in the stream, and the byte it begins at (0 where the engine has no offsets)."""

    seq: int
    byte: int


class SnapshotOrigin(msgspec.Struct, frozen=True):
    """A moment to go on from: the memory at the ledger's head, and where both streams stood.

    `ledger_end` and `transcript_end` are the bytes behind the last line taken in; `transcript_at` the time of the
    transcript's last commit; `firsts` the hashes of the first commits of ledger and transcript, "" for an empty one;
    `cleared` the transcript's seq up to which clears have covered everything; `turns` how
    many turns were ever recorded, erased ones included.
    """

    memory: Memory
    ledger: Head
    ledger_end: int
    transcript: Head
    transcript_end: int
    transcript_at: str
    firsts: tuple[str, str]
    cleared: int
    turns: int


class RecordedLine(msgspec.Struct, frozen=True):
    """A line of the transcript that records turns of a thread, and the ordinals that belong to it, both included.

    The first of them may be missing, where a transcript was cut short: the line records the last ones.
    """

    place: Place
    first: int
    last: int


class RecordedLines(msgspec.Struct, frozen=True):
    """The lines that record some turns, in order, and what is left of those of them that were erased, by ordinal.

    A trace is None if the redaction has too little to recognise the turn by.
    """

    lines: Sequence[RecordedLine]
    redacted: Mapping[int, Trace | None]


class ThreadSnapshot(msgspec.Struct, frozen=True):
    """What is known of a thread at an origin without its lines.

    `turns` is how many were recorded, `superseded` and `withdrawn` the ordinals that stand no longer, `restored` those
    to be learned from again, with the commit that brought them back; `redacted`: a turn was erased; `newest` are the
    lines of the last turns.
    """

    turns: int
    superseded: Ranges
    withdrawn: Ranges
    restored: Mapping[int, int]
    redacted: bool
    coverage: ThreadCoverage
    newest: RecordedLines


class SharedSnapshots(Protocol):
    """Memories of all scopes that other processes have kept. Neither method raises, or waits for long."""

    def find(self, scope: Scope, head: Head) -> Memory | None:
        """Return the memory of a scope at a head; None where it has to be read from the log."""

    def keep(self, scope: Scope, memory: Memory, head: Head) -> None:
        """Keep the memory of a scope at a durable head for other processes."""


class Snapshots(Protocol):
    """Origins of one scope, and the places of the lines about each thread.

    An implementation never includes an erasure that is not complete: the lines it points to hold no erased content.
    """

    def origin(self) -> SnapshotOrigin | None:
        """Return the newest origin whose hashes are still those of the streams; None: replay from the start."""

    def places(self, thread: str, origin: SnapshotOrigin) -> tuple[Sequence[Place], Sequence[Place]]:
        """Return the lines about a thread, up to an origin: the ledger's commits, then the transcript's, in order."""

    def places_of(
        self, threads: Collection[str], origin: SnapshotOrigin
    ) -> Mapping[str, tuple[Sequence[Place], Sequence[Place]]]:
        """Return the same for many threads, by name; fewer of them where looking up each costs less."""

    def thread(self, thread: str, origin: SnapshotOrigin, newest: int) -> ThreadSnapshot | None:
        """Return a thread as of an origin, with the lines of its newest turns.

        None if only a later state is known.
        """

    def lines(self, thread: str, turns: TurnRange, origin: SnapshotOrigin) -> RecordedLines:
        """Return the lines that record turns of a thread; what was redacted behind the last turn comes with that."""

    def recorded_by(self, thread: str, seq: int, origin: SnapshotOrigin) -> int:
        """Return how many of a thread's turns were recorded up to a commit of the transcript before an origin."""

    def threads(self, origin: SnapshotOrigin) -> Sequence[str]:
        """Return the names of all threads recorded up to an origin, by first word."""

    def unsettled(self, origin: SnapshotOrigin) -> Sequence[str]:
        """Return, by first word, at least the threads in which a turn up to an origin is not covered."""
