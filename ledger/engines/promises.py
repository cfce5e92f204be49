"""Promises that engines keep in the same way: what may follow a head or replace a line, how a stream is followed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import msgspec

from backstory.ledger.core.commit import UNREADABLE, Head, hash_of, inspect
from backstory.ledger.core.errors import CorruptLogError, StoreError, WrongExpectedVersionError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT
from backstory.ledger.engines.port import EventStore, Record

_LOCK_ORDER = (TRANSCRIPT, LEDGER)


class RemovalMark(msgspec.Struct, frozen=True):
    """The mark of a removed log as it is written: when it was removed, which of a scope's two it was, its last head."""

    v: int
    at: str
    kind: str
    head: Head


def in_lock_order(stream: str) -> tuple[int, str, int]:
    """Return the key by which streams that are locked together are sorted, so that no two wait for each other.

    An erasure takes a scope's transcript before its ledger. A delivery from an agent takes the agent's before its
    user's.
    """
    folder, _, kind = stream.rpartition("/")
    order = _LOCK_ORDER.index(kind) if kind in _LOCK_ORDER else len(_LOCK_ORDER)
    return -folder.count("/"), folder, order


def intact_head(line: bytes) -> Head | str:
    """Return the head that a line states, or what is wrong with the line."""
    try:
        found = inspect(line)
    except UNREADABLE:
        return "is no commit"
    return Head(found.seq, found.hash) if found.intact else "is not what was written"


def other_version(stream: str, seq: int, expected: int) -> WrongExpectedVersionError:
    """Return the error for an append to a stream whose last seq is not the expected one."""
    return WrongExpectedVersionError(f"{stream} is at {seq}, not at {expected}: read on and decide again", actual=seq)


def other_history(stream: str, seq: int, holder: str) -> CorruptLogError:
    """Return the error for an append to a stream with the expected seq and another hash there."""
    return CorruptLogError(
        f"{stream}: commit {seq} is not the one that was read: was the {holder} exchanged?",
        kind="broken_prev",
        stream=stream,
        line=seq,
        byte=0,
    )


def must_be_erasure(stream: str, seq: int, before: bytes, after: bytes) -> None:
    """Hold a stub's line to the one it replaces.

    Raises:
        StoreError: It is another commit, its hash does not hold, or nothing is erased in it.
    """
    old, new = inspect(before), inspect(after)
    same = (old.seq, old.at, old.prev, old.hash) == (new.seq, new.at, new.prev, new.hash)
    if not (same and new.intact and set(new.erased) > set(old.erased)):
        raise StoreError(f"{stream}: what should replace commit {seq} is no erasure of it; nothing was changed")


def followed(
    store: EventStore, stream: str, after: int, *, wait: Callable[[int], object], if_lost: str
) -> Iterator[Record]:
    """Yield the lines after a seq and then those that are appended; see `EventStore.follow`.

    Args:
        store: The engine.
        stream: The name of the stream.
        after: The seq.
        wait: Waits until there may be more lines than up to a seq, for a moment at most.
        if_lost: What is said, and what is to be done, where lines are missing that were returned before.

    Raises:
        StoreError: It could not be read.
        CorruptLogError: Lines that were returned before are missing.
    """
    seq, first = after, ""
    while True:
        # Before the lines are returned: the caller may remove the stream before it asks for more.
        first = first or first_hash(store, stream)
        for place, record in enumerate(store.read(stream, seq)):
            if place == 0 and store.is_removed(first):
                # It has begun anew since.
                return
            seq += 1
            yield record
        now = store.head(stream).seq
        if store.is_removed(first):
            return
        if now < seq:
            raise CorruptLogError(
                f"{stream} was read up to {seq} and now ends at {now}: {if_lost}",
                kind="missing",
                stream=stream,
                line=now + 1,
                byte=store.state(stream).size,
            )
        wait(seq)


def first_hash(store: EventStore, stream: str) -> str:
    """Return the hash of a stream's first line; "" without one."""
    records = store.read(stream)
    try:
        record = next(records, None)
    finally:
        if isinstance(records, Generator):
            # Closed here and not when it is dropped, where Python would ignore the interrupt that ends a `--follow`.
            records.close()
    return "" if record is None else hash_of(record.line)
