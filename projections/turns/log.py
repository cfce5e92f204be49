"""Turn log of a scope: the turns that stand, with one index for each filter in use.

A `TurnIndex` finds turns by position, id, words, role, cause and addressee.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.projections.read_model import ReadModel
from backstory.projections.turns.follower import Gone, NewTurns, Seen, TurnFollower
from backstory.projections.turns.rows import MessageWords, Series, TurnRow, TurnView, same_words, words_of

TO_ALL = "<all>"
"""To whom a message is addressed that is for everybody: MetaGPT's word for it, and what an empty list means."""


class TurnIndex:
    """The turns of a scope or of one thread that stand, in all the orders they are asked for in.

    With `ignore_id` those that are one but for their ids are shown once, as the oldest of them that stands. Not safe
    for threads.
    """

    def __init__(self, rows: Iterable[TurnRow] = (), *, ignore_id: bool = False) -> None:
        self._ignore_id = ignore_id
        self.all = Series()
        self.roles: defaultdict[str, Series] = defaultdict(Series)
        self.actions: defaultdict[str, Series] = defaultdict(Series)
        self.addresses: defaultdict[str, Series] = defaultdict(Series)
        self._ids: dict[str, Series | TurnRow] = {}
        self._words: defaultdict[int, Series] | None = defaultdict(Series) if ignore_id else None
        """Built when a message without an id is first compared."""
        for row in rows:
            self.add(row)

    # What happens.

    def add(self, row: TurnRow) -> None:
        """Take a turn in that was recorded after all others."""
        if self._words is not None:
            twin = self._twin(row.said) if self._ignore_id else None
            self._words[words_of(row.said)].append(row)
            if twin is not None:
                return
        self._show(row, Series.append)

    def drop(self, row: TurnRow) -> None:
        """Let go of a turn that has just ceased to stand."""
        heir = None
        if self._words is not None:
            twins = self._words[words_of(row.said)]
            twins.drop()
            if not twins:
                del self._words[words_of(row.said)]
            if self._ignore_id:
                heir = self._twin(row.said)
                if heir is not None and heir.serial < row.serial:
                    # It was not shown.
                    return
        self.all.drop()
        for series in self._places(row.said):
            series.drop()
        known = self._ids[row.said.id]
        if isinstance(known, Series):
            known.drop()
        else:
            del self._ids[row.said.id]
        if heir is not None:
            self._show(heir, Series.insert)

    def _show(self, row: TurnRow, put: Callable[[Series, TurnRow], None]) -> None:
        """Put a turn into all series: at the end, or, if it stood behind another with the same words, at its place."""
        put(self.all, row)
        for series in self._places(row.said):
            put(series, row)
        known = self._ids.setdefault(row.said.id, row)
        if isinstance(known, Series):
            put(known, row)
        elif known is not row:
            both = self._ids[row.said.id] = Series()
            put(both, known)
            put(both, row)

    def _places(self, said: TurnView) -> list[Series]:
        """The series that a turn is in."""
        places = [self.roles[said.role]]
        if said.cause_by is not None:
            places.append(self.actions[said.cause_by])
        places += [self.addresses[name] for name in _addresses(said)]
        return places

    def _twin(self, said: MessageWords) -> TurnRow | None:
        """The oldest turn with the same words that stands."""
        known = self._by_words().get(words_of(said))
        first = None if known is None else known.first()
        if known is None or first is None or same_words(first.said, said):
            return first
        return next((row for row in known.since(first.serial) if same_words(row.said, said)), None)

    # What is asked.

    def cutoff(self, newest: int) -> int:
        """Return the serial of the first of the `k` newest turns; 0 where that is all of them, and for 0."""
        first = self.all.from_end(newest) if newest else None
        return 0 if first is None else first.serial

    def of_id(self, turn_id: str) -> TurnRow | None:
        """Return the newest turn of an id."""
        known = self._ids.get(turn_id)
        return known.last() if isinstance(known, Series) else known

    def like(self, said: MessageWords) -> list[TurnRow]:
        """Return the turns that are one with a message but for their ids, also those that stand behind another."""
        known = self._by_words().get(words_of(said))
        return [] if known is None else [row for row in known.since() if same_words(row.said, said)]

    def known(self, turn_id: str | None, said: MessageWords, thread: str | None) -> TurnRow | None:
        """Return the newest turn that a message is: by its id and text; by its words where it has, or needs, no id.

        Without a `thread` it may be of any.
        """
        if self._ignore_id:
            return self._twin(said)
        if turn_id is None:
            alike = self._by_words().get(words_of(said))
            rows: Iterator[TurnRow] = iter(()) if alike is None else alike.backwards()
            return next((row for row in rows if _of(row, thread) and same_words(row.said, said)), None)
        known = self._ids.get(turn_id)
        rows = iter(()) if known is None else iter((known,)) if isinstance(known, TurnRow) else known.backwards()
        words = (said.role, said.content)
        return next((row for row in rows if _of(row, thread) and (row.said.role, row.said.content) == words), None)

    def _by_words(self) -> defaultdict[int, Series]:
        if self._words is None:
            self._words = defaultdict(Series)
            for row in self.all.since():
                self._words[words_of(row.said)].append(row)
        return self._words


