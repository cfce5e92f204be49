"""Connections: a pool of psycopg's, each statement a transaction of its own, and PostgreSQL's refusals in our words.

A statement that got no answer is made again only if its caller says that this does no harm.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import Params
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.disk.locks import polled
from backstory.ledger.engines.postgres.address import PostgresAddress

__all__ = ["Connection", "Connections", "is_lost"]

_T = TypeVar("_T")

_MOST = 8
"""How many connections a process has at most, besides those that hold locks and leases."""

_MOST_HELD = 32
"""How many connections of a process hold something at most: one for each lock, one for all leases."""

_POOL_SECONDS = 1.0
_UNMIGRATED = "the database has no tables of ours: run `backstory migrate`"
_HINTS: Mapping[type[psycopg.Error], str] = {
    errors.UndefinedTable: _UNMIGRATED,
    errors.InvalidSchemaName: _UNMIGRATED,
    errors.UndefinedFunction: _UNMIGRATED,
    errors.UndefinedColumn: _UNMIGRATED,
    errors.InsufficientPrivilege: "the role lacks the right: grant it as docs/how-to/postgres.md says",
    errors.ReadOnlySqlTransaction: "this is a standby, or default_transaction_read_only is on: connect to the primary, "
    "with target_session_attrs=read-write",
    errors.QueryCanceled: "raise statement_timeout for this role, unless an administrator cancelled it",
    errors.DiskFull: "free space on the disk of the server",
}


class Connection(psycopg.Connection[TupleRow]):
    """A connection on which no answer, or no more of it, is waited for longer than `patience` seconds."""

    patience = 10.0

    def wait(self, gen: Generator[Any, Any, _T], *args: Any, **kwargs: Any) -> _T:
        """Wait as psycopg does, but not forever: a server may be stopped, or cut off without a word."""
        try:
            return super().wait(_limited(gen, self.patience), *args, **kwargs)
        except _SilenceError:
            self.close()
            raise


class _SilenceError(psycopg.OperationalError):
    """The server did not answer in time."""


def _limited(gen: Generator[Any, Any, _T], seconds: float) -> Generator[Any, Any, _T]:
    """Pass a generator of psycopg's on; it gets control at least every tenth of a second."""
    end = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                end = time.monotonic() + seconds
            elif time.monotonic() > end:
                gen.close()
                raise _SilenceError(f"no answer within {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        value: _T = done.value
        return value


class Connections:
    """The connections of one store; safe for threads, and begun anew in a forked child.

    `timeout` is how many seconds a lost server is tried again for, and how long a lock is waited for.
    """

    def __init__(self, address: PostgresAddress, timeout: float, clock: Clock) -> None:
        self.address = address
        self.timeout = timeout
        self._clock = clock
        self._forgotten: list[object] = []
        """What a fork left behind. It is kept: the sockets in it are the parent's."""
        self._pools: dict[int, ConnectionPool[Connection]] = {}
        self.renew()

    def renew(self) -> None:
        """Leave the connections to the parent, in a forked child."""
        self._forgotten.append(self._pools)
        self._pools = {}
        self._guard = threading.Lock()

    def run(self, doing: str, work: Callable[[Connection], _T]) -> _T:
        """Return what `work` returns with a connection; made again where the connection is lost meanwhile.

        Args:
            doing: What is done and to what, for the error: `read users/ada/ledger`.
            work: Statements that may be made twice.

        Raises:
            StoreError: The server cannot be reached, or refuses.
            LockTimeoutError: It waited for a lock in vain.
        """

        def attempt() -> _T:
            with self.lent() as connection:
                return work(connection)

        return self.retried(doing, attempt)

    def retried(self, doing: str, attempt: Callable[[], _T]) -> _T:
        """Return what an attempt returns; made again where the connection is lost meanwhile. See `run`."""
        lost: list[psycopg.Error] = []

        def tried() -> tuple[_T] | None:
            try:
                return (attempt(),)
            except psycopg.Error as error:
                if not is_lost(error):
                    raise self.refusal(doing, error) from error
                lost.append(error)
                return None

        found = polled(tried, self.timeout, self._clock)
        if found is None:
            raise self.refusal(doing, lost[-1]) from lost[-1]
        return found[0]

    def rows(
        self, doing: str, query: LiteralString, params: Params | None = None, *, binary: bool = False
    ) -> list[TupleRow]:
        """Return the rows of a query that may be made twice; see `run`. `binary` is for long values of bytes."""
        return self.run(doing, lambda connection: connection.execute(query, params, binary=binary).fetchall())

    def row(self, doing: str, query: LiteralString, params: Params | None = None) -> TupleRow | None:
        """Return the first row of a query, None where there is none; see `rows`."""
        return next(iter(self.rows(doing, query, params)), None)

    @contextmanager
    def lent(self, *, to_hold: bool = False) -> Iterator[Connection]:
        """Lend a connection for one statement or transaction; `to_hold` for as long as a lock, or any lease, is held.

        Raises:
            psycopg.Error: As psycopg says it.
        """
        most = _MOST_HELD if to_hold else _MOST
        process, pool = os.getpid(), self._pool(most)
        try:
            connection = pool.getconn()
        except PoolClosed:
            # Another thread has just closed the store, which can be used again.
            pool = self._pool(most)
            connection = pool.getconn()
        except PoolTimeout as error:
            # The pool does not say why it has none.
            self.connected().close()
            raise psycopg.OperationalError(f"all {most} connections of this process are in use") from error
        connection.patience = max(Connection.patience, self.timeout)
        try:
            yield connection
        finally:
            # A child that was forked meanwhile leaves it to the parent.
            if os.getpid() == process:
                # It rolls back what is open, and drops a connection that is broken.
                with suppress(psycopg.Error, ValueError):
                    pool.putconn(connection)

    def connected(self) -> Connection:
        """Return a connection of its own, which the caller closes."""
        return Connection.connect(self.address.conninfo, autocommit=True, prepare_threshold=None)

    def _pool(self, most: int) -> ConnectionPool[Connection]:
        with self._guard:
            pool = self._pools.get(most)
            if pool is None or pool.closed:
                pool = self._pools[most] = ConnectionPool(
                    self.address.conninfo,
                    connection_class=Connection,
                    # A prepared statement would stay behind in the server connection of a pooler.
                    kwargs={"autocommit": True, "prepare_threshold": None},
                    min_size=0,
                    max_size=most,
                    timeout=_POOL_SECONDS,
                    reconnect_timeout=0,
                    num_workers=1,
                    name="backstory",
                    open=True,
                )
            return pool

    def limit(self, connection: Connection) -> None:
        """Have the transaction that is open wait for no lock longer than `timeout`, and be durable when it commits."""
        limit = f"{max(1, round(self.timeout * 1000))}ms"
        connection.execute(
            "SELECT set_config('lock_timeout', %s, true), CASE current_setting('synchronous_commit') WHEN 'off' "
            "THEN set_config('synchronous_commit', 'on', true) END",
            (limit,),
        )

    def refusal(self, doing: str, error: psycopg.Error) -> StoreError | LockTimeoutError:
        """Spell an error of PostgreSQL's in our own words, without the password."""
        where = self.address.label
        # Its primary message is a line; the whole would quote our statements, and how far they got.
        said = self.address.scrubbed(error.diag.message_primary or str(error)) or type(error).__name__
        if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
            return LockTimeoutError(
                f"cannot {doing} in {where}: another process keeps a lock after {self.timeout:g} s: "
                "end that process, or raise file_lock_timeout_seconds"
            )
        lost = "is the server running, and are host, port, database, user and password right?"
        otherwise = lost if is_lost(error) else "see the server's log"
        hint = next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), otherwise)
        return StoreError(f"cannot {doing} in {where}: {said}; {hint}")

    def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        with self._guard:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close()


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, or could not be made, rather than a statement refused."""
    if isinstance(error, errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow):
        return True
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate in (
        None,
        "08006",  # connection_failure
        "08003",  # connection_does_not_exist
        "08P01",  # a pooler says so where it has lost the server
        "53300",  # too_many_connections
        "25P03",  # idle_in_transaction_session_timeout
        "25P04",  # transaction_timeout
        "57P05",  # idle_session_timeout
        "58000",  # a pooler again
    )
