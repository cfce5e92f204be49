"""Store of streams: the port that every storage engine implements.

A stream is a sequence of lines. Each line is a sealed commit whose seq is its position, from 1. One append writes one
line, so an engine need not write two records atomically.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from backstory.ledger.core.commit import Head

__all__ = ["EventStore", "Record"]


class Record(msgspec.Struct, frozen=True):
    """A line as it is stored, without its line break, and its byte offset in the stream (0 where there is none)."""

    line: bytes
    byte: int


class EventStore(Protocol):
    """An engine that keeps streams."""

    def append(self, stream: str, line: bytes, expected: int) -> None:
        """Append one line durably, provided that the stream's last seq is `expected`.

        When it returns, the line survives a power cut.

        Raises:
            WrongExpectedVersionError: the stream's last seq is another.
            LockTimeoutError: another process keeps the stream locked.
            StoreError: it could not be written; the stream is as it was.
            CorruptLogError: the stream's end is damaged.
        """

    def append_all(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        """Append lines that follow each other, with one write and one sync; otherwise as `append`.

        Where an engine cannot do that at once, a part of them from the first on may be there after an error.
        """

    def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        """Yield the lines after a seq, in order, up to the end as it is now; none for a stream that is not there.

        Lines are handed out unread: whether they are what was written is for the reader to check. `byte` is where the
        reader was once told that the first of them begins; an engine that has no offsets passes it over.

        Raises:
            StoreError: it could not be read.
        """

    def head(self, stream: str) -> Head:
        """Return where the stream stands: the seq and hash of its last whole line.

        Raises:
            StoreError: it could not be read.
            CorruptLogError: that line is not what was written.
        """

    def durable_head(self, stream: str) -> Head:
        """Return the newest head that is known to be durable, for a reader: nobody is waited for, nothing is synced.

        What another process has appended and released is in it; what it is still writing is not. Where nothing tells
        the two apart, as in a log that only older versions wrote, it is what is there.

        Raises:
            StoreError: it could not be read.
            CorruptLogError: that line is not what was written.
        """

    def settled_head(self, stream: str) -> Head:
        """Return the head once it can neither be lost nor taken back: whoever is writing is waited for.

        Raises:
            LockTimeoutError: another process keeps the stream locked.
            StoreError: it cannot be locked or synced here.
            CorruptLogError: that line is not what was written.
        """

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all streams that begin with the prefix, sorted."""

    def follow(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq and then, without end, those that are appended.

        Raises:
            StoreError: it could not be read.
            CorruptLogError: lines that were handed out, or were said to be there, are gone.
        """

    def key(self, stream: str, *, create: bool = False) -> bytes | None:
        """Return the secret of a stream, 32 random bytes that are kept outside it; None where there is none.

        With `create` one is made where there is none, durably; of several who make one at once all get the same.

        Raises:
            StoreError: it could not be read or written.
        """

    def destroy_key(self, stream: str) -> None:
        """Destroy the secret of a stream; nothing that was made with it can be recognised any more.

        Raises:
            StoreError: it could not be destroyed.
        """

    def redact(self, stream: str, lines: Mapping[int, bytes]) -> None:
        """Put other lines in the place of some, by seq, durably and all at once; nothing is left of what they replace.

        Each must be the line it replaces with contents erased: same seq, same hash, and the hash still holds. The
        caller holds the stream's lock.

        Raises:
            StoreError: it could not be written, or a line is no erasure of the one at its place; the stream is as it
                was.
        """

    def edition(self, stream: str) -> str:
        """Return a text that changes whenever lines that were there already are stored anew; "" for no stream.

        As long as it stays the same, offsets hold.
        """

    def size(self, stream: str) -> int:
        """Return how many bytes a stream takes; 0 where the engine cannot tell."""

    def torn_tail(self, stream: str) -> Record | None:
        """Return what a crash left behind the last whole line, if anything; nobody was ever told it was there."""

    def locked(self, stream: str, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the stream's lock: while it is held nobody else appends; the thread that holds it may, and lock again.

        Without `wait` it is had at once or not at all.

        Raises:
            LockTimeoutError: another process keeps it.
        """

    def lease(self, stream: str, name: str) -> AbstractContextManager[bool]:
        """Try to be the only one that works on something beside a stream; yields False while somebody else is.

        It never waits, is not re-entrant, holds across processes, and dies with its holder.
        """

    def close(self) -> None:
        """Let go of files and connections that are kept open; the store can be used again."""
