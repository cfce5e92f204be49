"""Where a scope stood when a read model last looked: the port through which opening is spared a replay from the start.

The ledger asks no more of it than places: what a thread or a memory is, is folded from the lines themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ledger.commit import Head
from ledger.memory import Memory

__all__ = ["Origin", "Place", "Snapshots"]


class Place(msgspec.Struct, frozen=True):
    """Where a line is: its seq in the stream, and the byte it begins at (0 where the engine has no offsets)."""

    seq: int
    byte: int


class Origin(msgspec.Struct, frozen=True):
    """A moment to go on from: the memory at the ledger's head, and where both streams stood.

    `ledger_end` and `transcript_end` are the bytes behind the last line taken in; `transcript_at` the time of the
    transcript's last commit; `cleared` the transcript's seq up to which clears have covered everything; `turns` how
    many turns were ever recorded, erased ones included.
    """

    memory: Memory
    ledger: Head
    ledger_end: int
    transcript: Head
    transcript_end: int
    transcript_at: str
    cleared: int
    turns: int


class Snapshots(Protocol):
    """Remembers origins of one scope, and where the lines about each thread are.

    It never stands on an erasure that is not complete: what was named is gone from every line it points to.
    """

    def origin(self) -> Origin | None:
        """Return the newest moment known whose hashes are still those of the streams; None: replay from the start."""

    def places(self, thread: str, origin: Origin) -> tuple[Sequence[Place], Sequence[Place]]:
        """Return the lines about a thread, up to an origin: the ledger's commits, then the transcript's, in order."""

    def threads(self, origin: Origin) -> Sequence[str]:
        """Return the names of all threads recorded up to an origin, by first word."""

    def unsettled(self, origin: Origin) -> Sequence[str]:
        """Return, by first word, at least the threads in which a turn up to an origin is not covered."""
