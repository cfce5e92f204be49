"""What becomes of a PostgreSQL store when connections, holders of locks and the server are lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from doubles.cutting_proxy import CuttingProxy
from doubles.postgres_engine import PostgresEngine, own_server
from fakes import PATIENCE

from backstory.ledger.core.commit import head_of
from backstory.ledger.core.errors import StoreError, UnknownOutcomeError, WrongExpectedVersionError
from backstory.ledger.engines.postgres.connections import Connection
from backstory.ledger.engines.postgres.migrating import migrate
from backstory.ledger.engines.postgres.store import PostgresStore
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, fill
from benchmarks.private_postgres import Server

APPEND = b"backstory.append("


@pytest.fixture
def engine() -> Iterator[PostgresEngine]:
    engine = PostgresEngine()
    yield engine
    engine.close()


@pytest.fixture
def proxy(engine: PostgresEngine) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(engine.server.port)
    yield proxy
    proxy.close()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def behind(engine: PostgresEngine, proxy: CuttingProxy, lock_timeout: float = PATIENCE) -> PostgresStore:
    return engine.open(url=engine.server.url(engine.database, port=proxy.port), lock_timeout=lock_timeout)


# An answer that is lost.


@pytest.mark.parametrize("delivered", [True, False], ids=["the answer", "the request"])
def test_lines_whose_answer_is_lost_are_sent_again_and_there_once(
    engine: PostgresEngine, proxy: CuttingProxy, delivered: bool
) -> None:
    lines = chain(4)
    store = behind(engine, proxy)
    store.append(STREAM, [lines[0]], 0)
    proxy.cut(APPEND, delivered=delivered)
    store.append(STREAM, lines[1:3], 1)
    assert proxy.cuts == 1
    store.append(STREAM, [lines[3]], 3)
    assert lines_of(engine.open()) == lines


def test_lines_that_were_written_are_recognised_though_others_follow(
    engine: PostgresEngine, proxy: CuttingProxy
) -> None:
    lines = chain(3)
    store, other = behind(engine, proxy), engine.open()
    store.append(STREAM, [lines[0]], 0)
    proxy.cut(APPEND, delivered=True, then_refuse=True)
    writing = threading.Thread(target=store.append, args=(STREAM, [lines[1]], 1))
    writing.start()
    wait_until(lambda: other.head(STREAM).seq == 2)
    other.append(STREAM, [lines[2]], 2)
    proxy.refuses = False
    writing.join(PATIENCE)
    assert not writing.is_alive()
    assert lines_of(other) == lines


def test_who_was_not_written_is_told_what_another_wrote(engine: PostgresEngine, proxy: CuttingProxy) -> None:
    first, other_line = chain(1)[0], chain(1, after=head_of(chain(1)[0]), text="other")[0]
    store, other = behind(engine, proxy), engine.open()
    store.append(STREAM, [first], 0)
    proxy.cut(APPEND, delivered=False, then_refuse=True)
    told: list[BaseException] = []

    def write() -> None:
        try:
            store.append(STREAM, [chain(2)[1]], 1)
        except WrongExpectedVersionError as error:
            told.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    wait_until(lambda: proxy.cuts == 1)
    other.append(STREAM, [other_line], 1)
    proxy.refuses = False
    writing.join(PATIENCE)
    assert [type(error) for error in told] == [WrongExpectedVersionError]
    assert lines_of(other) == [first, other_line]


def test_an_outcome_that_cannot_be_learned_is_an_error_of_its_own(engine: PostgresEngine, proxy: CuttingProxy) -> None:
    store = behind(engine, proxy, lock_timeout=0.1)
    proxy.cut(APPEND, delivered=True, then_refuse=True)
    with pytest.raises(UnknownOutcomeError, match="did not answer whether commit 1 is written"):
        store.append(STREAM, [chain(1)[0]], 0)
    proxy.refuses = False
    wait_until(lambda: store.head(STREAM).seq == 1)
    store.append(STREAM, [chain(2)[1]], 1)
    assert lines_of(store) == chain(2)


def test_what_was_never_sent_is_no_unknown_outcome(engine: PostgresEngine, proxy: CuttingProxy) -> None:
    store = behind(engine, proxy, lock_timeout=0.1)
    store.close()
    proxy.refuses = True
    with pytest.raises(StoreError, match="is the server running") as told:
        store.append(STREAM, [chain(1)[0]], 0)
    assert not isinstance(told.value, UnknownOutcomeError)


def test_a_server_process_that_wakes_up_late_writes_nothing_twice(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lines = engine.open(url=f"{engine.url}?application_name=sleeper"), chain(3)
    store.append(STREAM, [lines[0]], 0)
    with engine.admin() as admin:
        sleeping = [
            int(str(pid))
            for (pid,) in admin.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'sleeper'")
        ]
    assert len(sleeping) == 1
    monkeypatch.setattr(Connection, "patience", 0.2)
    monkeypatch.setattr(store._connections, "timeout", 0.0)
    for pid in sleeping:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(UnknownOutcomeError):
            store.append(STREAM, [lines[1]], 1)
        monkeypatch.setattr(store._connections, "timeout", PATIENCE)
        store.append(STREAM, [lines[1]], 1)
        store.append(STREAM, [lines[2]], 2)
    finally:
        for pid in sleeping:
            os.kill(pid, signal.SIGCONT)
    with engine.admin() as admin:
        wait_until(
            lambda: (
                admin.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", (sleeping,)).fetchone()
                == (0,)
            )
        )
    assert lines_of(engine.open()) == lines


def test_an_answer_that_comes_bit_by_bit_is_waited_for(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "patience", 0.4)
    store = engine.open(lock_timeout=0)
    rows = store._connections.rows("count", "SELECT repeat('x', 10000), pg_sleep(0.15) FROM generate_series(1, 5)")
    assert len(rows) == 5


def test_a_forked_child_may_drop_what_followed_in_the_parent(
    engine: PostgresEngine,
) -> None:
    store = engine.open()
    store.append(STREAM, [chain(1)[0]], 0)
    following = store.follow(STREAM)
    next(following)
    child = os.fork()
    if not child:
        try:
            following.close()  # type: ignore[attr-defined]
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    store.append(STREAM, [chain(2)[1]], 1)
    assert next(following).line == chain(2)[1]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that may crash."""
    server = own_server()
    migrate(server.url())
    yield server
    server.remove()


