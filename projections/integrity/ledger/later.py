"""References of later commits to earlier ones, read before the ledger is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backstory.ledger.core.commit import UNREADABLE, Commit, decode
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.events import (
    Redacted,
)
from backstory.ledger.engines.port import EventStore

_UNDO_OR_REDACTION = re.compile(rb'\{"v":\d+,"seq":\d+,"at":"[^"]*","cause":\{"kind":"(?:redaction|revert|rollback)"')


class LaterReferences:
    """References of later commits to earlier ones: the subjects of stubs, and the commits that are undone."""

    def __init__(self, store: EventStore, stream: str) -> None:
        self._erased: dict[tuple[int, int], tuple[str | None, str | None]] = {}
        self.reverted: dict[int, int] = {}
        """The last revert of each commit that is reverted."""
        self.returned_to: dict[int, int] = {}
        names: dict[str | None, str | None] = {}
        for commit in _undos_and_redactions(store, stream):
            target = commit.cause.target
            if target is not None and commit.cause.kind == "revert":
                self.reverted[target] = commit.seq
            elif target is not None and commit.cause.kind == "rollback":
                self.returned_to[target] = commit.seq
            for event in commit.events:
                if isinstance(event, Redacted) and event.stream == stream and event.seq < commit.seq:
                    subject = (names.setdefault(event.fact, event.fact), names.setdefault(event.section, event.section))
                    self._erased.setdefault((event.seq, event.index), subject)

    def subject(self, seq: int, index: int) -> tuple[str | None, str | None] | None:
        """Return the fact and the section of an erased event, or None where no redaction names it."""
        return self._erased.get((seq, index))


def _undos_and_redactions(store: EventStore, stream: str) -> Iterator[Commit]:
    """Yield the redactions and undos; the stream check reports lines that cannot be read."""
    for record in store.read(stream):
        if _UNDO_OR_REDACTION.match(record.line) is not None:
            try:
                yield decode(record.line)
            except (*UNREADABLE, StoreError):
                continue
