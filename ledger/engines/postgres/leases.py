"""Leases: advisory locks of a session. All leases of a store share one connection, on which a transaction is open.

The open transaction is what keeps a pooler from lending the session to another client. Locks of the session, unlike
those of a transaction, are given back one by one. All of them end with the connection, so with its process. A
connection on which they may be left is closed and never given back.

The server would let one session take the same lock twice, so the numbers that are held are kept here as well.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
from psycopg import sql

from backstory.ledger.engines.postgres.awake import STAY_OPEN, KeptAwake
from backstory.ledger.engines.postgres.connections import Connection, Connections
from backstory.ledger.engines.postgres.holds import lease_of

__all__ = ["Leases"]

_log = logging.getLogger(__name__)

# These carry no parameters: the portal of a statement with parameters would stay, and with it a snapshot that keeps the
# old versions of rows from being removed.
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {STAY_OPEN}"
_TRY = sql.SQL("SELECT pg_try_advisory_lock({})")
_UNLOCK = sql.SQL("SELECT pg_advisory_unlock({})")
# Between the two transactions of a chain there is no moment in which a pooler could lend the session to another.
_NEXT = f"ROLLBACK AND CHAIN; {STAY_OPEN}"
_END = "SELECT pg_advisory_unlock_all(); ROLLBACK"


class Leases:
    """The leases of one store."""

    def __init__(self, connections: Connections, awake: KeptAwake) -> None:
        self._connections = connections
        self._awake = awake
        self.renew()

    def renew(self) -> None:
        """Hold nothing, in a forked child: what is held is the parent's."""
        self._opening = threading.Lock()
        self._session: _Session | None = None

    @contextmanager
    def lease(self, stream: str, name: str) -> Iterator[bool]:
        """Try to hold a lease; see `EventStore.lease`."""
        number = lease_of(stream, name)
        session = self._connections.retried(f"take the lease {name!r} of {stream}", lambda: self._taken(number))
        try:
            yield session is not None
        finally:
            if session is not None:
                session.give_back(number)

    def _taken(self, number: int) -> _Session | None:
        """Take a lease, and return the session that has it; None if it is held elsewhere."""
        while True:
            session = self._joined()
            taken = session.take(number)
            if taken is not None:
                return session if taken else None

    def _joined(self) -> _Session:
        """Return the session that is open, or open one."""
        patience = max(Connection.patience, self._connections.timeout)
        if not self._opening.acquire(timeout=patience):
            raise psycopg.OperationalError(f"another thread has been connecting for {patience:g} s")
        try:
            if self._session is None or not self._session.is_open:
                self._session = _Session(self._connections, self._awake)
            return self._session
        finally:
            self._opening.release()


class _Session:
    """A session of the server, and the leases that are held in it; it ends when the last one is given back."""

    def __init__(self, connections: Connections, awake: KeptAwake) -> None:
        self._address = connections.address
        self._awake = awake
        self._process = os.getpid()
        self._mutex = threading.Lock()
        self._numbers: set[int] = set()
        with ExitStack() as lent:
            self._connection = lent.enter_context(connections.lent(to_hold=True))
            self._connection.execute(_BEGIN)
            self._lent = lent.pop_all()
        self.is_open = True
        awake.add(self.beat)

    def take(self, number: int) -> bool | None:
        """Try to take a lease, without waiting for its holder; None where the session has ended meanwhile."""
        with self._mutex:
            if not self.is_open:
                return None
            if number in self._numbers:
                return False
            # An error does not say whether the lock was taken.
            with self._or_dropped(spared=()):
                taken = self._connection.execute(_TRY.format(number)).fetchone() == (True,)
                if taken:
                    self._numbers.add(number)
            if not self._numbers:
                self._end()
            return taken

    def give_back(self, number: int) -> None:
        """Give a lease back; it may have been lost."""
        if os.getpid() != self._process:
            return
        with self._mutex:
            if self.is_open and self._numbers == {number}:
                self._end()
            elif self.is_open:
                with self._or_dropped():
                    self._connection.execute(_UNLOCK.format(number))
            self._numbers.discard(number)

    def beat(self) -> None:
        """Go on to the next transaction, so that none grows old, unless the session is in use at this very moment."""
        if not self._mutex.acquire(blocking=False):
            return
        try:
            if self.is_open:
                with self._or_dropped():
                    self._connection.execute(_NEXT)
        finally:
            self._mutex.release()

    def _end(self) -> None:
        """Give the connection back, without any lock."""
        with self._or_dropped():
            self._connection.execute(_END)
            self._close()

    @contextmanager
    def _or_dropped(self, spared: tuple[type[psycopg.Error], ...] = (psycopg.Error,)) -> Iterator[None]:
        """Break the connection where the block fails; errors that are spared are not raised."""
        try:
            yield
        except BaseException as error:
            self._drop(error)
            if not isinstance(error, spared):
                raise

    def _drop(self, error: BaseException) -> None:
        """Break the connection, upon which the server ends all locks of the session."""
        self._connection.close()
        self._close()
        if self._numbers:
            _log.warning(
                "the connection to %s that held leases (%d) was lost: %s",
                self._address.label, len(self._numbers), self._address.scrubbed(str(error)) or type(error).__name__,
            )  # fmt: skip

    def _close(self) -> None:
        self.is_open = False
        self._awake.discard(self.beat)
        self._lent.close()
