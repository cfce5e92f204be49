"""Facts by the turns that they cite: what a turn was understood to say, in other words than its own.

All facts count that the ledger ever learned, whether memory still holds them or they made room for others: a turn says
what it says. Those do not count that were taken out as wrong, by a model or a person, or were undone, or erased.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, assert_never

import msgspec

from backstory.ledger.core.commit import EMPTY, Commit, Head
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import (
    ErasureEvent,
    Fact,
    FactAdded,
    FactEvent,
    FactRemoved,
    FactRevised,
    Redacted,
    SectionEvent,
    SettingEvent,
    TurnEvent,
    UpdateEvent,
)
from backstory.ledger.core.kinds import RemovalReason
from backstory.ledger.core.memory import lapses
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits_and_ends

_NOT_WRONG: frozenset[RemovalReason] = frozenset({"stale", "consolidated", "cap", "threshold", "duplicate", "ended"})
"""Why a fact leaves memory that its turn says as before."""
_AS_TRUE: frozenset[RemovalReason] = _NOT_WRONG - {"ended"}
"""Why a fact leaves memory that is as true as before."""

_NEVER = "~"
"""Behind every time that there is."""

TurnId = tuple[str, str]
"""A thread, and the id of a turn there."""


class _Said(msgspec.Struct, frozen=True, array_like=True):
    """What of a fact counts: its text, and the moment from which it is true no more, if there is one."""

    content: str
    until: str | None


class CitedState(msgspec.Struct, frozen=True, array_like=True):
    """How far the ledger was read, and the commit of the transcript that memory was last cleared at."""

    edition: str
    head: Head = EMPTY
    end: int = 0
    cleared: int = 0


class CitedThread(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one thread: the facts that cite its turns, by their ids, and by turn the facts that are gone."""

    facts: list[tuple[str, _Said, tuple[str, ...]]]
    gone: list[tuple[str, list[str]]]


class KnownCited(Protocol):
    """What was known at a head of the ledger, to go on from."""

    state: CitedState
    threads: list[str]

    def part(self, thread: str) -> CitedThread:
        """Return what was known of a thread."""

    def threads_of(self, fact_id: str) -> Iterable[str]:
        """Return the thread whose turns a fact cites, if it cites any; there may be others."""


