"""Following of a stream, for engines that can read what is new and wait until there may be more."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from backstory.ledger.core.commit import hash_of
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.engines.port import EventStore, Record

__all__ = ["first_hash", "followed", "lost_lines"]


def followed(
    store: EventStore, stream: str, after: int, *, wait: Callable[[], object], if_lost: str
) -> Iterator[Record]:
    """Yield the lines after a seq and then those that are appended; see `EventStore.follow`.

    Args:
        store: The engine.
        stream: The name of the stream.
        after: The seq.
        wait: Waits until there may be more lines, for a moment at most.
        if_lost: What is said, and what is to be done, where lines are missing that were returned before.

    Raises:
        StoreError: It could not be read.
        CorruptLogError: Lines that were returned before are missing.
    """
    seq, first = after, ""
    while True:
        # Before the lines are returned: the caller may remove the stream before it asks for more.
        if not first:
            first = first_hash(store, stream)
        elif store.is_removed(first):
            return
        for record in store.read(stream, seq):
            seq += 1
            yield record
        now = store.head(stream).seq
        if now < seq and not store.is_removed(first):
            raise lost_lines(store, stream, seq, now, if_lost)
        wait()


def lost_lines(store: EventStore, stream: str, seq: int, now: int, if_lost: str) -> CorruptLogError:
    """Return the error for a stream that was read up to a seq and now ends before it; see `followed`."""
    return CorruptLogError(
        f"{stream} was read up to {seq} and now ends at {now}: {if_lost}",
        kind="missing",
        stream=stream,
        line=now + 1,
        byte=store.state(stream).size,
    )


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
