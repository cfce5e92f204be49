"""Group commit: threads that append to one stream share a write and a sync.

A thread decides on the head as it will be when the lines before its own are on disk, adds its line, and waits. One of
the waiting threads leads: it writes the lines of all, wakes the threads whose lines are durable, and passes the lead to
a thread that came meanwhile. So each thread is woken once. If a write fails, everything that was decided on its lines
is discarded.
"""

from __future__ import annotations

import threading
from time import perf_counter

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import BackstoryError, StoreError, WrongExpectedVersionError
from backstory.ledger.engines.port import EventStore

_LONGEST_SECONDS = 0.02
"""The longest wait for company. A long write may only mean that another process held the lock."""


class PendingCommit:
    """A commit on its way to disk: `settled` once it is durable or has failed, with the reason in `error`."""

    __slots__ = ("commit", "error", "gates", "line", "settled")

    def __init__(self, line: bytes, commit: Commit) -> None:
        self.line = line
        self.commit = commit
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
    """The lines of one stream that are decided and not yet durable.

    `failures` counts failed writes. A line that was added with an older count is refused.
    """

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self.failures = 0
        self.renew()

    def renew(self) -> None:
        """Start again in a forked child, in which the threads that hold the locks do not exist."""
        self._mutex = threading.Lock()
        self._waiting: list[PendingCommit] = []
        self._led = False
        self._company = 1
        """How many lines the last write took: as many threads may come again soon."""
        self._took = 0.0
        """The seconds that the last write took."""
        self._complete: threading.Lock | None = None
        """Released when as many lines wait as the last write took; None unless a leader waits for that."""

    def add(self, line: bytes, commit: Commit, failures: int) -> PendingCommit:
        """Queue a line behind the others; one that was decided before a failed write is refused."""
        pending = PendingCommit(line, commit)
        with self._mutex:
            if failures != self.failures:
                pending.settle(self._overtaken(commit))
                return pending
            if self._waiting and self._waiting[-1].commit.hash != commit.prev:
                # The store checks the expected version of a batch, not of each line in it.
                pending.settle(self._overtaken(commit))
                return pending
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

    def disown(self, pending: PendingCommit) -> None:
        """Fail a commit in a forked child: the parent writes it, and no thread of the child waits for it."""
        if not pending.settled:
            pending.gates = []
            pending.settle(self._overtaken(pending.commit))

    def count_failures(self) -> int:
        """Return how many writes have failed; the commits that failed with them have their errors by then."""
        with self._mutex:
            return self.failures

    def settle(self, pending: PendingCommit) -> None:
        """Return when the line is durable.

        Raises:
            WrongExpectedVersionError: another process appended first, or a line before it failed: decide again.
            StoreError, LockTimeoutError, CorruptLogError: as the store; the line is not there.
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
            self._store.append_all(self._stream, [pending.line for pending in batch], batch[0].commit.seq - 1)
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
                self._fail(batch, StoreError(f"{self._stream}: a write was interrupted; look whether it is there"))
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
        there = list(zip(batch, self._store.read(self._stream, batch[0].commit.seq - 1), strict=False))
        with self._mutex:
            for pending, record in there:
                if record.line != pending.line:
                    return
                pending.settle()

    def _fail(self, batch: list[PendingCommit], error: BackstoryError) -> None:
        with self._mutex:
            self.failures += 1
            for pending in batch:
                if not pending.settled:
                    pending.settle(error)
            for behind in self._waiting:
                behind.settle(self._overtaken(behind.commit))
            self._waiting = []

    def _overtaken(self, commit: Commit) -> WrongExpectedVersionError:
        return WrongExpectedVersionError(
            f"{self._stream}: what commit {commit.seq} was decided on was not written: decide again",
            actual=commit.seq - 1,
        )
