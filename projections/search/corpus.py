"""What of a scope can be found: its live facts, and the turns that stand in its transcript.

Both follow what they are taken from: facts by comparing one memory with the last one seen, turns by reading the stream
on from where it was read last. What they hand out is what an index has to do to be up with them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress

import msgspec

from ledger.commit import EMPTY, Commit, Head, prev_of, unseal
from ledger.errors import CorruptLogError
from ledger.events import Fact, Redacted, Turn, TurnRecorded, TurnSuperseded
from ledger.memory import Memory
from ledger.scope import LEDGER, TRANSCRIPT, Scope
from ledger.store import EventStore
from projections.search.lexical import Entry

__all__ = ["Change", "Facts", "Said", "Turns", "fact_entry", "turn_entry"]

_REDACTED = b'"Redacted"'
"""What stands in every line of the ledger that tells of an erasure, and in few others."""


class Change(msgspec.Struct, frozen=True):
    """What an index has to drop, and then to add or replace; where `anew`, it has to begin empty."""

    put: Sequence[Entry] = ()
    drop: Sequence[str] = ()
    anew: bool = False


class Facts:
    """The live facts of one memory; not safe for threads."""

    def __init__(self) -> None:
        self._memory = Memory()

    @property
    def live(self) -> Mapping[str, Fact]:
        """The facts by their ids."""
        return self._memory.facts

    def follow(self, memory: Memory) -> Change:
        """Go on to another memory, mostly a later one."""
        before, now = self._memory.facts, memory.facts
        self._memory = memory
        if now is before:
            return Change()
        order, held = list(now), list(before)
        drop: list[str] = []
        # There may be very many facts, and mostly all that was there is there, with one more behind it.
        if order[: len(held)] != held:
            drop = [key for key in held if key not in now]
            held = [key for key in held if key in now]
            # An index orders what is equal by when it came; what was brought back comes last, as in the memory.
            moved = next(
                (place for place, pair in enumerate(zip(held, order, strict=False)) if pair[0] != pair[1]), None
            )
            if moved is not None:
                drop += held[moved:]
                del held[moved:]
        olds = before.values() if len(held) == len(before) else map(before.__getitem__, held)
        # A fact that nothing has happened to is the same object, mostly.
        others = list(compress(held, map(operator.is_not, olds, now.values())))
        put = [key for key in others if before[key].content != now[key].content]
        return Change([fact_entry(now[key]) for key in (*put, *order[len(held) :])], drop, anew=not before)


def fact_entry(fact: Fact) -> Entry:
    """What of a fact can be found."""
    return Entry(key=fact.id, text=fact.content)


class Said(msgspec.Struct, frozen=True):
    """A turn that stands, without what its host hung onto it; its ordinal and thread name it once in a scope."""

    thread: str
    n: int
    id: str
    role: str
    content: str
    at: str
    name: str | None = None

    @property
    def key(self) -> str:
        """What it is called in an index."""
        return _key(self.thread, self.n)


def turn_entry(said: Said) -> Entry:
    """What of a turn can be found."""
    return Entry(
        key=said.key, text=said.content, speaker=said.name or said.role, group=said.thread, order=said.n, at=said.at
    )


def _key(thread: str, n: int) -> str:
    # An ordinal has no space in it, so no two turns share a key, whatever threads are called.
    return f"{n} {thread}"


class Turns:
    """The turns of a scope that stand; not safe for threads.

    They are read with their streams settled, up to a head that the scope's writer has vouched for; each line is checked
    against the chain.
    """

    def __init__(self, store: EventStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._ledger = scope.stream(LEDGER)
        self._transcript = scope.stream(TRANSCRIPT)
        self._begin("")

    def _begin(self, edition: str) -> None:
        self._edition = edition
        self._head = EMPTY
        self._learned = 0
        self._standing: dict[str, Said] = {}
        self._threads: dict[str, dict[str, Said]] = {}

    @property
    def standing(self) -> Mapping[str, Said]:
        """The turns by key, as they were said."""
        return self._standing

    def of(self, thread: str) -> Mapping[str, Said]:
        """One thread's turns by key."""
        return self._threads.get(thread, {})

    def entries(self) -> Iterator[Entry]:
        """Yield all of them, each thread whole and in order."""
        for thread in self._threads.values():
            yield from map(turn_entry, thread.values())

    def _drop(self, key: str) -> bool:
        said = self._standing.pop(key, None)
        if said is not None:
            del self._threads[said.thread][key]
        return said is not None

    def follow(self, until: Head) -> Change:
        """Read on to a head of the transcript; from the first line on, where what was read is another now.

        Raises:
            CorruptLogError: a line is not what was written.
            StoreError: a stream cannot be read.
        """
        # The edition first: what is read after it may be newer, never older, and then the next look tells.
        edition = self._store.edition(self._transcript)
        anew = not self._head.seq or edition != self._edition or not self._leads_to(until)
        if anew:
            self._begin(edition)
        try:
            return self._read_on(until, anew=anew)
        except BaseException:
            # A part of it was taken in, and nobody was told of it.
            self._begin("")
            raise

    def _leads_to(self, until: Head) -> bool:
        return self._head.seq < until.seq or self._head == until

    def _read_on(self, until: Head, *, anew: bool) -> Change:
        gone = set(self._redacted())
        put: dict[str, Entry] = {}
        drop = [key for key in gone if self._drop(key)]
        for commit in self._commits(until):
            for event in commit.events:
                if isinstance(event, TurnRecorded):
                    self._take(event.turn, commit.cause.thread or "", gone, put)
                elif isinstance(event, TurnSuperseded):
                    key = _key(commit.cause.thread or "", event.n)
                    if self._drop(key) and put.pop(key, None) is None:
                        drop.append(key)
        return Change(put=list(put.values()), drop=drop, anew=anew)

    def _take(self, turn: Turn, thread: str, gone: set[str], put: dict[str, Entry]) -> None:
        said = Said(thread, turn.n, turn.id, turn.role, turn.content, turn.at, turn.name)
        if said.key not in gone:
            self._standing[said.key] = said
            self._threads.setdefault(thread, {})[said.key] = said
            put[said.key] = turn_entry(said)

    def _commits(self, until: Head) -> Iterator[Commit]:
        if self._head.seq >= until.seq:
            return
        for record in self._store.read(self._transcript, self._head.seq):
            commit = unseal(record.line, self._head, stream=self._transcript, byte=record.byte)
            if commit.seq == 1:
                self._must_be_ours(commit)
            self._head = commit.head
            yield commit
            if commit.seq >= until.seq:
                return

    def _redacted(self) -> Iterator[str]:
        """The turns that the ledger says are erased: their words stand until that is carried out.

        Nobody who only looks for turns should decode all that was ever learned.
        """
        for seq, record in enumerate(self._store.read(self._ledger, self._learned), self._learned + 1):
            if _REDACTED in record.line:
                after = Head(seq - 1, prev_of(record.line))
                for event in unseal(record.line, after, stream=self._ledger, byte=record.byte).events:
                    if isinstance(event, Redacted) and event.thread is not None and event.n is not None:
                        yield _key(event.thread, event.n)
            self._learned = seq

    def _must_be_ours(self, first: Commit) -> None:
        owner = Scope(first.cause.user, first.cause.agent)
        if owner != self._scope and first.cause.kind != "erased":
            raise CorruptLogError(
                f"{self._transcript} is the log of {owner}, not of {self._scope}: put it back where it belongs",
                kind="altered",
                stream=self._transcript,
                line=1,
                byte=0,
            )
