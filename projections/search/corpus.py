"""Corpus of a scope: its live facts and the turns that stand, as entries that can be found.

Both follow what they are taken from: facts by the events since the last memory seen, or by comparing it with the newest
one; turns by asking the follower of the transcript what is new. What they hand out is what an index has to do to be up
with them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, TypeAlias, TypeVar, assert_never

import msgspec

from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import (
    ErasureEvent,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    Redacted,
    SectionEvent,
    SettingEvent,
    TurnEvent,
    UpdateEvent,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits_and_ends
from backstory.projections.search.lexical.entry import Entry, key_at
from backstory.projections.turns import FollowerOrigin, NewTurns, Seen, TurnFollower, TurnView

if TYPE_CHECKING:
    from backstory.projections.search.on_disk.stored_turns import StoredTurns

_T = TypeVar("_T")

_DAY = 10
"""Characters of a time that give its day."""

LATEST = "~"
"""Behind every time that there is."""

_MOST_COMMITS = 1_000
"""Commits that are read. To compare the memories takes less time than to read more."""


class IndexChange(msgspec.Struct, frozen=True):
    """What an index has to drop, and then to add or replace; where `anew`, it has to begin empty."""

    put: Sequence[Entry] = ()
    drop: Sequence[str] = ()
    anew: bool = False


class FactFilter:
    """Facts by category, by source and by day, so that a narrow search does not scan all; not safe for threads."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._categories: dict[str, dict[str, Fact]] = {}
        self._sources: dict[str, dict[str, Fact]] = {}
        self._days: dict[str, dict[str, Fact]] = {}
        for fact in facts:
            self.put(fact)

    def _places(self, fact: Fact) -> Iterator[tuple[dict[str, dict[str, Fact]], str]]:
        yield self._categories, fact.category.casefold()
        yield self._sources, fact.source
        yield self._days, fact.created_at[:_DAY]

    def put(self, fact: Fact) -> None:
        """File a fact that is not."""
        for files, name in self._places(fact):
            files.setdefault(name, {})[fact.id] = fact

    def drop(self, fact: Fact) -> None:
        """Take a fact out that was filed as it is."""
        for files, name in self._places(fact):
            del files[name][fact.id]
            if not files[name]:
                del files[name]

    def smallest(
        self, category: str | None, source: str | None, since: str | None, until: str | None
    ) -> list[Mapping[str, Fact]]:
        """Return files that hold all of a category and source, from `since` on and before `until`, and other facts.

        They are those that hold the fewest by one of these alone; None bounds nothing. They are for reading only, and
        go on changing.
        """
        choices: list[list[Mapping[str, Fact]]] = []
        if category is not None:
            choices.append([self._categories.get(category, {})])
        if source is not None:
            choices.append([self._sources.get(source, {})])
        first, last = (since or "")[:_DAY], (until or LATEST)[:_DAY]
        if since is not None or until is not None or not choices:
            choices.append([ids for day, ids in self._days.items() if first <= day <= last])
        return min(choices, key=lambda files: sum(map(len, files)))


