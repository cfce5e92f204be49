"""Appends of a process: threads that append at the same time, to any streams, share a transaction.

A thread queues what it appends. While fewer than four transactions are on their way, it leads one: it takes all that
waits, and wakes the others when the server has answered; then a thread that came meanwhile leads the next.

A connection may be lost after the server has committed and before it says so. Then the same lines are sent again. The
server answers that they stand there already, or that they do not, once no transaction with them is left: each locks the
row of the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import psycopg
from psycopg import errors

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.commit import head_of, prev_of
from backstory.ledger.core.errors import (
    BackstoryError,
    LockTimeoutError,
    StoreError,
    UnknownOutcomeError,
)
from backstory.ledger.disk.locks import polled
from backstory.ledger.engines.port import Seal
from backstory.ledger.engines.postgres.connections import Connections, is_lost
from backstory.ledger.engines.postgres.holds import lock_of
from backstory.ledger.engines.postgres.sealing import DatabaseSeal
from backstory.ledger.engines.promises import other_history, other_version

__all__ = ["Appends"]

_TRANSACTIONS = 4
_MOST_BYTES = 4 << 20
_MOST_ITEMS = 64

_APPEND = """
SELECT outcome, head_seq FROM backstory.append(
    %b::text[], %s::bigint[], %s::bigint[], %s::bigint[], %b::text[], %s::integer[], %b::bytea[], %b::text[], %s, %s
)
"""


class _Append:
    """Lines on their way to the server. `outcome` is its answer; empty where there was none."""

    __slots__ = ("error", "expected", "gate", "hashes", "leads", "lines", "lock", "outcome", "previous", "seq", "size",
                 "stream", "token")  # fmt: skip

    def __init__(self, stream: str, lines: Sequence[bytes], expected: int, token: int | None) -> None:
        self.stream = stream
        self.lines = lines
        self.expected = expected
        self.token = token
        self.lock = lock_of(stream)
        self.previous = prev_of(lines[0])
        self.hashes = [head_of(line).hash for line in lines]
        self.size = sum(map(len, lines))
        self.renew()

    def renew(self) -> None:
        """Prepare for being sent, or for being sent again."""
        self.outcome = ""
        self.seq = 0
        self.error: psycopg.Error | None = None
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class Appends:
    """Sends the appends of one store."""

    def __init__(self, connections: Connections, seal: DatabaseSeal, clock: Clock) -> None:
        self._connections = connections
        self._seal = seal
        self._clock = clock
        self.renew()

    def renew(self) -> None:
        """Begin with nothing under way, in a forked child."""
        self._mutex = threading.Lock()
        self._waiting: list[_Append] = []
        self._led = 0

    def append(self, stream: str, lines: Sequence[bytes], expected: int, token: int | None) -> None:
        """Append lines to a stream; see `EventStore.append`.

        Args:
            stream: Its name.
            lines: The lines, one after the other.
            expected: The seq that they follow.
            token: The token of the stream's lock where the caller holds it; see `holds`.

        Raises:
            UnknownOutcomeError: The server did not answer whether they are there.
        """
        item = _Append(stream, lines, expected, token)
        unknown = False

        def attempt() -> str | None:
            nonlocal unknown
            item.renew()
            self._send(item)
            if not item.outcome:
                # Nothing was sent without a connection. Without an error, the thread that led was interrupted.
                unknown = unknown or item.error is None or isinstance(item.error, _UnansweredError)
                return None
            if item.outcome == "sealed" and (seal := self._seal.read()) is not None:
                raise seal.refusal(self._connections.address.label)
            # A seal may have been taken off just now.
            return None if item.outcome in ("locked", "again", "sealed") else item.outcome

        outcome = polled(attempt, self._connections.timeout, self._clock) or item.outcome
        if outcome == "appended" or (outcome == "present" and unknown):
            return
        raise self._refusal(item, outcome, unknown=unknown)

    def _refusal(self, item: _Append, outcome: str, *, unknown: bool) -> BackstoryError:
        stream, where = item.stream, self._connections.address.label
        if outcome in ("version", "present"):
            return other_version(stream, item.seq, item.expected)
        if outcome == "history":
            return other_history(stream, item.seq, f"database {where}")
        if unknown:
            return UnknownOutcomeError(
                f"{stream}: {where} did not answer whether commit {item.expected + 1} is written: "
                "read the stream when the server is back; what is sent again with the same seq is never there twice"
            )
        if outcome in ("locked", "again"):
            return LockTimeoutError(
                f"{stream} in {where} is still locked by another process after {self._connections.timeout:g} s: "
                "end that process, or raise file_lock_timeout_seconds"
            )
        if outcome == "lost":
            return StoreError(
                f"{stream}: the connection to {where} that held its lock was lost, so nothing was written: try again"
            )
        if item.error is None:
            return StoreError(f"{stream}: a write to {where} was interrupted; look whether it is there")
        return self._connections.refusal(f"append to {stream}", item.error)

    def _send(self, item: _Append) -> None:
        """Return when the server has answered for the item, or cannot be asked."""
        with self._mutex:
            item.leads = self._led < _TRANSACTIONS
            if item.leads:
                self._led += 1
            else:
                self._waiting.append(item)
        if not item.leads:
            self._await(item)
        if item.leads:
            self._lead(item)

    def _await(self, item: _Append) -> None:
        try:
            item.gate.acquire()
        except BaseException:
            with self._mutex:
                if item in self._waiting:
                    self._waiting.remove(item)
                elif item.leads:
                    self._hand_over()
            raise

    def _lead(self, item: _Append) -> None:
        with self._mutex:
            batch = self._taken(item)
        try:
            self._transact(batch)
        finally:
            with self._mutex:
                for other in batch:
                    other.gate.release()
                self._hand_over()

    def _taken(self, own: _Append) -> list[_Append]:
        """Return the leader's own append and what waits, up to what one transaction should hold."""
        batch, size = [own], own.size
        while self._waiting and len(batch) < _MOST_ITEMS and size + self._waiting[0].size <= _MOST_BYTES:
            size += self._waiting[0].size
            batch.append(self._waiting.pop(0))
        # Two transactions that lock the same rows have to do so in the same order.
        batch.sort(key=lambda item: item.stream)
        return batch

    def _hand_over(self) -> None:
        """Have a waiting thread lead the next transaction; without one, the next thread to come."""
        if self._waiting:
            item = self._waiting.pop(0)
            item.leads = True
            item.gate.release()
        else:
            self._led -= 1

    def _transact(self, batch: Sequence[_Append]) -> None:
        """Send appends in one transaction; each on its own where the server refuses all because of one."""
        try:
            with self._connections.lent() as connection:
                rows = _sent(connection, batch, self._seal.ours)
        except psycopg.Error as error:
            if is_lost(error) or len(batch) == 1:
                for item in batch:
                    item.error = error
                    if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected):
                        item.outcome = "again"
                    elif not is_lost(error):
                        item.outcome = "refused"
            else:
                for item in batch:
                    self._transact((item,))
            return
        for item, (outcome, seq) in zip(batch, rows, strict=True):
            item.outcome, item.seq = outcome, seq


class _UnansweredError(psycopg.OperationalError):
    """The connection was lost after a transaction had been sent."""


def _sent(
    connection: psycopg.Connection[tuple[object, ...]], batch: Sequence[_Append], ours: Seal | None
) -> list[tuple[str, int]]:
    try:
        return [
            (str(outcome), int(str(seq)))
            for outcome, seq in connection.execute(
                _APPEND,
                (
                    [item.stream for item in batch],
                    [item.lock for item in batch],
                    [item.token for item in batch],
                    [item.expected for item in batch],
                    [item.previous for item in batch],
                    [len(item.lines) for item in batch],
                    [line for item in batch for line in item.lines],
                    [digest for item in batch for digest in item.hashes],
                    None if ours is None else ours.state,
                    None if ours is None else ours.other,
                ),
            )
        ]
    except psycopg.Error as error:
        if is_lost(error):
            raise _UnansweredError(str(error)) from error
        raise
