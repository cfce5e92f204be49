"""Reader of a scope's two streams, for reads that must not wait for a writer.

It has a state of its own, apart from the writer's, and reads as far as `EventStore.durable_head` reports. It takes no
writer's lock and syncs nothing. So its answers may be outdated: the writer, who takes the lock first, decides again
whatever depends on them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from backstory.ledger.core.commit import EMPTY, Head, hash_of
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import Redacted, TurnRange
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import must_not_shrink, read_commits
from backstory.ledger.log.folded.snapshot import SharedSnapshots, Snapshots
from backstory.ledger.log.folded.state import FoldedState, StandingMemory
from backstory.ledger.threads.coverage import Coverage, Parked
from backstory.ledger.threads.due import Due, Timing, due_of
from backstory.ledger.threads.transcript import Thread, Transcript


class ServedMemory(msgspec.Struct, frozen=True):
    """A memory as it is served until the moment `until` (None: for ever); `hidden` facts of the log are not in it.

    It lacks each fact from the moment that the fact states. The log takes such a fact out with a commit of its own,
    which may come later. memory.json stays what a replay of the log gives.
    """

    memory: Memory
    until: str | None
    hidden: int


class WaitingThread(msgspec.Struct, frozen=True):
    """Pending and parked turns of one thread: their numbers, and when the pending ones are due."""

    thread: str
    turns: int
    due: Due | None
    """As `due_of`, by the times in the transcript alone."""
    parked: tuple[tuple[Parked, int], ...]


class Backlog:
    """The threads of a scope with pending or parked turns. Not safe for threads."""

    def __init__(self, state: FoldedState) -> None:
        self.state = state
        self._timing: Timing | None = None
        self._known: dict[str, WaitingThread] = {}

    def waiting(self, timing: Timing) -> list[WaitingThread]:
        """Return the pending and parked turns of each thread, oldest thread first, as far as the state was read."""
        touched, self.state.touched = self.state.touched, set()
        if touched is None or timing != self._timing:
            self._known = {}
            touched = None
        self._timing = timing
        threads = self.state.transcript.threads
        try:
            names = threads.unsettled() if touched is None else touched
            self.state.prepare(names)
            for name in names:
                # Of a thread that a tool has named, nothing may be recorded yet.
                if (thread := threads.get(name)) is not None:
                    self._known[name] = self._waiting(thread, timing)
        except BaseException:
            # The threads that were not computed have to be computed next time.
            self.state.touched = None
            raise
        return [waiting for waiting in self._known.values() if waiting.turns or waiting.parked]

    def _waiting(self, thread: Thread, timing: Timing) -> WaitingThread:
        coverage = self.state.coverage
        runs = coverage.pending(thread)
        due = due_of(thread, runs, timing)
        parked = tuple((item, count_turns(thread, [item.turns])) for item in coverage.parked(thread))
        return WaitingThread(thread.name, count_turns(thread, runs), due, parked)


def count_turns(thread: Thread, runs: Iterable[TurnRange]) -> int:
    """Return how many turns of some runs stand."""
    return sum(len(thread.standing(run.first, run.last)) for run in runs)


class State(msgspec.Struct, frozen=True):
    """State of a scope: memory and head are values, the rest belongs to its lender."""

    memory: Memory
    coverage: Coverage
    transcript: Transcript
    head: Head = EMPTY
    """Of the ledger."""
    log: str = ""
    """The hash of the transcript's first commit: after a removal of the logs it is another."""


