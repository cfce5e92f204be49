"""Reader of a scope's two streams, for reads that must not wait for a writer.

It has a state of its own, apart from the writer's, and reads as far as `EventStore.durable_head` reports. It takes no
writer's lock and syncs nothing. So its answers may be outdated: the writer, who takes the lock first, decides again
whatever depends on them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.events import Redacted
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.log.backlog import Backlog
from backstory.ledger.log.commits import must_not_shrink, read_commits
from backstory.ledger.log.snapshot import Snapshots
from backstory.ledger.log.state import ScopeState
from backstory.ledger.log.store import EventStore
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.transcript import Transcript

__all__ = ["Reader", "State"]


class State(msgspec.Struct, frozen=True):
    """What a scope's two streams say: memory and head are values, the others belong to who lends the state out."""

    memory: Memory
    coverage: Coverage
    transcript: Transcript
    head: Head = EMPTY
    """Of the ledger."""


class _Shown(msgspec.Struct, frozen=True):
    """A memory and the head it stands on."""

    memory: Memory
    head: Head


class Reader:
    """Reads a scope; safe for threads, and begun anew in a forked child.

    `met_erasure` is told of the redactions that a replay from the first commit came across; no lock is held then.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        snapshots: Snapshots | None,
        met_erasure: Callable[[Sequence[Redacted]], None],
    ) -> None:
        self._store = store
        self._scope = scope
        self._snapshots = snapshots
        self._met_erasure = met_erasure
        self.renew()
        register(self)

    def renew(self) -> None:
        """Begin anew in a forked child, where the thread that held the lock is not."""
        self._lock = threading.Lock()
        """Held by readers while they read on or have a state on loan; no writer ever takes it."""
        self.start_over()

    def start_over(self) -> None:
        """Let go of everything, and wait for nobody; whoever is reading goes on with what it has."""
        self._held = Backlog(ScopeState(self._store, self._scope, self._snapshots, settled=self._durable))
        self._shown = _Shown(Memory(), EMPTY)

    def _durable(self, stream: str, known: Head) -> Head:
        now = self._store.durable_head(stream)
        if now.seq >= known.seq:
            return now
        # It was durable once. If it is gone from the log all the same, the view says so.
        there = self._store.head(stream)
        return known if there.seq >= known.seq else there

    def publish(self, memory: Memory, head: Head) -> None:
        """Take note of a memory that a writer of this process has made durable: nobody need read it again."""
        if head.seq > self._shown.head.seq:
            self._shown = _Shown(memory, head)

    def standing(self) -> tuple[Memory, Head]:
        """Return the memory as it durably is, and the head that it stands on.

        Raises:
            CorruptLogError: the ledger is damaged, or shorter than it was.
            StoreError: it cannot be read.
        """
        held, shown = self._held, self._shown
        newest = self._since(shown) if shown.head.seq else None
        if newest is None:
            newest = self._anew()
        elif newest is not shown and held is self._held:
            # Who was quicker may have read further: then somebody reads the same lines once more.
            self._shown = newest
        return newest.memory, newest.head

    def _since(self, shown: _Shown) -> _Shown | None:
        """Go on from what was shown last, without any lock; None where an erasure has come, which changes what was."""
        stream = self._scope.stream(LEDGER)
        now = self._durable(stream, shown.head)
        if now == shown.head:
            return shown
        must_not_shrink(stream, shown.head, now)
        fold, head = Fold(shown.memory), shown.head
        for commit in read_commits(self._store, stream, shown.head, until=now):
            if commit.cause.kind == "redaction":
                return None
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            head = commit.head
        return _Shown(fold.memory(), head)

    def _anew(self) -> _Shown:
        """Read the ledger as a view does: from the newest snapshot, or from the first commit."""
        with self._lock:
            held = self._held
            view = held.view
            view.refresh_ledger()
            shown = _Shown(view.memory, view.head)
            if held is self._held:
                self._shown = shown
            redacted, view.redacted = view.redacted, []
        if redacted:
            self._met_erasure(redacted)
        return shown

    @contextmanager
    def state(self) -> Iterator[State]:
        """Lend out what both streams durably say; no other reader changes it meanwhile. Raises as `standing`."""
        with self._caught_up() as held:
            view = held.view
            yield State(view.memory, view.coverage, view.transcript, view.head)

    @contextmanager
    def backlog(self) -> Iterator[Backlog]:
        """Lend out what of both streams waits to be learned from; as `state`."""
        with self._caught_up() as held:
            yield held

    @contextmanager
    def _caught_up(self) -> Iterator[Backlog]:
        # An erasure that was interrupted is completed before the lock is taken.
        self.standing()
        with self._lock:
            held = self._held
            # The ledger first: the transcript is never older than what the ledger says of it.
            held.view.refresh_ledger()
            held.view.refresh_transcript()
            yield held
