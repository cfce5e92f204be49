"""Locks of streams: advisory locks of a transaction that stays open, each on a connection of its own.

They end with the transaction, so with the connection and with its process, and a pooler that lends connections by the
transaction keeps them where they are (docs/explanation/adr/0007-a-lock-is-an-open-transaction.md). The server ends a
transaction that is silent for half a minute, as after a power cut at the holder's; a thread keeps those of the living
awake.

Who holds a stream's lock holds a token as well, a random advisory lock of its own. With it the server can see that an
append comes from the holder, and that the lock is still held.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
from psycopg import sql

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.disk.locks import Hold, NamedLocks, held_elsewhere, polled
from backstory.ledger.engines.postgres.awake import STAY_OPEN, KeptAwake
from backstory.ledger.engines.postgres.connections import Connection, Connections

__all__ = ["QUEUE_MILLISECONDS", "Holds", "lease_of", "lock_of"]

_log = logging.getLogger(__name__)

QUEUE_MILLISECONDS, _ASK_SECONDS = 100, 1.0
"""How long a statement waits for a lock, before others, and for how long it is only asked for then.

An append goes ahead of who only asks. But a statement that waits keeps old versions of rows from being removed, and so
an erasure that holds the lock from its end.
"""
# These carry no parameters: the portal of a statement with parameters would stay, and with it a snapshot that keeps the
# old versions of rows from being removed.
_BEGIN = sql.SQL(
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {STAY_OPEN}; SET LOCAL lock_timeout = {QUEUE_MILLISECONDS}"
)
_WAIT = sql.SQL("SELECT pg_advisory_xact_lock({})")
_TRY = sql.SQL("SELECT pg_try_advisory_xact_lock({})")


def lock_of(stream: str) -> int:
    """Return the number of a stream's lock."""
    return _number("lock", stream)


def lease_of(stream: str, name: str) -> int:
    """Return the number of a lease beside a stream."""
    return _number("lease", stream, name)


def _number(*parts: str) -> int:
    # 64 bits of a digest, so that two names hardly ever share one
    spelled = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(spelled).digest()[:8], signed=True)


class _LockHold(Hold):
    """A stream's lock, and the connection on which its transaction is open."""

    connection: Connection
    lent: ExitStack
    process = 0
    owner = 0
    token = 0

    def beat(self) -> None:
        """Say something in the transaction; a connection that is lost is found out by who uses it."""
        with suppress(psycopg.Error):
            self.connection.execute("SELECT 1")


class Holds(NamedLocks[_LockHold]):
    """The locks of one store."""

    def __init__(self, connections: Connections, awake: KeptAwake, clock: Clock) -> None:
        super().__init__(_LockHold)
        self._clock = clock
        self._connections = connections
        self._awake = awake

    def renew(self) -> None:
        """Hold nothing, in a forked child: what is held is the parent's."""
        self._forget()

    def token(self, stream: str) -> int | None:
        """Return the token of a stream's lock if this thread holds it, otherwise None."""
        hold = self._holds.get(stream)
        return hold.token if hold is not None and hold.owner == threading.get_ident() else None

    @contextmanager
    def held(self, stream: str, *, wait: bool) -> Iterator[None]:
        """Hold a stream's lock; see `EventStore.locked`."""
        hold = self._take(stream, self._connections.timeout if wait else 0.0)
        try:
            yield
        finally:
            self._give_back(hold)

    def _lock(self, hold: _LockHold, timeout: float) -> None:
        token = secrets.randbits(63)
        begun = self._connections.retried(f"lock {hold.name}", lambda: self._begun(hold.name, token, timeout))
        if begun is None:
            raise held_elsewhere(f"{hold.name} in {self._connections.address.label}", timeout)
        hold.connection, hold.lent = begun
        hold.process, hold.owner, hold.token = os.getpid(), threading.get_ident(), token
        self._awake.add(hold.beat)

    def _begun(self, stream: str, token: int, timeout: float) -> tuple[Connection, ExitStack] | None:
        """Return a connection with a transaction that holds a stream's lock; None where it is held elsewhere."""
        with ExitStack() as lent:
            connection = lent.enter_context(self._connections.lent(to_hold=True))
            connection.execute(_BEGIN)
            if not (
                self._waited(connection, lock_of(stream), timeout) if timeout else _tried(connection, lock_of(stream))
            ):
                return None
            return (connection, lent.pop_all()) if _tried(connection, token) else None

    def _waited(self, connection: Connection, number: int, timeout: float) -> bool:
        """Wait for a lock; return whether it is held."""
        end = time.monotonic() + timeout
        while True:
            try:
                connection.execute(_WAIT.format(number))
            except psycopg.errors.LockNotAvailable:
                connection.execute("ROLLBACK")
                connection.execute(_BEGIN)
            else:
                return True
            left = end - time.monotonic()
            if polled(lambda: _tried(connection, number) or None, min(left, _ASK_SECONDS), self._clock):
                return True
            if left < _ASK_SECONDS:
                return False

    def _unlock(self, hold: _LockHold) -> None:
        hold.owner = 0
        self._awake.discard(hold.beat)
        with hold.lent:
            if os.getpid() != hold.process:
                return
            try:
                hold.connection.execute("ROLLBACK")
            except psycopg.Error as error:
                # Appends were refused from then on.
                said = self._connections.address.scrubbed(str(error))
                _log.warning("%s: its lock was lost while it was held: %s", hold.name, said)


def _tried(connection: Connection, number: int) -> bool:
    return connection.execute(_TRY.format(number)).fetchone() == (True,)