class CitedFacts:
    """Follows the ledger of a scope, from its first line or from what was known; not safe for threads.

    What was known is read when it is asked for, thread by thread.
    """

    def __init__(self, store: EventStore, scope: Scope, known: KnownCited | None = None) -> None:
        self._store = store
        self._ledger = scope.stream(LEDGER)
        self._begin("", known)

    def state(self) -> CitedState:
        """Return where this stands."""
        return CitedState(self._edition, self._head, self._end, self.cleared)

    def parts(self) -> dict[str, CitedThread]:
        """Return all that is known, by thread."""
        self._read_known(tuple(self._unread))
        parts: dict[str, CitedThread] = {}
        for fact_id, cites in self._cites.items():
            part = parts.setdefault(cites[0][0], CitedThread([], []))
            part.facts.append((fact_id, self._facts[cites[0]][fact_id], tuple(turn for _, turn in cites)))
        for (thread, turn), ids in self._gone.items():
            if ids:
                parts.setdefault(thread, CitedThread([], [])).gone.append((turn, sorted(ids)))
        return parts

    def _read_known(self, threads: Iterable[str]) -> None:
        """Take in what was known of threads, unless it was."""
        if self._known is None:
            return
        for thread in self._unread.intersection(threads):
            part = self._known.part(thread)
            for fact_id, said, turns in part.facts:
                self._cite(fact_id, said, tuple((thread, turn) for turn in turns))
            self._gone.update(((thread, turn), set(ids)) for turn, ids in part.gone)
            self._unread.discard(thread)

    def _begin(self, edition: str, known: KnownCited | None = None) -> None:
        state = CitedState(edition) if known is None else known.state
        self._edition, self._head, self._end = state.edition, state.head, state.end
        self._known = known
        self._unread: set[str] = set() if known is None else set(known.threads)
        """The threads of which nothing was taken in yet."""
        self._cites: dict[str, tuple[TurnId, ...]] = {}
        self._facts: dict[TurnId, dict[str, _Said]] = {}
        """By turn the facts that say what it says, by their ids."""
        self._gone: dict[TurnId, set[str]] = {}
        """By turn the ids of its facts that have ended, or were taken back."""
        self.cleared = state.cleared
        """The commit of the transcript that memory was last cleared at."""

    def of(self, thread: str, turn: str) -> tuple[str, ...]:
        """Return the texts of the facts that cite a turn, the oldest first."""
        self._read_known((thread,))
        return tuple(fact.content for fact in self._facts.get((thread, turn), {}).values())

    def ids(self, thread: str, turn: str) -> Collection[str]:
        """Return the ids of the facts that cite a turn, the oldest first."""
        self._read_known((thread,))
        return self._facts.get((thread, turn), {}).keys()

    def changed(self, thread: str, turn: str, now: str) -> bool:
        """Whether facts were learned from a turn of which none is true any more, as far as memory knows."""
        self._read_known((thread,))
        gone = self._gone.get((thread, turn), set())
        facts = self._facts.get((thread, turn), {})
        if not gone and not facts:
            return False
        return all(key in gone or (said.until or _NEVER) <= now for key, said in facts.items())

    def follow(self) -> Collection[TurnId]:
        """Read the ledger on; return the turns whose facts may have changed.

        Raises:
            CorruptLogError: A line is not what was written; then all that was known is let go of.
            StoreError: The ledger cannot be read.
        """
        # The edition first: what is read after it may be newer, never older.
        edition, head = self._store.state(self._ledger).edition, self._store.durable_head(self._ledger)
        if (edition, head) == (self._edition, self._head):
            return ()
        if edition == self._edition and head.seq > self._head.seq:
            try:
                return self._read(head)
            except CorruptLogError:
                # If it is damage, reading from the first line meets it again.
                pass
        self._read_known(tuple(self._unread))
        before = set(self._facts)
        self._begin(edition)
        try:
            return before | self._read(head)
        except BaseException:
            self._begin("")
            raise

    def _read(self, until: Head) -> set[TurnId]:
        changed: set[TurnId] = set()
        for commit, end in read_commits_and_ends(self._store, self._ledger, self._head, self._end, until):
            self._take(commit, changed)
            self._head, self._end = commit.head, end
        return changed

    def _take(self, commit: Commit, changed: set[TurnId]) -> None:
        if commit.cause.kind == "clear":
            self._read_known(tuple(self._unread))
            changed.update(self._facts)
            self._cites.clear()
            self._facts.clear()
            self.cleared = commit.cause.transcript.seq if commit.cause.transcript is not None else self.cleared
            return
        for event in commit.events:
            match event:
                case FactAdded(fact=fact) | FactRevised(after=fact):
                    self._drop(fact.id, changed)
                    self._put(fact, changed)
                case FactRemoved(fact=fact, reason=reason) if reason not in _AS_TRUE:
                    self._end_fact(fact.id)
                    if reason not in _NOT_WRONG:
                        self._drop(fact.id, changed)
                case Redacted(fact=str(fact_id)):
                    self._drop(fact_id, changed)
                case FactEvent() | SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
                    pass
                case _:
                    assert_never(event)

    def _put(self, fact: Fact, changed: set[TurnId]) -> None:
        cites = tuple((fact.source, turn) for turn in fact.evidence)
        if cites:
            self._read_known((fact.source,))
            self._cite(fact.id, _Said(fact.content, lapses(fact)), cites)
            changed.update(cites)
            for turn in cites:
                self._gone.get(turn, set()).discard(fact.id)

    def _cite(self, fact_id: str, said: _Said, cites: tuple[TurnId, ...]) -> None:
        self._cites[fact_id] = cites
        for turn in cites:
            self._facts.setdefault(turn, {})[fact_id] = said

    def _read_of(self, fact_id: str) -> None:
        if self._known is not None:
            self._read_known(self._known.threads_of(fact_id))

    def _end_fact(self, fact_id: str) -> None:
        self._read_of(fact_id)
        for turn in self._cites.get(fact_id, ()):
            self._gone.setdefault(turn, set()).add(fact_id)

    def _drop(self, fact_id: str, changed: set[TurnId]) -> None:
        self._read_of(fact_id)
        for turn in self._cites.pop(fact_id, ()):
            changed.add(turn)
            facts = self._facts[turn]
            facts.pop(fact_id, None)
            if not facts:
                del self._facts[turn]
