"""Where streams of commits are kept: the port that every engine implements.

A stream is a sequence of lines, each a sealed commit whose seq is its place, from 1. One append is one line, so no
engine needs to write two records atomically.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from ledger.commit import Head

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

    def read(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq, in order, up to the end as it is now; none for a stream that is not there.

        Lines are handed out unread: whether they are what was written is for the reader to check.

        Raises:
            StoreError: it could not be read.
        """

    def head(self, stream: str) -> Head:
        """Return where the stream stands: the seq and hash of its last whole line.

        Raises:
            StoreError: it could not be read.
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

    def size(self, stream: str) -> int:
        """Return how many bytes a stream takes; 0 where the engine cannot tell."""

    def torn_tail(self, stream: str) -> Record | None:
        """Return what a crash left behind the last whole line, if anything; nobody was ever told it was there."""

    def locked(self, stream: str) -> AbstractContextManager[None]:
        """Hold the stream's lock: while it is held nobody else appends; the thread that holds it may, and lock again.

        Raises:
            LockTimeoutError: another process keeps it.
        """
