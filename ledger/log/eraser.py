"""Execution of an erasure plan.

The redaction is appended to the ledger first, so any process can complete an erasure that was interrupted. Lines that
lose content are then replaced by lines with stubs, as `EventStore.redact` requires.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from backstory.ledger.core.commit import EMPTY, Head, erase, inspect, unseal
from backstory.ledger.core.events import Redacted
from backstory.ledger.log.store import EventStore

__all__ = ["unfinished"]


def unfinished(store: EventStore, streams: Iterable[str], redacted: Iterable[Redacted]) -> dict[str, dict[int, bytes]]:
    """Return, by stream and seq, the lines that hold what was redacted, each with stubs in its place.

    Raises:
        CorruptLogError: a stream is damaged; nothing in it is replaced before that is mended.
    """
    wanted: dict[str, dict[int, set[int]]] = {stream: defaultdict(set) for stream in streams}
    for event in redacted:
        if event.stream in wanted:
            wanted[event.stream][event.seq].add(event.index)
    return {stream: _stubs(store, stream, places) for stream, places in wanted.items()}


def _stubs(store: EventStore, stream: str, places: dict[int, set[int]]) -> dict[int, bytes]:
    lines: dict[int, bytes] = {}
    head: Head = EMPTY
    for record in store.read(stream) if places else ():
        commit = unseal(record.line, head, stream=stream, byte=record.byte)
        head = commit.head
        left = places.get(commit.seq, set()) - set(inspect(record.line).erased)
        left = {index for index in left if 0 <= index < len(commit.events)}
        if left:
            lines[commit.seq] = erase(record.line, left)
    return lines
