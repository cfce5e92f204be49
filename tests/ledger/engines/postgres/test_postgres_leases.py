"""Leases in PostgreSQL: all of a store share one connection, and end one by one, or all with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from doubles.postgres_engine import PostgresEngine
from fakes import PATIENCE
from psycopg import sql

from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.postgres import leases as leases_of
from backstory.ledger.engines.postgres.connections import Connection
from backstory.ledger.engines.postgres.store import PostgresStore
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, erase

MANY = 50
"""More than a process may have connections."""


@pytest.fixture(params=[False, True], ids=["directly", "behind a pooler"])
def engine(request: pytest.FixtureRequest) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(pooled=request.param)
    yield engine
    engine.close()
    # Whatever happened, the server keeps nothing of it.
    assert holders(engine, until=[]) == []


def holders(engine: PostgresEngine, *, until: list[int] | None = None) -> list[int]:
    """Return the server processes that hold an advisory lock; it is waited until they are those of `until`."""
    end = time.monotonic() + PATIENCE
    while True:
        with engine.admin() as admin:
            rows = admin.execute(
                "SELECT DISTINCT pid FROM pg_locks JOIN pg_stat_activity USING (pid) "
                "WHERE locktype = 'advisory' AND datname = current_database() ORDER BY pid"
            ).fetchall()
        found = [int(str(pid)) for (pid,) in rows]
        if until is None or found == until or time.monotonic() > end:
            return found
        time.sleep(0.005)


def transactions(engine: PostgresEngine) -> int:
    """Return how many transactions are open and idle."""
    with engine.admin() as admin:
        return len(
            admin.execute(
                "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
            ).fetchall()
        )


def terminate(engine: PostgresEngine) -> None:
    (pid,) = holders(engine)
    with engine.admin() as admin:
        admin.execute("SELECT pg_terminate_backend(%s)", (pid,))
    assert holders(engine, until=[]) == []


def is_free(engine: PostgresEngine, name: str) -> bool:
    with engine.open().lease(STREAM, name) as mine:
        return mine


def session_of(store: PostgresStore) -> leases_of._Session:
    session = store._leases._session
    assert session is not None
    return session


def test_many_leases_take_one_connection_and_end_one_by_one(engine: PostgresEngine) -> None:
    store, other = engine.open(), engine.open()
    with ExitStack() as first, ExitStack() as second:
        for number in range(MANY):
            held = first if number % 2 else second
            assert held.enter_context(store.lease(STREAM, f"t{number}"))
        assert len(holders(engine)) == 1
        first.close()
        for number in range(MANY):
            with other.lease(STREAM, f"t{number}") as mine:
                assert mine == bool(number % 2)
        with other.lease(STREAM, "t0") as mine:
            assert not mine
            assert transactions(engine) == 1
        assert len(holders(engine)) == 1
    assert holders(engine) == []
    assert transactions(engine) == 0


def test_of_many_threads_one_has_the_lease(engine: PostgresEngine) -> None:
    store = engine.open()
    at_once, done = threading.Barrier(8), threading.Barrier(8)
    taken: list[bool] = []

    def take() -> None:
        at_once.wait(PATIENCE)
        with store.lease(STREAM, "t") as mine:
            taken.append(mine)
            done.wait(PATIENCE)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(taken) == [False] * 7 + [True]
    assert is_free(engine, "t")


def test_held_leases_keep_no_old_row_and_hold_nobody_up(engine: PostgresEngine) -> None:
    store, (line,) = engine.open(), chain(1)
    store.append(STREAM, [line], 0)
    with store.lease(STREAM, "t"), store.lease(STREAM, "u"):
        (pid,) = holders(engine)
        for _ in range(2):
            with engine.admin() as admin:
                kept = admin.execute(
                    "SELECT state, backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = %s", (pid,)
                ).fetchone()
            assert kept == ("idle in transaction", None, None)
            session_of(store).beat()
        with store.locked(STREAM):
            store.redact(STREAM, {1: erase(line, 0)})
        assert lines_of(store) == [erase(line, 0)]


def test_a_beat_begins_a_new_transaction_and_keeps_the_leases(engine: PostgresEngine) -> None:
    store = engine.open()
    with store.lease(STREAM, "t"):
        (pid,) = holders(engine)

        def begun() -> object:
            with engine.admin() as admin:
                return admin.execute(
                    "SELECT xact_start FROM pg_stat_activity WHERE pid = %s AND state = 'idle in transaction'", (pid,)
                ).fetchone()

        before = begun()
        session_of(store).beat()
        assert None is not begun() != before
        assert holders(engine) == [pid]
        assert not is_free(engine, "t")
        shown = session_of(store)._connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
        assert shown == ("30s",)


def test_no_limit_of_the_server_on_transactions_ends_a_lease_or_a_lock(engine: PostgresEngine) -> None:
    with engine.admin() as admin:
        limits = ["idle_in_transaction_session_timeout"]
        if admin.info.server_version >= 170000:
            limits.append("transaction_timeout")
        for limit in limits:
            admin.execute(f"ALTER DATABASE {engine.database} SET {limit} = '200ms'".encode())
    try:
        store = engine.open()
        with store.lease(STREAM, "monday"), store.locked(STREAM):
            connection = session_of(store)._connection
            connection.execute("SELECT pg_sleep(0.3)")
            session_of(store).beat()
            connection.execute("SELECT pg_sleep(0.3)")
            store.append(STREAM, [chain(1)[0]], 0)
    finally:
        with engine.admin() as admin:
            for limit in limits:
                admin.execute(f"ALTER DATABASE {engine.database} RESET {limit}".encode())


def test_what_is_lost_with_a_connection_is_told_once_and_harms_no_later_lease(
    engine: PostgresEngine, caplog: pytest.LogCaptureFixture
) -> None:
    store = engine.open()
    with ExitStack() as lost:
        for name in "tuv":
            assert lost.enter_context(store.lease(STREAM, name))
        terminate(engine)
        with store.lease(STREAM, "w") as mine, store.lease(STREAM, "t") as again:
            assert mine
            assert again
            lost.close()
            assert not is_free(engine, "t")
            assert not is_free(engine, "w")
        assert is_free(engine, "t")
    warnings = [record.getMessage() for record in caplog.records if record.name == leases_of.__name__]
    assert len(warnings) == 1
    assert "that held leases (3) was lost" in warnings[0]


@pytest.mark.parametrize("finder", ["beat", "give back"])
def test_a_loss_is_told_by_whatever_finds_it(
    engine: PostgresEngine, caplog: pytest.LogCaptureFixture, finder: str
) -> None:
    store = engine.open()
    with store.lease(STREAM, "t"):
        terminate(engine)
        if finder == "beat":
            session_of(store).beat()
            assert "that held leases (1) was lost" in caplog.text
    assert caplog.text.count("that held leases (1) was lost") == 1
    assert is_free(engine, "t")


def spelled(statement: str | sql.Composable) -> str:
    return statement if isinstance(statement, str) else statement.as_string()


@pytest.mark.parametrize("fault", ["fails", "is interrupted"])
@pytest.mark.parametrize("name", ["_TRY", "_UNLOCK", "_NEXT", "_END"])
def test_a_statement_that_fails_or_is_interrupted_leaves_no_lock(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, name: str, fault: str
) -> None:
    store, execute = engine.open(), Connection.execute
    text = spelled(getattr(leases_of, name))

    def interrupted(self: Connection, query: str | sql.Composable, *args: Any, **kwargs: Any) -> Any:
        found = execute(self, query, *args, **kwargs)  # type: ignore[arg-type]
        if spelled(query).startswith(text.partition("{")[0]):
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patch, suppress(StoreError, KeyboardInterrupt):
        if fault == "fails":
            patch.setattr(leases_of, name, sql.SQL(text + "; SELECT 1 / 0"))  # type: ignore[arg-type]
        else:
            patch.setattr(Connection, "execute", interrupted)
        with store.lease(STREAM, "t"), store.lease(STREAM, "u"):
            session_of(store).beat()
    assert holders(engine, until=[]) == []
    with store.lease(STREAM, "t") as mine, store.lease(STREAM, "u"):
        assert mine
    assert holders(engine) == []


def test_a_forked_child_leaves_the_leases_to_the_parent(engine: PostgresEngine) -> None:
    store = engine.open()
    with store.lease(STREAM, "t"), store.lease(STREAM, "u"), store.locked(STREAM):
        pids = holders(engine)
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            # The server may notice the child's end a moment later.
            assert holders(engine, until=pids) == pids
            with engine.open().lease(STREAM, "t") as mine:
                assert not mine
    if not child:
        # It has left the blocks.
        with store.lease(STREAM, "t") as mine, store.lease(STREAM, "own") as own:
            os._exit(0 if own and not mine else 1)


def test_a_server_process_that_hangs_holds_nobody_up_for_good(engine: PostgresEngine) -> None:
    store = engine.open()
    taken: list[bool] = []

    def take(name: str) -> None:
        # The thread whose statement gets no answer tries again, on a connection of its own.
        with store.lease(STREAM, name) as mine:
            taken.append(mine)

    with store.lease(STREAM, "t"):
        (pid,) = holders(engine)
        session = store._leases._session
        assert session is not None
        # Of this connection alone: on a busy machine a sound server may take as long.
        session._connection.patience = 0.2
        os.kill(pid, signal.SIGSTOP)
        try:
            threads = [threading.Thread(target=take, args=(f"u{number}",)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert taken == [True] * 8
