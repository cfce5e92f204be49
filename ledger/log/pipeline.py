"""Commit pipeline of one scope in one process: the folded state, and the commits on their way to disk.

One thread at a time holds `mutex` and decides on the state as it will be when all earlier commits are durable. If a
write fails, what was decided on it is discarded and the state is read again. The same happens in a forked child,
because the parent writes the commits that are not yet on disk.

Threads that append to one stream share a write and a sync (`GroupCommit`). A thread adds its line, and waits. One of
the waiting threads leads: it writes the lines of all, wakes the threads whose lines are durable, and passes the lead to
a thread that came meanwhile. So each thread is woken once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from backstory.ledger.core.commit import EMPTY, Commit, Draft, Head, sealed
from backstory.ledger.core.errors import BackstoryError, StoreError, WrongExpectedVersionError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.folded.snapshot import Snapshots
from backstory.ledger.log.folded.state import FoldedState, StandingMemory

_LONGEST_SECONDS = 0.02
"""The longest wait for company. A long write may only mean that another process held the lock."""


Salts = Callable[[], str]
"""Returns the salt of an event."""


def random_salt() -> str:
    """Return 16 random bytes as hex digits."""
    return os.urandom(16).hex()


class PendingCommit:
    """A commit on its way to disk: `settled` once it is durable or has failed, with the reason in `error`.

    `before` and `after` are the memories of a commit of the ledger, once it is `folded`.
    """

    __slots__ = ("after", "before", "commit", "error", "folded", "gates", "line", "settled")

    def __init__(self, line: bytes, commit: Commit) -> None:
        self.line = line
        self.commit = commit
        self.folded = False
        self.before = Memory()
        self.after = StandingMemory(self.before, EMPTY)
        self.settled = False
        self.error: BackstoryError | None = None
        self.gates: list[threading.Lock] = []
        """A lock for each waiting thread, released when the commit is settled or when that thread is to lead."""

    def settle(self, error: BackstoryError | None = None) -> None:
        """Set the outcome and release all waiting threads."""
        self.error = error
        self.settled = True
        for gate in self.gates:
            gate.release()
        self.gates = []


def _closed() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


class GroupCommit:
    """The commits of one stream that this process has decided and that may not be durable yet.

    `decided` are those that the pipeline has not seen settled, oldest first. A line is refused if a write has failed
    that the pipeline does not know of.
    """

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self.stream = stream
        self._failures = 0
        """How many writes have failed."""
        self._known_failures = 0
        self.decided: deque[PendingCommit] = deque()
        self.renew()

    def renew(self) -> None:
        """Drop everything in a forked child: the parent writes these commits, and its threads do not exist here."""
        for pending in self.decided:
            if not pending.settled:
                pending.gates = []
                pending.settle(self._overtaken(pending.commit))
        self.decided = deque()
        self._mutex = threading.Lock()
        self._waiting: list[PendingCommit] = []
        self._led = False
        self._company = 1
        """How many lines the last write took: as many threads may come again soon."""
        self._took = 0.0
        """The seconds that the last write took."""
        self._complete: threading.Lock | None = None
        """Released when as many lines wait as the last write took; None unless a leader waits for that."""

    def add(self, line: bytes, commit: Commit) -> PendingCommit:
        """Queue a line behind the others; one that was decided before a failed write is refused."""
        with self._mutex:
            # The store checks the expected version of a batch, not of each line in it.
            follows = not self._waiting or self._waiting[-1].commit.hash == commit.prev
            if self._known_failures != self._failures or not follows:
                return self.refuse(line, commit)
            pending = PendingCommit(line, commit)
            self._waiting.append(pending)
            if self._complete is not None and len(self._waiting) >= self._company:
                self._complete.release()
                self._complete = None
        return pending

    def refuse(self, line: bytes, commit: Commit) -> PendingCommit:
        """Return a failed commit for a line whose expected version no longer exists."""
        pending = PendingCommit(line, commit)
        pending.settle(self._overtaken(commit))
        return pending

    def know_failures(self) -> None:
        """Take note of the writes that have failed; the commits that failed with them have their errors by then."""
        with self._mutex:
            self._known_failures = self._failures

    def settle(self, pending: PendingCommit) -> None:
        """Return when the line is durable.

        Raises:
            WrongExpectedVersionError: Another process appended first, or a line before it failed: decide again.
            StoreError, LockTimeoutError, CorruptLogError: As the store; the line is not there.
        """
        if not pending.settled and self._leads(pending):
            try:
                self._gather()
            finally:
                self._write()
        if pending.error is not None:
            raise pending.error

    def is_settled(self, pending: PendingCommit) -> bool:
        """Wait as `settle` does, and return whether the line is durable; `error` has the reason if not."""
        try:
            self.settle(pending)
        except BackstoryError:
            return False
        return True

    def _leads(self, pending: PendingCommit) -> bool:
        """Wait until the line is settled, or until this thread is to write for all; return True then."""
        with self._mutex:
            if pending.settled:
                return False
            if not self._led:
                self._led = True
                return True
            gate = _closed()
            pending.gates.append(gate)
        try:
            gate.acquire()
        except BaseException:
            with self._mutex:
                if gate in pending.gates:
                    pending.gates.remove(gate)
                elif not pending.settled:
                    # This thread was just chosen to lead.
                    self._hand_over()
            raise
        return not pending.settled

    def _gather(self) -> None:
        """Wait for the threads that shared the last write, at most half the time that it took."""
        with self._mutex:
            if len(self._waiting) >= self._company:
                return
            complete = self._complete = _closed()
        complete.acquire(timeout=min(self._took / 2, _LONGEST_SECONDS))
        with self._mutex:
            self._complete = None

    def _write(self) -> None:
        with self._mutex:
            batch, self._waiting = self._waiting, []
        begun = perf_counter()
        try:
            self._store.append(self.stream, [pending.line for pending in batch], batch[0].commit.seq - 1)
        except WrongExpectedVersionError as error:
            self._settle_what_is_there(batch)
            self._fail(batch, error)
        except BackstoryError as error:
            self._fail(batch, error)
        else:
            with self._mutex:
                for pending in batch:
                    pending.settle()
        finally:
            # No thread may wait forever for an interrupted write, whose outcome is unknown.
            if not batch[-1].settled:
                self._fail(batch, StoreError(f"{self.stream}: a write was interrupted; look whether it is there"))
            with self._mutex:
                self._company, self._took = len(batch), perf_counter() - begun
                self._hand_over()

    def _hand_over(self) -> None:
        """Choose a waiting thread to lead the next write; without one, the next thread to come leads."""
        for pending in self._waiting:
            if pending.gates:
                pending.gates.pop().release()
                return
        self._led = False

    def _settle_what_is_there(self, batch: list[PendingCommit]) -> None:
        """Settle the lines that an engine wrote one by one before another process came between."""
        there = list(zip(batch, self._store.read(self.stream, batch[0].commit.seq - 1), strict=False))
        with self._mutex:
            for pending, record in there:
                if record.line != pending.line:
                    return
                pending.settle()

    def _fail(self, batch: list[PendingCommit], error: BackstoryError) -> None:
        with self._mutex:
            self._failures += 1
            for pending in batch:
                if not pending.settled:
                    pending.settle(error)
            for behind in self._waiting:
                behind.settle(self._overtaken(behind.commit))
            self._waiting = []

    def _overtaken(self, commit: Commit) -> WrongExpectedVersionError:
        return WrongExpectedVersionError(
            f"{self.stream}: what commit {commit.seq} was decided on was not written: decide again",
            actual=commit.seq - 1,
        )


class CommitPipeline:
    """The state of a scope and its two queues. Callers hold `mutex`, but of `alone`.

    `unannounced` are the durable commits of the ledger that listeners have not been notified of, each with the memory
    before and after it; the thread that notifies holds `announcing`. `met_erasure` is called when a replay of the
    ledger has met redactions.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        snapshots: Snapshots | None,
        salts: Salts,
        met_erasure: Callable[[], None],
    ) -> None:
        self._store = store
        self.mutex = threading.RLock()
        self.announcing = threading.Lock()
        self.state = FoldedState(store, scope, snapshots)
        self.ledger = GroupCommit(store, self.state.ledger)
        self.transcript = GroupCommit(store, self.state.transcript_stream)
        self.unannounced: deque[tuple[Commit, Memory, Memory]] = deque()
        self.newest: StandingMemory | None = None
        """The memory after the newest of them, for the reader."""
        self._salts = salts
        self._met_erasure = met_erasure
        self._beginning = self.state.beginnings
        """How often the state had started over when the decided commits were folded into it."""

    def renew(self) -> None:
        """Start again in a forked child, in which the threads that held the locks do not exist."""
        self.mutex = threading.RLock()
        self.announcing = threading.Lock()
        self.unannounced = deque()
        self.newest = None
        self.ledger.renew()
        self.transcript.renew()
        self.state.start_over()

    def settle(self, *queues: GroupCommit, beside: tuple[GroupCommit, ...] = ()) -> None:
        """Bring the state up to date, and wait until all of it is durable, but what the queues `beside` have decided.

        Both at once: where a write has failed, catching up with one stream later would drop what was read of another.
        """
        self.catch_up(*queues, *beside)
        while any(queue.decided for queue in queues):
            for queue in queues:
                if queue.decided:
                    queue.is_settled(queue.decided[-1])
            self.catch_up(*queues, *beside)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other writer off, in this process and elsewhere, and bring the state up to date.

        Raises:
            LockTimeoutError: Another process keeps a stream for too long.
        """
        with self.mutex:
            # Before any lock: a thread that appends needs it, and this one would wait for that thread.
            self.settle(self.transcript, self.ledger)
            with self._store.locked(self.transcript.stream), self._store.locked(self.ledger.stream):
                self.settle(self.transcript, self.ledger)
                yield

    def catch_up(self, *queues: GroupCommit) -> None:
        """Fold what this process has decided, and, in a queue without such commits, what others have appended."""
        while True:
            if self._beginning != self.state.beginnings and (self.ledger.decided or self.transcript.decided):
                # The state lost what was folded before it started over, and that may not be on disk yet.
                self.start_over()
            # Both queues, before anything is read: commits that are read must not be folded a second time.
            for queue in (self.ledger, self.transcript):
                self.drop_settled(queue)
                self.fold_decided(queue)
            self._beginning = self.state.beginnings
            # The ledger first, so that the transcript is never older than the commits that name it.
            for queue in (self.ledger, self.transcript):
                if queue in queues and not queue.decided:
                    self._refresh(queue)
            if self._beginning == self.state.beginnings:
                return

    def _refresh(self, queue: GroupCommit) -> None:
        if queue is self.transcript:
            self.state.refresh_transcript()
            return
        self.state.refresh_ledger()
        if self.state.redacted:
            self._met_erasure()

    def drop_settled(self, queue: GroupCommit) -> None:
        """Drop settled commits; if one that was folded has failed, start over."""
        queue.know_failures()
        while queue.decided and queue.decided[0].settled and queue.decided[0].error is None:
            each = queue.decided.popleft()
            if not each.folded:
                self._fold(queue, each)
            if queue is self.ledger:
                self.unannounced.append((each.commit, each.before, each.after.memory))
                self.newest = each.after
        failed = [each for each in queue.decided if each.error is not None]
        if failed:
            queue.decided = deque(each for each in queue.decided if each.error is None)
            if any(each.folded for each in failed):
                self.start_over()

    def start_over(self) -> None:
        """Read both streams anew, once every queued commit is settled."""
        for queue in (self.ledger, self.transcript):
            if queue.decided:
                queue.is_settled(queue.decided[-1])
                self.drop_settled(queue)
        self.state.start_over()

    def fold_decided(self, queue: GroupCommit) -> None:
        """Fold what this process has decided, durable or not."""
        for each in queue.decided:
            if not each.folded:
                self._fold(queue, each)

    def _fold(self, queue: GroupCommit, each: PendingCommit) -> None:
        if queue is self.transcript:
            self.state.take_said(each.commit)
        else:
            each.before = self.state.memory
            self.state.take(each.commit)
            # Now: after a removal the state begins anew, with another log, before this is known to be durable.
            each.after = self.state.standing
        each.folded = True

    def add(self, queue: GroupCommit, after: Head, draft: Draft) -> PendingCommit:
        """Seal a draft that was decided on a head, and queue it; `fold_decided` folds it later.

        If the process was forked since the decision, the commit is refused: the child's state has another head.

        Raises:
            StoreError: A value in it cannot be written.
        """
        line, commit = sealed(draft, after, self._salts)
        # Where a write has failed that is not known of here yet, the pending says so at once.
        if after == (self.state.head if queue is self.ledger else self.state.transcript.head):
            pending = queue.add(line, commit)
        else:
            pending = queue.refuse(line, commit)
        queue.decided.append(pending)
        return pending
