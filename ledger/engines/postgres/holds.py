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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
from psycopg import sql

from backstory.ledger.core.errors import LockTimeoutError
from backstory.ledger.engines.postgres.awake import BEAT_SECONDS, STAY_OPEN, KeptAwake
from backstory.ledger.engines.postgres.connections import Connection, Connections

__all__ = ["Holds", "lease_of", "lock_of"]

_log = logging.getLogger(__name__)

# These carry no parameters: the portal of a statement with parameters would stay, and with it a snapshot that keeps the
# old versions of rows from being removed.
_BEGIN = sql.SQL(f"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {STAY_OPEN}; SET LOCAL lock_timeout = {{}}")
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
    """The locks of one store."""

    def __init__(self, connections: Connections, awake: KeptAwake) -> None:
        self._connections = connections
        self._awake = awake
        self.renew()

    def renew(self) -> None:
        """Hold nothing, in a forked child: what is held is the parent's."""
        self._guard = threading.Lock()
        self._holds: dict[str, _Hold] = {}

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
            if not opened.enter_context(self._transaction(stream, timeout, take)):
                raise LockTimeoutError(
                    f"{stream} in {self._connections.address.label} is held by another process just now: try again"
                )
            hold.token, hold.owner = token, threading.get_ident()
            hold.ended = opened.pop_all()

    @contextmanager
    def _transaction(self, stream: str, timeout: float, take: Callable[[Connection], bool]) -> Iterator[bool]:
        """Take advisory locks in a transaction that stays open for the length of the block."""
        process = os.getpid()
        opened, connection, taken = self._connections.retried(f"lock {stream}", lambda: self._begun(timeout, take))

        def beat() -> None:
            # A connection that is lost is found out by who uses it.
            with suppress(psycopg.Error):
                connection.execute("SELECT 1")

        with opened:
            self._awake.add(beat)
            try:
                yield taken
            finally:
                self._awake.discard(beat)
                if os.getpid() == process:
                    self._end(connection, stream, taken=taken)

    def _begun(self, timeout: float, take: Callable[[Connection], bool]) -> tuple[ExitStack, Connection, bool]:
        with ExitStack() as lent:
            connection = lent.enter_context(self._connections.lent_to_hold())
            connection.patience = max(connection.patience, timeout + BEAT_SECONDS)
            limit = max(1, round(timeout * 1000))
            connection.execute(_BEGIN.format(limit))
            taken = take(connection)
            return lent.pop_all(), connection, taken

    def _end(self, connection: Connection, stream: str, *, taken: bool) -> None:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error as error:
            if taken:
                # Appends were refused from then on.
                said = self._connections.address.scrubbed(str(error))
                _log.warning("%s: its lock was lost while it was held: %s", stream, said)


def _tried(connection: Connection, number: int) -> bool:
    return connection.execute(_TRY.format(number)).fetchone() == (True,)
