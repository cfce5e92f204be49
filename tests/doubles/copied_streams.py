"""Streams to copy between two stores, and what a copy holds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from backstory.ledger.core.errors import SealedError
from backstory.ledger.engines.copying import CopiedStreams, copy_streams
from backstory.ledger.engines.port import EventStore
from backstory.testing.conformance import lines_of
from backstory.testing.lines import chain, endless_chain, erase, fill

USERS = ("users/ada/ledger", "users/ada/transcript", "users/ada/agents/coder/ledger", "users/al/ledger", "transcript")


def write(store: EventStore, *, erased: bool = True) -> None:
    """Streams of several lengths, one with an erased event, a secret, and the mark of a removed user."""
    for number, stream in enumerate(USERS):
        fill(store, stream, chain(3 + number, text=stream))
    if erased:
        with store.locked("users/al/ledger"):
            store.redact("users/al/ledger", {2: erase(lines_of(store, "users/al/ledger")[1], 0)})
    store.key("users/ada/transcript", create=True)
    fill(store, "users/gone/ledger", chain(2, text="gone"))
    store.remove("users/gone")


def contents(store: EventStore) -> Mapping[str, object]:
    found: dict[str, object] = {stream: (lines_of(store, stream), store.key(stream)) for stream in store.streams()}
    return {**found, "removed": list(store.removed_logs())}


def copy(source: EventStore, target: EventStore) -> CopiedStreams:
    return copy_streams(source, target, lambda _done, _total: None)


def grow(store: EventStore, stream: str) -> None:
    head = store.head(stream)
    store.append(stream, [next(endless_chain(head, "later"))], head.seq)


def takes_changes(store: EventStore) -> bool:
    if store.seal() is not None:
        with pytest.raises(SealedError):
            grow(store, "users/ada/ledger")
        return False
    return True