class LiveFacts:
    """The live facts of one memory; not safe for threads.

    With `indexed`, the contents of facts that are in an index already, the first memory is compared with these.
    """

    def __init__(self, indexed: Mapping[str, str] | None = None) -> None:
        self._memory = Memory()
        self._indexed = indexed
        self._filed: FactFilter | None = None

    @property
    def live(self) -> Mapping[str, Fact]:
        """The facts by their ids."""
        return self._memory.facts

    def filed(self) -> FactFilter:
        """Return the facts in files; made when they are first asked for, and kept up from then on."""
        if self._filed is None:
            self._filed = FactFilter(self.live.values())
        return self._filed

    def follow(self, memory: Memory, events: Iterable[Event] | None = None) -> IndexChange:
        """Go on to another memory, mostly a later one.

        Args:
            memory: the memory.
            events: all events between the two memories; None: they are not known, and the memories are compared.
        """
        before, now = self._memory.facts, memory.facts
        self._memory = memory
        if self._indexed is not None:
            drop, others, fresh = _compared(self._indexed, now, _differs)
            self._indexed = None
            return IndexChange([fact_entry(now[key]) for key in (*others, *fresh)], drop)
        if now is before:
            return IndexChange()
        told = None if events is None else _told(before, now, events)
        # A fact that nothing has happened to is the same object, mostly.
        drop, others, fresh = _compared(before, now, operator.is_not) if told is None else told
        put = [key for key in others if before[key].content != now[key].content]
        if self._filed is not None:
            for key in (*drop, *others):
                self._filed.drop(before[key])
            for key in (*others, *fresh):
                self._filed.put(now[key])
        return IndexChange([fact_entry(now[key]) for key in (*put, *fresh)], drop, anew=not before)


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
        if not before.seq or not before.seq < head.seq <= before.seq + _MOST_COMMITS:
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


_Differences: TypeAlias = tuple[list[str], list[str], list[str]]
"""The facts that went, those that are others now in their place, and those that came, in their order."""


def _told(before: Mapping[str, Fact], now: Mapping[str, Fact], events: Iterable[Event]) -> _Differences | None:
    """The differences of two memories as events state them; None where the memories differ in more than that."""
    drop: dict[str, None] = {}
    others: dict[str, None] = {}
    fresh: dict[str, None] = {}
    for event in events:
        match event:
            case FactAdded(fact=fact) | FactRevised(after=fact):
                stands = fact.id in before and fact.id not in drop
                (others if stands else fresh)[fact.id] = None
            case FactRemoved(fact=Fact(id=gone)) | Redacted(fact=str(gone)):
                fresh.pop(gone, None)
                others.pop(gone, None)
                if gone in before:
                    drop[gone] = None
            case SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
                pass
            case _:
                assert_never(event)
    if len(now) != len(before) - len(drop) + len(fresh) or not all(key in now for key in (*others, *fresh)):
        return None
    return list(drop), list(others), list(fresh)


def _differs(content: str, fact: Fact) -> bool:
    return content != fact.content


def _compared(before: Mapping[str, _T], now: Mapping[str, Fact], differs: Callable[[_T, Fact], bool]) -> _Differences:
    """The differences of the facts of any two memories; `differs` compares two of one id."""
    order, held = list(now), list(before)
    drop: list[str] = []
    # There may be very many facts, and mostly all that was there is there, with one more behind it.
    if order[: len(held)] != held:
        drop = [key for key in held if key not in now]
        held = [key for key in held if key in now]
        # An index orders what is equal by when it came; what was brought back comes last, as in the memory.
        moved = next((place for place, pair in enumerate(zip(held, order, strict=False)) if pair[0] != pair[1]), None)
        if moved is not None:
            drop += held[moved:]
            del held[moved:]
    olds = before.values() if len(held) == len(before) else map(before.__getitem__, held)
    others = list(compress(held, map(differs, olds, now.values())))
    return drop, others, order[len(held) :]


def fact_entry(fact: Fact) -> Entry:
    """What of a fact can be found."""
    return Entry(key=fact.id, text=fact.content)


def turn_entry(said: TurnView) -> Entry:
    """What of a turn can be found."""
    key = key_at(said.thread, said.n)
    return Entry(
        key=key, text=said.content, speaker=said.name or said.role, group=said.thread, order=said.n, at=said.at
    )


class _Standing(Mapping[str, TurnView]):
    """Turns that are stored and those that came since."""

    def __init__(self, stored: StoredTurns, fresh: Mapping[str, TurnView]) -> None:
        self._stored = stored
        self._fresh = fresh

    def __getitem__(self, key: str) -> TurnView:
        said = self._fresh.get(key)
        return self._stored[key] if said is None else said

    def __contains__(self, key: object) -> bool:
        return key in self._fresh or key in self._stored

    def __iter__(self) -> Iterator[str]:
        yield from self._stored
        yield from self._fresh

    def __len__(self) -> int:
        return len(self._stored) + len(self._fresh)


