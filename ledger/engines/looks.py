"""Looks at several streams: with one question where the engine answers it, else stream by stream."""

from __future__ import annotations

from collections.abc import Sequence

from backstory.ledger.engines.port import EventStore, StreamLook

__all__ = ["looks_at", "sizes_of"]


def looks_at(store: EventStore, streams: Sequence[str]) -> Sequence[StreamLook]:
    """Return what there is to be seen of each stream, in order; see `Capabilities.looks`.

    Raises:
        StoreError: It could not be read.
        CorruptLogError: The last line of one is not what was written.
    """
    looks = store.capabilities().looks
    if looks is not None:
        return looks(streams)
    return [
        # The size last: it is never that of fewer lines than the heads.
        StreamLook(store.head(stream), store.durable_head(stream), store.edition(stream), store.size(stream))
        for stream in streams
    ]


def sizes_of(store: EventStore, streams: Sequence[str]) -> Sequence[int]:
    """Return the size of each stream in bytes, in order; see `EventStore.size`.

    Raises:
        StoreError: It could not be read.
    """
    looks = store.capabilities().looks
    if looks is not None:
        return [look.size for look in looks(streams)]
    return list(map(store.size, streams))
