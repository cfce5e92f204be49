"""Looks at several streams: with one question where the engine answers it, else stream by stream."""

from __future__ import annotations

from collections.abc import Sequence

from backstory.ledger.log.store import AnswersTogether, EventStore, StreamLook

__all__ = ["looks_at"]


def looks_at(store: EventStore, streams: Sequence[str]) -> Sequence[StreamLook]:
    """Return what there is to be seen of each stream, in order; see `AnswersTogether.looks`.

    Raises:
        StoreError: it could not be read.
        CorruptLogError: the last line of one is not what was written.
    """
    if isinstance(store, AnswersTogether):
        return store.looks(streams)
    return [
        # The size last: it is never that of fewer lines than the heads.
        StreamLook(store.head(stream), store.durable_head(stream), store.edition(stream), store.size(stream))
        for stream in streams
    ]