@pytest.fixture
def crashing(server: Server) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(server)
    yield engine
    engine.close()


def test_a_store_outlives_a_crash_of_the_server(crashing: PostgresEngine, server: Server) -> None:
    store = crashing.open()
    lines = chain(30)
    store.append(STREAM, [lines[0]], 0)
    following = store.follow(STREAM)
    assert next(following).line == lines[0]
    writing = threading.Thread(target=fill, args=(store, STREAM, lines[1:]))
    server.stop(signal.SIGQUIT)
    try:
        writing.start()
    finally:
        server.start()
    assert [next(following).line for _ in lines[1:]] == lines[1:]
    writing.join(PATIENCE)
    assert lines_of(store) == lines
    store.remove("users")


def test_a_crash_of_the_server_hides_no_later_commit(crashing: PostgresEngine, server: Server) -> None:
    store = crashing.open()
    store.append(STREAM, [chain(1)[0]], 0)
    with crashing.admin() as admin:
        # Numbers of transactions that leave nothing behind: the server has not written them down yet, and gives the
        # same ones again after a crash.
        for _ in range(100):
            admin.execute("BEGIN; SELECT pg_current_xact_id(); ROLLBACK")
        _, position = store.changed(None)
        server.stop(signal.SIGQUIT)
    server.start()
    store.append("users/bob/ledger", [chain(1)[0]], 0)
    names, position = store.changed(position)
    assert "users/bob/ledger" in names
    assert "users/bob/ledger" not in store.changed(position)[0]
    store.remove("users")