class StandingTurns:
    """The turns of a scope that stand; not safe for threads.

    With a `follower` they are those that it follows, else those of a follower of its own. With `stored` they are these
    and those that came since, until a change needs all of them.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        follower: TurnFollower | None = None,
        stored: StoredTurns | None = None,
    ) -> None:
        self._store, self._scope = store, scope
        self._whole = self._follower = follower or TurnFollower(store, scope)
        self._seen: Seen | None = None
        self.stored: StoredTurns | None = None
        """The turns that are in the file of the index by words."""
        self._begin()
        if stored is not None:
            self.stored = stored
            self._follower = TurnFollower(store, scope, stored)
            self._seen = self._follower.at_first()

    def start_over(self) -> None:
        """Drop everything; the next call returns it anew."""
        self._follower = self._whole
        self._seen = None
        self._begin()

    def _begin(self) -> None:
        self.stored = None
        self.fresh: dict[str, TurnView] = {}
        """The others."""
        self._threads: dict[str, dict[str, TurnView]] = {}

    @property
    def standing(self) -> Mapping[str, TurnView]:
        """The turns by key, as they were said."""
        return self.fresh if self.stored is None else _Standing(self.stored, self.fresh)

    def origin(self) -> FollowerOrigin | None:
        """Where another can go on from; None if the transcript was read further for others."""
        return None if self._seen is None else self._follower.origin(self._seen)

    def before(self, said: TurnView) -> TurnView | None:
        """Return the turn before another in its thread, where it stands."""
        return self.standing.get(key_at(said.thread, said.n - 1))

    def of(self, thread: str) -> Mapping[str, TurnView]:
        """One thread's turns by key, but for those that are stored."""
        return self._threads.get(thread, {})

    def named(self, turns: Iterable[tuple[str, str]]) -> Iterator[Entry]:
        """Yield the turns that stand of these threads and ids."""
        ids: dict[str, set[str]] = {}
        for thread, turn in turns:
            ids.setdefault(thread, set()).add(turn)
        for thread, some in ids.items():
            if self.stored is not None:
                yield from (turn_entry(said) for said in self.stored.of(thread) if said.id in some)
            yield from (turn_entry(said) for said in self.of(thread).values() if said.id in some)

    def entries(self) -> Iterator[Entry]:
        """Yield all of them, each thread whole and in order."""
        if self.stored is not None:
            whole = StandingTurns(self._store, self._scope, self._whole)
            whole.follow()
            yield from whole.entries()
            return
        for thread in self._threads.values():
            yield from map(turn_entry, thread.values())

    def follow(self, until: Head | None = None) -> IndexChange:
        """Go on to a head of the transcript that a writer has vouched for, or as far as it is durable.

        Raises:
            CorruptLogError: A line is not what was written.
            StoreError: A stream cannot be read.
        """
        try:
            return self._take(self._follower.since(self._seen, until))
        except BaseException:
            # A part of it was taken in and never returned.
            self.start_over()
            raise

    def _take(self, news: NewTurns) -> IndexChange:
        if news.anew:
            self._begin()
        drop = [key_at(gone.thread, gone.n) for gone in news.drop]
        for key in drop:
            if key in self.fresh:
                del self._threads[self.fresh.pop(key).thread][key]
            elif self.stored is not None:
                self.stored.drop(key)
        put = [turn_entry(said) for said in news.put]
        for entry, said in zip(put, news.put, strict=True):
            self.fresh[entry.key] = said
            self._threads.setdefault(said.thread, {})[entry.key] = said
        self._seen = news.seen
        return IndexChange(put, drop, anew=news.anew)
