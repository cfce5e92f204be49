"""Turn log of a scope: the turns that stand, with one `TurnIndex` for each filter in use."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.projections.read_model import ReadModel
from backstory.projections.turns.follower import Gone, NewTurns, Seen, TurnFollower
from backstory.projections.turns.rows import Row, TurnView, Words
from backstory.projections.turns.turn_index import TurnIndex


class TurnFilter(msgspec.Struct, frozen=True):
    """What of a scope's turns is looked at: one thread's, equal words once, a number of the newest (0: all)."""

    thread: str | None = None
    ignore_id: bool = False
    bound: int = 0


class TurnQuery:
    """The turns that stand and pass a filter; see `TurnLog.look`."""

    def __init__(self, index: TurnIndex, turn_filter: TurnFilter) -> None:
        self._index = index
        self._filter = turn_filter
        self._since = index.cutoff(turn_filter.bound)

    def count(self) -> int:
        """Return how many turns there are."""
        count = len(self._index.all)
        return min(count, self._filter.bound) if self._filter.bound else count

    def newest(self, k: int = 0) -> list[TurnView]:
        """Return the newest `k` turns, or all for 0, in the order they were recorded."""
        if k == 0:
            return _said(self._index.all.since(self._since))
        return _said(self._index.all.newest(min(k, self._filter.bound) if self._filter.bound else k))

    def last(self) -> TurnView | None:
        """Return the newest turn."""
        row = self._index.all.last()
        return None if row is None else row.said

    def at(self, position: int) -> TurnView | None:
        """Return the turn at a position, from 0; None where there is none."""
        hidden = len(self._index.all) - self.count()
        row = self._index.all.at(position + hidden) if position >= 0 else None
        return None if row is None else row.said

    def of_id(self, turn_id: str) -> TurnView | None:
        """Return the newest turn of an id."""
        row = self._index.of_id(turn_id)
        return None if row is None or row.serial < self._since else row.said

    def of_role(self, role: str) -> list[TurnView]:
        """Return what was said in a role."""
        return _said(self._index.of_role(role, self._since))

    def of_actions(self, actions: Iterable[str]) -> list[TurnView]:
        """Return what was caused by any of some actions."""
        found = [self._index.of_action(action, self._since) for action in dict.fromkeys(actions)]
        if len(found) == 1:
            return _said(found[0])
        return _said(sorted((row for rows in found for row in rows), key=lambda row: row.serial))

    def addressed_to(self, name: str) -> list[TurnView]:
        """Return the turns addressed to a name, or to all."""
        return _said(self._index.addressed_to(name, self._since))

    def knows(self, turn_id: str | None, said: Words, *, thread: str | None = None, k: int = 0) -> bool:
        """Whether a message is among the newest `k` turns (0: all)."""
        row = self._index.known(turn_id, said, thread)
        return row is not None and row.serial >= max(self._since, self._index.cutoff(k))

    def known(self, turn_id: str | None, said: Words, *, thread: str | None = None) -> TurnView | None:
        """Return the newest turn that a message is."""
        row = self._index.known(turn_id, said, thread)
        return None if row is None or row.serial < self._since else row.said

    def one_with(self, said: TurnView) -> list[TurnView]:
        """Return what a turn is shown for: all that is one with it where ids are ignored, else itself alone."""
        return _said(self._index.like(said)) if self._filter.ignore_id else [said]


def _said(rows: Iterable[Row]) -> list[TurnView]:
    return [row.said for row in rows]


class _TurnIndexes:
    """The turns that the indexes of a scope are made of; `seen` is how much of the transcript they show."""

    def __init__(self) -> None:
        self.seen: Seen | None = None
        self._begin()

    def _begin(self) -> None:
        self._threads: dict[str, list[Row | None]] = {}
        self._indexes: dict[tuple[str | None, bool], TurnIndex] = {}
        self._serial = 0

    def take(self, news: NewTurns) -> None:
        """Bring all indexes up to date."""
        if news.anew:
            self._begin()
        for gone in news.drop:
            self._drop(gone)
        for said in news.put:
            self._put(said)
        self.seen = news.seen

    def _put(self, said: TurnView) -> None:
        self._serial += 1
        row = Row(self._serial, said)
        rows = self._threads.setdefault(said.thread, [])
        rows += [None] * (said.n - len(rows))
        rows[said.n - 1] = row
        for index in self._of(said.thread):
            index.add(row)

    def _drop(self, gone: Gone) -> None:
        rows = self._threads[gone.thread]
        row, rows[gone.n - 1] = rows[gone.n - 1], None
        if row is not None:
            row.stands = False
            for index in self._of(gone.thread):
                index.drop(row)

    def _of(self, name: str) -> list[TurnIndex]:
        return [index for (thread, _), index in self._indexes.items() if thread in (None, name)]

    def index(self, thread: str | None, *, ignore_id: bool) -> TurnIndex:
        """Return the index of a thread, or of all; it is made at the first request and kept up to date."""
        index = self._indexes.get((thread, ignore_id))
        if index is None:
            index = self._indexes[thread, ignore_id] = TurnIndex(self.standing(thread), ignore_id=ignore_id)
        return index

    def standing(self, thread: str | None) -> list[Row]:
        """Return the rows of a thread, or of all, in the order they were recorded."""
        threads = self._threads.values() if thread is None else (self._threads.get(thread, ()),)
        rows = [row for rows in threads for row in rows if row is not None]
        return sorted(rows, key=lambda row: row.serial)


class TurnLog(ReadModel):
    """A scope's turns that stand, in memory; safe for threads. A forked child makes another.

    With a `follower` they are those that it follows, else those of a follower of its own.
    """

    def __init__(self, store: EventStore, scope: Scope, follower: TurnFollower | None = None) -> None:
        self._follower = follower or TurnFollower(store, scope)
        self._mutex = threading.Lock()
        self._indexes = _TurnIndexes()

    def start_over(self) -> None:
        """Drop all that is held, even while it is in use; the next read starts at the first line."""
        self._follower.start_over()
        self._indexes = _TurnIndexes()

    @contextmanager
    def look(self, turn_filter: TurnFilter) -> Iterator[TurnQuery]:
        """Fold what this or another process has appended, and lend out what stands; nothing changes meanwhile.

        Raises:
            CorruptLogError: a log is damaged.
            StoreError: it cannot be read.
        """
        with self._mutex:
            index = self._caught_up().index(turn_filter.thread, ignore_id=turn_filter.ignore_id)
            yield TurnQuery(index, turn_filter)

    def standing(self, thread: str | None) -> list[TurnView]:
        """Return the turns of a thread, or of all, that stand, in the order they were recorded; raises as `look`."""
        with self._mutex:
            return _said(self._caught_up().standing(thread))

    def _caught_up(self) -> _TurnIndexes:
        # What is dropped meanwhile stays dropped: this read goes on with its own copy.
        indexes = self._indexes
        try:
            indexes.take(self._follower.since(indexes.seen))
        except BaseException:
            # They may show a part of it.
            self._indexes = _TurnIndexes()
            raise
        return indexes