def test_where_the_newest_commit_is_lost_everything_is_looked_at(engine: PostgresEngine) -> None:
    """As after a standby without it has taken over; new commits may have come since, with any numbers."""
    store = engine.open()
    store.append(STREAM, [chain(1)[0]], 0)
    store.append("users/bob/ledger", [chain(1)[0]], 0)
    _, position = store.changed(None)
    with engine.admin() as admin:
        admin.execute(
            "DELETE FROM backstory.commits c USING backstory.streams s "
            "WHERE s.id = c.stream AND s.name = 'users/bob/ledger'"
        )
    store.append("users/eve/ledger", [chain(1)[0]], 0)
    names, position = store.changed(position)
    assert STREAM in names
    end = time.monotonic() + PATIENCE
    # It may be named again while another test has a transaction open on this server.
    while STREAM in store.changed(position)[0]:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_dump_that_was_restored_on_another_server_hides_no_commit_and_is_put_right(
    engine: PostgresEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """The numbers of its transactions mean nothing there, and may be far ahead."""
    store = engine.open()
    store.append(STREAM, [chain(1)[0]], 0)
    with engine.admin() as admin:
        admin.execute("UPDATE backstory.commits SET xid = xid + 1000000000")
    _, position = store.changed(None)
    # Seen on the server of the dump.
    beyond = json.dumps([json.loads(position)[0] + 2000000000, *json.loads(position)[1:]])
    assert store.changed(beyond)[0] == [STREAM]
    store.append("users/bob/ledger", [chain(1)[0]], 0)
    assert "users/bob/ledger" in store.changed(position)[0]
    caplog.clear()
    engine.open()
    assert "run `backstory migrate`" in caplog.text
    migrate(engine.url)
    caplog.clear()
    store = engine.open()
    assert "migrate" not in caplog.text
    _, position = store.changed(position)
    store.append("users/bob/ledger", [chain(2)[1]], 1)
    names, _ = store.changed(position)
    assert "users/bob/ledger" in names
    assert STREAM not in names


def test_connections_that_the_server_ended_while_they_were_idle_are_replaced(engine: PostgresEngine) -> None:
    store = engine.open(url=f"{engine.url}?options=-cidle_session_timeout%3D50ms&application_name=idle")
    lines = chain(2)

    def is_alone() -> bool:
        with engine.admin() as admin:
            return not admin.execute("SELECT FROM pg_stat_activity WHERE application_name = 'idle'").fetchall()

    store.append(STREAM, [lines[0]], 0)
    wait_until(is_alone)
    store.append(STREAM, [lines[1]], 1)
    wait_until(is_alone)
    assert lines_of(store) == lines
    wait_until(is_alone)
    with store.locked(STREAM), store.lease(STREAM, "monday") as mine:
        assert mine


# Locks.

HOLDER = """
import sys, time
from backstory.ledger.engines.postgres.store import PostgresStore
store = PostgresStore(sys.argv[1])
with store.locked(sys.argv[2]), store.lease(sys.argv[2], "monday") as mine:
    print(mine, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("pooled", [False, True], ids=["directly", "behind a pooler"])
def test_locks_and_leases_die_with_their_holder(pooled: bool) -> None:
    engine = PostgresEngine(pooled=pooled)
    store = engine.open(lock_timeout=PATIENCE)
    with subprocess.Popen([sys.executable, "-c", HOLDER, engine.url, STREAM], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        with store.lease(STREAM, "monday") as mine:
            assert not mine
        holder.kill()
    store.append(STREAM, [chain(1)[0]], 0)

    def is_free() -> bool:
        with store.lease(STREAM, "monday") as mine:
            return mine

    wait_until(is_free)
    engine.close()


def test_a_holder_that_lost_its_lock_appends_nothing(engine: PostgresEngine) -> None:
    store = engine.open()
    with store.locked(STREAM):
        store.append(STREAM, [chain(1)[0]], 0)
        with engine.admin() as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' "
                "AND application_name = 'backstory' AND datname = current_database()"
            )
        with engine.open().locked(STREAM), pytest.raises(StoreError, match="held its lock was lost"):
            store.append(STREAM, [chain(2)[1]], 1)
    store.append(STREAM, [chain(2)[1]], 1)
    assert lines_of(store) == chain(2)


def test_a_forked_child_holds_nothing_and_has_connections_of_its_own(engine: PostgresEngine) -> None:
    lines = chain(3)
    store = engine.open(lock_timeout=5)
    with store.locked(STREAM):
        store.append(STREAM, [lines[0]], 0)
        child = os.fork()
        if not child:
            try:
                with store.locked("users/bob/ledger"):
                    store.append("users/bob/ledger", [chain(1)[0]], 0)
                os._exit(0 if lines_of(store) == lines[:1] else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        store.append(STREAM, [lines[1]], 1)
    store.append(STREAM, [lines[2]], 2)
    assert lines_of(store) == lines
    assert store.head("users/bob/ledger").seq == 1
