"""Index of turns: by position, id, words, role, cause and addressee."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from backstory.projections.turns.rows import Row, Series, TurnView, Words, same_words, words_of

TO_ALL = "<all>"
"""To whom a message is addressed that is for everybody: MetaGPT's word for it, and what an empty list means."""


class TurnIndex:
    """The turns of a scope or of one thread that stand, in all the orders they are asked for in.

    With `ignore_id` those that are one but for their ids are shown once, as the oldest of them that stands. Not safe
    for threads.
    """

    def __init__(self, rows: Iterable[Row] = (), *, ignore_id: bool = False) -> None:
        self._ignore_id = ignore_id
        self.all = Series()
        self._roles: defaultdict[str, Series] = defaultdict(Series)
        self._actions: defaultdict[str, Series] = defaultdict(Series)
        self._addresses: defaultdict[str, Series] = defaultdict(Series)
        self._ids: dict[str, Series | Row] = {}
        self._words: defaultdict[int, Series] | None = defaultdict(Series) if ignore_id else None
        """Built when a message without an id is first compared."""
        for row in rows:
            self.add(row)

    # What happens.

    def add(self, row: Row) -> None:
        """Take a turn in that was recorded after all others."""
        if self._words is not None:
            twin = self._twin(row.said) if self._ignore_id else None
            self._words[words_of(row.said)].append(row)
            if twin is not None:
                return
        self._show(row, Series.append)

    def drop(self, row: Row) -> None:
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

    def _show(self, row: Row, put: Callable[[Series, Row], None]) -> None:
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
        places = [self._roles[said.role]]
        if said.cause_by is not None:
            places.append(self._actions[said.cause_by])
        places += [self._addresses[name] for name in _addresses(said)]
        return places

    def _twin(self, said: Words) -> Row | None:
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

    def of_role(self, role: str, since: int) -> list[Row]:
        """Return what a role said, from a serial on."""
        return _rows(self._roles, role, since)

    def of_action(self, action: str, since: int) -> list[Row]:
        """Return what an action caused."""
        return _rows(self._actions, action, since)

    def addressed_to(self, name: str, since: int) -> list[Row]:
        """Return the turns addressed to a name, or to all."""
        for_all = _rows(self._addresses, TO_ALL, since)
        by_name = [] if name == TO_ALL else _rows(self._addresses, name, since)
        if not (for_all and by_name):
            return for_all or by_name
        return sorted({row.serial: row for row in (*for_all, *by_name)}.values(), key=lambda row: row.serial)

    def of_id(self, turn_id: str) -> Row | None:
        """Return the newest turn of an id."""
        known = self._ids.get(turn_id)
        return known.last() if isinstance(known, Series) else known

    def like(self, said: Words) -> list[Row]:
        """Return the turns that are one with a message but for their ids, also those that stand behind another."""
        known = self._by_words().get(words_of(said))
        return [] if known is None else [row for row in known.since() if same_words(row.said, said)]

    def known(self, turn_id: str | None, said: Words, thread: str | None) -> Row | None:
        """Return the newest turn that a message is: by its id and text; by its words where it has, or needs, no id.

        Without a `thread` it may be of any.
        """
        if self._ignore_id:
            return self._twin(said)
        if turn_id is None:
            alike = self._by_words().get(words_of(said))
            rows: Iterator[Row] = iter(()) if alike is None else alike.backwards()
            return next((row for row in rows if _of(row, thread) and same_words(row.said, said)), None)
        known = self._ids.get(turn_id)
        rows = iter(()) if known is None else iter((known,)) if isinstance(known, Row) else known.backwards()
        words = (said.role, said.content)
        return next((row for row in rows if _of(row, thread) and (row.said.role, row.said.content) == words), None)

    def _by_words(self) -> defaultdict[int, Series]:
        if self._words is None:
            self._words = defaultdict(Series)
            for row in self.all.since():
                self._words[words_of(row.said)].append(row)
        return self._words


def _of(row: Row, thread: str | None) -> bool:
    return thread is None or row.said.thread == thread


def _addresses(said: TurnView) -> tuple[str, ...]:
    if not said.send_to:
        return (TO_ALL,)
    # Each addressee once.
    return said.send_to if len(said.send_to) == 1 else tuple(dict.fromkeys(said.send_to))


def _rows(by: dict[str, Series], key: str, since: int) -> list[Row]:
    known = by.get(key)
    return [] if known is None else known.since(since)