class Reader:
    """Reads a scope. Safe for threads and forks.

    `met_erasure` gets the redactions that a replay from the first commit has met; no lock is held then. `shared` spares
    the first read of the ledger.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        snapshots: Snapshots | None,
        met_erasure: Callable[[Sequence[Redacted], bool], bool],
        shared: SharedSnapshots | None = None,
    ) -> None:
        self._store = store
        self._scope = scope
        self._ledger = scope.stream(LEDGER)
        self._snapshots = snapshots
        self._met_erasure = met_erasure
        self._shared = shared
        self.renew()

    def renew(self) -> None:
        """Start again in a forked child, in which the thread that held the lock does not exist."""
        self._lock = threading.Lock()
        """Held by readers while they refresh or use a state; no writer takes it."""
        self.start_over()

    def start_over(self) -> None:
        """Drop everything without waiting; threads that are reading keep what they have."""
        self._held = Backlog(FoldedState(self._store, self._scope, self._snapshots, settled=self._durable))
        self._shown = StandingMemory(Memory(), EMPTY)
        self._unfinished: Sequence[Redacted] = ()
        """What is to be erased once another process lets go of a lock: it was killed, and its lease has not ended."""

    @property
    def has_unfinished_erasure(self) -> bool:
        """Whether an erasure was met that another process has begun and this one could not complete yet."""
        return bool(self._unfinished)

    def _durable(self, stream: str, known: Head) -> Head:
        now = self._store.durable_head(stream)
        if now.seq >= known.seq:
            return now
        # It was durable once. If it is missing from the log, the state refuses the log.
        there = self._store.head(stream)
        return known if there.seq >= known.seq else there

    def publish(self, standing: StandingMemory) -> None:
        """Take the memory that a writer of this process has made durable, so that it need not be read again."""
        if standing.head.seq > self._shown.head.seq:
            self._shown = standing

    def standing(self) -> tuple[Memory, Head]:
        """Return the durable memory and its head.

        Raises:
            CorruptLogError: The ledger is damaged, or shorter than it was.
            StoreError: It cannot be read.
        """
        if self._unfinished and not self._met_erasure(self._unfinished, True):
            self.start_over()
        held, shown = self._held, self._shown
        try:
            newest = self._since(shown) if shown.head.seq else self._from_others()
        except CorruptLogError:
            if not self._store.is_removed(shown.first):
                raise
            self.start_over()
            held, newest = self._held, None
        if newest is None:
            newest = self._anew()
        elif newest is not shown and held is self._held:
            # A quicker thread may have read further; then the same lines are read once more.
            self._shown = newest
        return newest.memory, newest.head

    def _since(self, shown: StandingMemory) -> StandingMemory | None:
        """Read on from the last memory, without a lock; None after an erasure, which changes earlier commits."""
        now = self._durable(self._ledger, shown.head)
        if now == shown.head:
            return shown
        must_not_shrink(self._ledger, shown.head, now)
        fold, head = Fold(shown.memory), shown.head
        for commit in read_commits(self._store, self._ledger, shown.head, until=now):
            if commit.cause.kind == "redaction":
                return None
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            head = commit.head
        return StandingMemory(fold.memory(), head, shown.first)

    def _from_others(self) -> StandingMemory | None:
        """Take the memory that another process has kept; None where the ledger has to be read."""
        if self._shared is None:
            return None
        now = self._durable(self._ledger, EMPTY)
        memory = self._shared.find(self._scope, now)
        if memory is None:
            return None
        first = next((hash_of(record.line) for record in self._store.read(self._ledger)), "")
        return StandingMemory(memory, now, first) if first else None

    def _anew(self) -> StandingMemory:
        """Read the ledger from the newest snapshot, or from the first commit."""
        with self._lock:
            held = self._held
            state = held.state
            state.refresh_ledger()
            shown = state.standing
            if held is self._held:
                self._shown = shown
            redacted, state.redacted = state.redacted, []
        if redacted:
            self._unfinished = redacted if self._met_erasure(redacted, False) else []
        elif self._shared is not None:
            # Not where an erasure was met: it may be incomplete, and who finds the memory would not meet it.
            self._shared.keep(self._scope, shown.memory, shown.head)
        return shown

    @contextmanager
    def state(self) -> Iterator[State]:
        """Lend out the durable state; no other reader changes it meanwhile. Raises as `standing`."""
        with self._caught_up() as held:
            state = held.state
            yield State(state.memory, state.coverage, state.transcript, state.head, state.log)

    @contextmanager
    def backlog(self) -> Iterator[Backlog]:
        """Lend out the pending and parked turns; as `state`."""
        with self._caught_up() as held:
            yield held

    @contextmanager
    def _caught_up(self) -> Iterator[Backlog]:
        # An erasure that was interrupted is completed before the lock is taken.
        self.standing()
        with self._lock:
            held = self._held
            # The ledger first, so that the transcript is never older than the commits that cover it.
            held.state.refresh_ledger()
            held.state.refresh_transcript()
            yield held
