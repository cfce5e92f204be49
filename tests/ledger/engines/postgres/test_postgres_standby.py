"""A primary that is lost and its standby, which takes over: stores go on with it by themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from doubles.postgres_engine import own_server
from fakes import PATIENCE

from backstory.ledger.core.commit import head_of
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.engines.changes import StreamChanges
from backstory.ledger.engines.postgres.migrating import migrate
from backstory.ledger.engines.postgres.store import PostgresStore
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, fill

LINES = 2000
SOME = 20


class Pair:
    """A primary and its standby."""

    def __init__(self) -> None:
        self.primary = own_server()
        migrate(self.primary.url())
        self.standby = own_server(primary=self.primary, template=None)
        self.url = (
            f"postgresql://owner@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}/postgres"
            "?target_session_attrs=read-write"
        )
        self._stores: list[PostgresStore] = []

    def synchronous(self) -> None:
        """Let each commit wait for the standby."""
        with psycopg.connect(self.primary.url(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            wait_until(lambda: ("sync",) in admin.execute("SELECT sync_state FROM pg_stat_replication").fetchall())

    def open(self) -> PostgresStore:
        store = PostgresStore(self.url, lock_timeout=PATIENCE)
        self._stores.append(store)
        return store

    def take_over(self) -> None:
        """Let the standby be the primary."""
        with psycopg.connect(self.standby.url(), autocommit=True) as admin:
            admin.execute("SELECT pg_promote()")

    def remove(self) -> None:
        for store in self._stores:
            store.close()
        self.standby.remove()
        self.primary.remove()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.remove()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_synchronous_standby_that_takes_over_has_all_that_was_acknowledged(pair: Pair) -> None:
    """Whoever writes, follows or asks what has changed is not restarted."""
    pair.synchronous()
    store, reader, watcher = pair.open(), pair.open(), pair.open()
    lines, followed, over = chain(LINES), list[bytes](), threading.Event()
    acknowledged = 0
    store.append("users/quiet/ledger", [lines[0]], 0)
    changes = StreamChanges(watcher)
    list(changes.find(lambda _: True))

    def write() -> None:
        nonlocal acknowledged
        for seq, line in enumerate(lines):
            if over.is_set():
                return
            store.append(STREAM, [line], seq)
            acknowledged = seq + 1

    def follow() -> None:
        followed.extend(record.line for record in reader.follow(STREAM))

    # Of a test that failed none may keep the process from ending.
    writing, following = (threading.Thread(target=work, daemon=True) for work in (write, follow))
    writing.start()
    following.start()
    wait_until(lambda: acknowledged >= SOME)
    pair.primary.kill()
    before = acknowledged
    pair.take_over()
    wait_until(lambda: acknowledged >= before + SOME)
    assert STREAM in changes.find(lambda _: True)
    over.set()
    writing.join(PATIENCE)
    assert lines_of(pair.open()) == lines[:acknowledged]
    wait_until(lambda: len(followed) == acknowledged)
    store.remove("users")
    following.join(PATIENCE)
    assert not following.is_alive()
    assert followed == lines[:acknowledged]


def test_a_standby_without_the_newest_commits_is_noticed(pair: Pair) -> None:
    """As one that is not synchronous may be: nobody goes on as if they were there."""
    store, lines = pair.open(), chain(SOME)
    fill(store, STREAM, lines[:3])
    with psycopg.connect(pair.primary.url()) as admin:
        (written,) = admin.execute("SELECT pg_current_wal_lsn()::text").fetchone() or ("",)
    with psycopg.connect(pair.standby.url(), autocommit=True) as admin:
        wait_until(
            lambda: admin.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)).fetchone() == (True,)
        )
    follower = store.follow(STREAM)
    pair.standby.stop()
    store.append(STREAM, [lines[3]], 3)
    _, position = store.changed(None)
    assert [head_of(next(follower).line).seq for _ in range(4)] == [1, 2, 3, 4]
    pair.primary.kill()
    pair.standby.start()
    pair.take_over()
    assert STREAM in store.changed(position)[0]
    with pytest.raises(CorruptLogError):
        next(follower)
    assert lines_of(store) == lines[:3]
