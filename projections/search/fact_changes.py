"""Changes of facts: what a ledger says happened to them between two heads, so that no two memories are compared."""

from __future__ import annotations

from collections.abc import Sequence

from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import Event
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits_and_ends

_MOST = 1_000
"""Commits that are read. To compare the memories takes less time than to read more."""


class FactChanges:
    """Reads the events of a ledger on from the head that was asked for last; not safe for threads."""

    def __init__(self, store: EventStore, scope: Scope) -> None:
        self._store = store
        self._ledger = scope.stream(LEDGER)
        self.head, self._end = EMPTY, 0
        """The head that was asked for last."""

    def until(self, head: Head) -> Sequence[Event] | None:
        """Return the events after the head of the last call up to another; None where they are not known.

        Raises:
            StoreError: The ledger cannot be read.
        """
        before, begin = self.head, self._end
        if head == before:
            return ()
        # It is the end only where nothing was written since; the store searches for a line that is not where it says.
        self.head, self._end = head, self._store.state(self._ledger).size
        if not before.seq or not before.seq < head.seq <= before.seq + _MOST:
            return None
        events: list[Event] = []
        try:
            for commit, end in read_commits_and_ends(self._store, self._ledger, before, begin, until=head):
                events.extend(commit.events)
                before, self._end = commit.head, end
        except CorruptLogError:
            # The ledger may be another one. If it is damage, reading the memory meets it.
            return None
        return events if before == head else None
