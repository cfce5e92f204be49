"""Locks and leases: advisory locks of a transaction that stays open, each on a connection of its own.

They end with the transaction, so with the connection and with its process, and a pooler that lends connections by the
transaction keeps them where they are (docs/adr/0007-a-lock-is-an-open-transaction.md). The server ends a transaction
that is silent for half a minute, as after a power cut at the holder's; a thread here keeps those of the living awake.

Who holds a stream's lock holds a token as well, a random advisory lock of its own. With it the server can see that an
append comes from the holder, and that the lock is still held.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
from psycopg import sql

from backstory.ledger.concurrency.forks import register, start_thread
from backstory.ledger.core.errors import LockTimeoutError
from backstory.ledger.log.clock import Clock
from backstory.ledger.log.store.postgres.connections import Connection, Connections, is_lost, retried
from backstory.ledger.log.store.postgres.names import lease_of, lock_of

__all__ = ["Holds"]

_log = logging.getLogger(__name__)

_SILENCE_SECONDS = 30
_BEAT_SECONDS = 8.0
# These carry no parameters: the portal of a statement with parameters would stay, and with it a snapshot that keeps the
# old versions of rows from being removed.
_BEGIN = sql.SQL(
    "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; "
    "SET LOCAL idle_in_transaction_session_timeout = {silence}; SET LOCAL lock_timeout = {timeout}"
)
_WAIT = sql.SQL("SELECT pg_advisory_xact_lock({})")
_TRY = sql.SQL("SELECT pg_try_advisory_xact_lock({})")


class _Hold:
    """One stream's lock among the threads of this process; the thread that has it may take it again."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0
        self.owner = 0
        self.token = 0
        self.users = 0
        """How many threads have it or wait for it."""
        self.ended = ExitStack()


class Holds:
    """The locks and leases of one store."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock
        self.renew()
        register(self)

    def renew(self) -> None:
        """Hold nothing, in a forked child: what is held is the parent's."""
        self._guard = threading.Lock()
        self._holds: dict[str, _Hold] = {}
        self._open: set[Connection] = set()
        self._beating = False
        self._stopped = threading.Event()

    def token(self, stream: str) -> int | None:
        """Return the token of a stream's lock if this thread holds it, otherwise None."""
        hold = self._holds.get(stream)
        return hold.token if hold is not None and hold.owner == threading.get_ident() else None

    @contextmanager
    def held(self, stream: str, *, wait: bool) -> Iterator[None]:
        """Hold a stream's lock; see `EventStore.locked`."""
        timeout = self._connections.timeout if wait else 0.0
        hold = self._joined(stream)
        try:
            if not hold.lock.acquire(timeout=timeout):
                raise LockTimeoutError(f"{stream} is still locked by another thread after {timeout:g} s: try again")
            try:
                if hold.depth == 0:
                    self._take(stream, hold, timeout)
                hold.depth += 1
                try:
                    yield
                finally:
                    hold.depth -= 1
                    if hold.depth == 0:
                        hold.owner = 0
                        hold.ended.close()
            finally:
                hold.lock.release()
        finally:
            self._left(stream, hold)

    def _joined(self, stream: str) -> _Hold:
        with self._guard:
            hold = self._holds.setdefault(stream, _Hold())
            hold.users += 1
            return hold

    def _left(self, stream: str, hold: _Hold) -> None:
        with self._guard:
            hold.users -= 1
            if not hold.users and self._holds.get(stream) is hold:
                del self._holds[stream]

    def _take(self, stream: str, hold: _Hold, timeout: float) -> None:
        token = secrets.randbits(63)

        def take(connection: Connection) -> bool:
            if timeout:
                connection.execute(_WAIT.format(lock_of(stream)))
            elif not _tried(connection, lock_of(stream)):
                return False
            return _tried(connection, token)

        with ExitStack() as opened:
            if not opened.enter_context(self._transaction(f"lock {stream}", timeout, take)):
                raise LockTimeoutError(
                    f"{stream} in {self._connections.address.label} is held by another process just now: try again"
                )
            hold.token, hold.owner = token, threading.get_ident()
            hold.ended = opened.pop_all()

    @contextmanager
    def lease(self, stream: str, name: str) -> Iterator[bool]:
        """Try to hold a lease; see `EventStore.lease`."""
        number = lease_of(stream, name)
        what = f"take the lease {name!r} of {stream}"
        with self._transaction(what, 0.0, lambda connection: _tried(connection, number)) as taken:
            yield taken

    @contextmanager
    def _transaction(self, doing: str, timeout: float, take: Callable[[Connection], bool]) -> Iterator[bool]:
        """Take advisory locks in a transaction that stays open for the length of the block."""
        opened, connection, taken = self._begun(doing, timeout, take)
        with opened:
            with self._guard:
                self._open.add(connection)
            self._beat()
            try:
                yield taken
            finally:
                with self._guard:
                    held = connection in self._open
                    self._open.discard(connection)
                try:
                    connection.execute("ROLLBACK")
                except psycopg.Error as error:
                    if held and taken:
                        # Appends were refused from then on.
                        said = self._connections.address.scrubbed(str(error))
                        _log.warning("what held the lock to %s was lost meanwhile: %s", doing, said)

    def _begun(
        self, doing: str, timeout: float, take: Callable[[Connection], bool]
    ) -> tuple[ExitStack, Connection, bool]:
        """Begin a transaction and take the locks, on another connection if that from the pool turns out to be dead."""
        lost: list[psycopg.Error] = []

        def attempt() -> tuple[ExitStack, Connection, bool] | None:
            with ExitStack() as lent:
                try:
                    connection = lent.enter_context(self._connections.lent_to_hold())
                    connection.patience = max(connection.patience, timeout + _BEAT_SECONDS)
                    limit = max(1, round(timeout * 1000))
                    connection.execute(_BEGIN.format(silence=_SILENCE_SECONDS * 1000, timeout=limit))
                    taken = take(connection)
                    return lent.pop_all(), connection, taken
                except psycopg.Error as error:
                    if not is_lost(error):
                        raise self._connections.refusal(doing, error) from error
                    lost.append(error)
                    return None

        found = retried(attempt, self._connections.timeout, self._clock)
        if found is None:
            raise self._connections.refusal(doing, lost[-1]) from lost[-1]
        return found

    def _beat(self) -> None:
        """Start the thread that keeps the open transactions awake, unless it runs."""
        with self._guard:
            if self._beating:
                return
            self._beating = True
        if start_thread("backstory-postgres-locks", self._keep_awake) is None:
            self._beating = False

    def _keep_awake(self) -> None:
        stopped = self._stopped
        while not stopped.wait(_BEAT_SECONDS):
            with self._guard:
                connections = list(self._open)
                if not connections:
                    self._beating = False
                    return
            for connection in connections:
                # One that is lost is found out by who uses it.
                with suppress(psycopg.Error):
                    connection.execute("SELECT 1")

    def close(self) -> None:
        """End the thread; what is held stays held."""
        with self._guard:
            if not self._open:
                self._stopped.set()
                self._stopped, self._beating = threading.Event(), False


def _tried(connection: Connection, number: int) -> bool:
    return connection.execute(_TRY.format(number)).fetchone() == (True,)