def _of(row: TurnRow, thread: str | None) -> bool:
    return thread is None or row.said.thread == thread


def _addresses(said: TurnView) -> tuple[str, ...]:
    if not said.send_to:
        return (TO_ALL,)
    # Each addressee once.
    return said.send_to if len(said.send_to) == 1 else tuple(dict.fromkeys(said.send_to))


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
        return self._under(self._index.roles, (role,))

    def of_actions(self, actions: Iterable[str]) -> list[TurnView]:
        """Return what was caused by any of some actions."""
        return self._under(self._index.actions, actions)

    def addressed_to(self, name: str) -> list[TurnView]:
        """Return the turns addressed to a name, or to all."""
        return self._under(self._index.addresses, (name, TO_ALL))

    def _under(self, by: Mapping[str, Series], keys: Iterable[str]) -> list[TurnView]:
        """Return the turns under some keys, each once, in the order they were recorded."""
        found = [rows for key in dict.fromkeys(keys) if key in by and (rows := by[key].since(self._since))]
        if len(found) == 1:
            return _said(found[0])
        merged = {row.serial: row for rows in found for row in rows}
        return [merged[serial].said for serial in sorted(merged)]

    def knows(self, turn_id: str | None, said: MessageWords, *, thread: str | None = None, k: int = 0) -> bool:
        """Whether a message is among the newest `k` turns (0: all)."""
        row = self._index.known(turn_id, said, thread)
        return row is not None and row.serial >= max(self._since, self._index.cutoff(k))

    def known(self, turn_id: str | None, said: MessageWords, *, thread: str | None = None) -> TurnView | None:
        """Return the newest turn that a message is."""
        row = self._index.known(turn_id, said, thread)
        return None if row is None or row.serial < self._since else row.said

    def one_with(self, said: TurnView) -> list[TurnView]:
        """Return what a turn is shown for: all that is one with it where ids are ignored, else itself alone."""
        return _said(self._index.like(said)) if self._filter.ignore_id else [said]


def _said(rows: Iterable[TurnRow]) -> list[TurnView]:
    return [row.said for row in rows]


class _TurnIndexes:
    """The turns that the indexes of a scope are made of; `seen` is how much of the transcript they show."""

    def __init__(self) -> None:
        self.seen: Seen | None = None
        self._begin()

    def _begin(self) -> None:
        self._threads: dict[str, list[TurnRow | None]] = {}
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
        row = TurnRow(self._serial, said)
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

    def standing(self, thread: str | None) -> list[TurnRow]:
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
            CorruptLogError: A log is damaged.
            StoreError: It cannot be read.
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
