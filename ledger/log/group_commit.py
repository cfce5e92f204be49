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
from backstory.ledger.log.store import EventStore

__all__ = ["GroupCommit", "PendingCommit"]

_LONGEST_SECONDS = 0.02
"""A write may have taken long because another process kept the lock: no reason to wait for company."""


class PendingCommit:
    """A commit on its way to disk: `settled` once it is there or never will be, which `error` tells."""

    __slots__ = ("commit", "error", "gates", "line", "settled")

    def __init__(self, line: bytes, commit: Commit) -> None:
        self.line = line
        self.commit = commit
        self.settled = False
        self.error: BackstoryError | None = None
        self.gates: list[threading.Lock] = []
        """One for each thread that waits; it opens when the line is settled, or when that thread is to lead."""

    def settle(self, error: BackstoryError | None = None) -> None:
        """Say what became of it, and let everybody who waits go on."""
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

    `failures` counts the writes that failed; whoever decides says which count they know of.
    """

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self.failures = 0
        self.renew()

    def renew(self) -> None:
        """Begin anew, in a forked child: the threads that hold the locks and wait at the gates are not in it."""
        self._mutex = threading.Lock()
        self._waiting: list[PendingCommit] = []
        self._led = False
        self._company = 1
        """How many lines the last write took: so many threads may be about to come again."""
        self._took = 0.0
        """How many seconds it took."""
        self._complete: threading.Lock | None = None
        """Opens when as many lines wait as the last write took; there while a leader waits for that."""

    def add(self, line: bytes, commit: Commit, failures: int) -> PendingCommit:
        """Queue a line behind the others; one that was decided before a failure was known of fails at once."""
        ticket = PendingCommit(line, commit)
        with self._mutex:
            if failures != self.failures:
                ticket.settle(self._overtaken(commit))
                return ticket
            if self._waiting and self._waiting[-1].commit.hash != commit.prev:
                # Lines that are written at once are not looked at by the store one by one.
                ticket.settle(self._overtaken(commit))
                return ticket
            self._waiting.append(ticket)
            if self._complete is not None and len(self._waiting) >= self._company:
                self._complete.release()
                self._complete = None
        return ticket

    def refuse(self, line: bytes, commit: Commit) -> PendingCommit:
        """Return a ticket for a line that is not queued, since what it was decided on is gone."""
        ticket = PendingCommit(line, commit)
        ticket.settle(self._overtaken(commit))
        return ticket

    def disown(self, ticket: PendingCommit) -> None:
        """Say in a forked child that a line is the parent's to write; nobody of the child's waits at its gates."""
        if not ticket.settled:
            ticket.gates = []
            ticket.settle(self._overtaken(ticket.commit))

    def count_failures(self) -> int:
        """Return how many writes have failed; the lines that fell with them have their errors by then."""
        with self._mutex:
            return self.failures

    def settle(self, ticket: PendingCommit) -> None:
        """Return when the line is durable.

        Raises:
            WrongExpectedVersionError: somebody else appended first, or a line before it failed: decide again.
            StoreError, LockTimeoutError, CorruptLogError: as the store; the line is not there.
        """
        if not ticket.settled and self._leads(ticket):
            try:
                self._gather()
            finally:
                self._write()
        if ticket.error is not None:
            raise ticket.error

    def is_settled(self, ticket: PendingCommit) -> bool:
        """Wait as `settle` does, and say whether the line is durable; whoever decided it is told why it is not."""
        try:
            self.settle(ticket)
        except BackstoryError:
            return False
        return True

    def _leads(self, ticket: PendingCommit) -> bool:
        """Wait until the line is settled, or until it is for this thread to write for all; then True."""
        with self._mutex:
            if ticket.settled:
                return False
            if not self._led:
                self._led = True
                return True
            gate = _closed()
            ticket.gates.append(gate)
        try:
            gate.acquire()
        except BaseException:
            with self._mutex:
                if gate in ticket.gates:
                    ticket.gates.remove(gate)
                elif not ticket.settled:
                    # It was just told to lead.
                    self._hand_over()
            raise
        return not ticket.settled

    def _gather(self) -> None:
        """Wait a little for those who shared the last write: half of what it took is well spent on them."""
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
            self._store.append_all(self._stream, [ticket.line for ticket in batch], batch[0].commit.seq - 1)
        except WrongExpectedVersionError as error:
            self._settle_what_is_there(batch)
            self._fail(batch, error)
        except BackstoryError as error:
            self._fail(batch, error)
        else:
            with self._mutex:
                for ticket in batch:
                    ticket.settle()
        finally:
            # Nobody must wait forever for what was interrupted; whether it is there they cannot be told.
            if not batch[-1].settled:
                self._fail(batch, StoreError(f"{self._stream}: a write was interrupted; look whether it is there"))
            with self._mutex:
                self._company, self._took = len(batch), perf_counter() - begun
                self._hand_over()

    def _hand_over(self) -> None:
        """Let a thread lead that waits for a line of the next write; where none does, the first to come will."""
        for ticket in self._waiting:
            if ticket.gates:
                ticket.gates.pop().release()
                return
        self._led = False

    def _settle_what_is_there(self, batch: list[PendingCommit]) -> None:
        """An engine that writes line by line may have written some before somebody else came between."""
        there = list(zip(batch, self._store.read(self._stream, batch[0].commit.seq - 1), strict=False))
        with self._mutex:
            for ticket, record in there:
                if record.line != ticket.line:
                    return
                ticket.settle()

    def _fail(self, batch: list[PendingCommit], error: BackstoryError) -> None:
        with self._mutex:
            self.failures += 1
            for ticket in batch:
                if not ticket.settled:
                    ticket.settle(error)
            for behind in self._waiting:
                behind.settle(self._overtaken(behind.commit))
            self._waiting = []

    def _overtaken(self, commit: Commit) -> WrongExpectedVersionError:
        return WrongExpectedVersionError(
            f"{self._stream}: what commit {commit.seq} was decided on was not written: decide again",
            actual=commit.seq - 1,
        )
