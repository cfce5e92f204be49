"""Promises that engines keep in the same way: what may follow a head or replace a line, and the order of locks."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.commit import Head, inspect
from backstory.ledger.core.errors import CorruptLogError, StoreError, WrongExpectedVersionError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT

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
