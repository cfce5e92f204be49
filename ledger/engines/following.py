"""Following of a stream, for engines that can read what is new and wait until there may be more."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from backstory.ledger.core.commit import hash_of
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.engines.port import EventStore, Record

__all__ = ["first_hash", "followed"]


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
