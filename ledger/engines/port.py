"""Store of streams: the port that every storage engine implements.

A stream is a sequence of lines. Each line is a sealed commit (docs/reference/log-format.md) whose seq is its position,
from 1.

An engine guarantees:

- Order: a line is appended only if the stream's last seq is the expected one.
- Durability: when an append returns, its lines survive a power cut.
- Atomicity: after a failed append the stream is as it was. One append writes one line, so an engine need not write two
  records atomically.
- Bytes: a line is read back as it was written. The reader checks the hash chain; the engine does not.
- Erasure: `redact` replaces lines at once and leaves nothing of the old ones.

`jsonl` is the default engine. Another goes beside it and is named in `config.store_factory`;
`backstory.testing` has the conformance suite that holds it to this port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from backstory.ledger.core.commit import Head
from backstory.ledger.core.errors import SealedError

__all__ = ["Capabilities", "EventStore", "Record", "RemovedLog", "Seal", "StreamLook", "StreamState"]


class Record(msgspec.Struct, frozen=True):
    """A line as it is stored, without its line break, and its offset: the bytes of the lines before it.

    Each line counts with one line break, however the engine stores it.
    """

    line: bytes
    byte: int


class RemovedLog(msgspec.Struct, frozen=True):
    """Mark of a log that `remove` has removed; it names no user.

    Attributes:
        first: The hash of its first commit.
        at: The time of the removal.
        kind: Which of a scope's two streams it was.
        head: Its last head.
    """

    first: str
    at: str
    kind: str
    head: Head


class Seal(msgspec.Struct, frozen=True):
    """The reason why the streams of an engine take no changes.

    Attributes:
        state: `moved`: they were copied to another home, which is the one to write to. `arriving`: they are being
            copied from another home, and are not complete.
        other: The other home, as its engine spells it, without a password.
    """

    state: Literal["moved", "arriving"]
    other: str

    def refusal(self, home: str) -> SealedError:
        """Return the error for a change of a home with this seal."""
        if self.state == "moved":
            return SealedError(f"{home} has moved to {self.other} and takes no changes: use that one")
        return SealedError(f"{home} is an incomplete copy of {self.other}: run `backstory copy` again to complete it")


class StreamState(NamedTuple):
    """What a stream holds: as long as both are the same, it is the same lines.

    One of another edition, or a shorter one, may have lost some; a longer one of the same edition has more.

    Attributes:
        edition: A text that changes when existing lines are rewritten; while it stays the same, offsets remain valid.
            "" for no stream.
        size: The bytes of its lines, with a line break each.
    """

    edition: str
    size: int


class StreamLook(msgspec.Struct, frozen=True):
    """What `head`, `durable_head` and `state` return of a stream."""

    head: Head
    durable: Head
    state: StreamState


class Capabilities(msgspec.Struct, frozen=True):
    """What an engine can do besides what every engine does: a method for each, None where it cannot.

    Where a server or a disk is asked, a method raises StoreError if it cannot be reached or read.

    Attributes:
        path: Returns the path of the file of this machine that holds a stream.
        was_repaired: Returns whether a repair has replaced a stream since an edition of it; a repair takes away lines
            that were read before.
        head_at_once: Returns what `durable_head` would, without waiting for a disk, a lock or a network, if nothing has
            changed since it was asked last; otherwise None.
        looks: Returns what there is to be seen of each stream, in order, with one question across the network.
        changed: Returns the streams that have other lines than at a position, in any order, and the position now. A
            stream may be named that has not changed; none is left out that has. A position is one that was returned
            before; None begins with the position now, which names no stream.
        risks: Returns what may lose acknowledged commits, as far as a client can know, and what to set.
        must_erase: Refuses where `redact` would be refused for want of rights.
    """

    path: Callable[[str], Path] | None = None
    was_repaired: Callable[[str, str], bool] | None = None
    head_at_once: Callable[[str], Head | None] | None = None
    looks: Callable[[Sequence[str]], Sequence[StreamLook]] | None = None
    changed: Callable[[str | None], tuple[Sequence[str], str]] | None = None
    risks: Callable[[], Sequence[str]] | None = None
    must_erase: Callable[[], None] | None = None


class EventStore(Protocol):
    """An engine that keeps streams.

    While `seal` returns one, every method that changes a stream or a secret raises SealedError.
    """

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        """Append lines that follow each other durably, provided that the stream's last seq is `expected`.

        When it returns, they survive a power cut. It takes one write and one sync. Where an engine cannot do that at
        once, a part of several lines, from the first on, may be there after an error.

        Raises:
            WrongExpectedVersionError: The stream's last seq is another.
            LockTimeoutError: Another process keeps the stream locked.
            StoreError: It could not be written; the stream is as it was.
            CorruptLogError: The stream's end is damaged.
        """

    def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        """Yield the lines after a seq, in order, up to the end as it is now; none for a stream that is not there.

        The lines are not checked. `byte` is the offset at which an earlier read found the first of them; an engine
        that finds lines by their seq ignores it.

        Raises:
            StoreError: It could not be read.
        """

    def head(self, stream: str) -> Head:
        """Return where the stream stands: the seq and hash of its last whole line.

        Raises:
            StoreError: It could not be read.
            CorruptLogError: That line is not what was written.
        """

    def durable_head(self, stream: str) -> Head:
        """Return the newest head that is known to be durable, without waiting and without a sync.

        It includes what another process has appended and released, and excludes what is still being written. In a log
        that only older versions wrote, which did not note this, it is the last line.

        Raises:
            StoreError: It could not be read.
            CorruptLogError: That line is not what was written.
        """

    def settled_head(self, stream: str) -> Head:
        """Return the head once it is durable.

        It waits for a process that is writing, unless the engine shows only what is durable.

        Raises:
            LockTimeoutError: Another process keeps the stream locked.
            StoreError: It cannot be locked or synced here.
            CorruptLogError: That line is not what was written.
        """

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all streams that begin with the prefix, sorted."""

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names right below a folder that streams lie in, sorted; "" is the topmost folder.

        The name of a stream is a path: `users/ada/ledger` lies in the folder `ada` of `users`. An engine may
        also return one in which no stream is left, or only the lock of one that has no line yet.

        Raises:
            StoreError: It could not be read.
        """

    def follow(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq and then those that are appended, until the stream is removed by `remove`.

        Raises:
            StoreError: It could not be read.
            CorruptLogError: Lines that were returned before, or reported as durable, are missing.
        """

    def key(self, stream: str, *, create: bool = False) -> bytes | None:
        """Return the secret of a stream, 32 random bytes that are kept outside it; None where there is none.

        With `create` a missing secret is made, durably; concurrent callers get the same one.

        Raises:
            StoreError: It could not be read or written.
        """

    def set_key(self, stream: str, key: bytes | None) -> None:
        """Set the secret of a stream that is copied from another engine, durably; it replaces another.

        None destroys the secret: no digest made with it can be recognised any more.

        Raises:
            StoreError: It could not be written or destroyed.
        """

    def redact(self, stream: str, lines: Mapping[int, bytes]) -> None:
        """Replace lines, by seq, durably and all at once; nothing is left of the old ones.

        Each must be the line it replaces with contents erased: same seq, same hash, and the hash still holds. The
        caller holds the stream's lock.

        Raises:
            StoreError: It could not be written, or a line is no erasure of the one at its place; the stream is as it
                was.
        """

    def remove(self, folder: str) -> bool:
        """Remove every stream below a folder's name, with its secret and all that is kept beside it, for good.

        They are gone at once: a reader sees all of them or none. `is_removed` recognises each afterwards. A removal
        that was interrupted is completed by the next.

        Returns:
            Whether there was anything to remove, also from an interrupted removal.

        Raises:
            LockTimeoutError: Another process keeps a stream locked.
            StoreError: They could not be removed.
        """

    def is_removed(self, first: str) -> bool:
        """Whether the stream whose first commit has this hash was removed by `remove`, and is not lost."""

    def removed_logs(self) -> Iterator[RemovedLog]:
        """Yield the marks of all removed logs, sorted by the hash of the first commit."""

    def restore_removed(self, log: RemovedLog) -> None:
        """Put the mark of a log that was removed from another engine; it replaces another mark of the same log.

        Raises:
            StoreError: It could not be written.
        """

    def seal(self) -> Seal | None:
        """Return the seal that is in force now; None where streams take changes.

        Raises:
            StoreError: It could not be read.
        """

    def set_seal(self, seal: Seal | None) -> None:
        """Seal all streams, also those that do not exist yet, durably and for every process; None takes the seal off.

        When this returns, no change that began before is still under way: what was acknowledged can be read, and
        nothing follows. Changes through the store object that has itself set an `arriving` seal are accepted beneath
        it.

        Raises:
            LockTimeoutError: A change that is under way does not end; the seal may be in force already.
            StoreError: It could not be written.
        """

    def state(self, stream: str) -> StreamState:
        """Return what a stream holds, without reading it: it may be damaged.

        Raises:
            StoreError: It could not be read.
        """

    def torn_tail(self, stream: str) -> Record | None:
        """Return what a crash left after the last whole line, if anything; it was never reported as written."""

    def locked(self, stream: str, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the stream's lock: only the thread that holds it may append. It is re-entrant.

        Without `wait` it is taken at once or not at all.

        Raises:
            LockTimeoutError: Another process keeps it.
        """

    def lease(self, stream: str, name: str) -> AbstractContextManager[bool]:
        """Try to take a named lease beside a stream; yields False while another thread or process holds it.

        It never waits, is not re-entrant, and ends with its holder.
        """

    def capabilities(self) -> Capabilities:
        """Return what the engine can do besides; `Capabilities()` where that is nothing."""

    def close(self) -> None:
        """Close files and connections that are kept open; the store can be used again."""


def states_of(store: EventStore, streams: Sequence[str]) -> Sequence[StreamState]:
    """Return what each stream holds now, with one question where the engine answers it.

    Raises:
        StoreError: One could not be read.
    """
    looks = store.capabilities().looks
    return [store.state(stream) for stream in streams] if looks is None else [look.state for look in looks(streams)]


def looks_at(store: EventStore, streams: Sequence[str]) -> Sequence[StreamLook]:
    """Return what there is to be seen of each stream, in order; see `Capabilities.looks`.

    Raises:
        StoreError: It could not be read.
        CorruptLogError: The last line of one is not what was written.
    """
    looks = store.capabilities().looks
    if looks is not None:
        return looks(streams)
    # The state last: its size is never that of fewer lines than the heads.
    return [StreamLook(store.head(stream), store.durable_head(stream), store.state(stream)) for stream in streams]
