"""PostgreSQL for tests: one server for the run, in which each worker has a database that is emptied for each test."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from fakes import PATIENCE, FakeClock
from sizes import cannot

from backstory.ledger.engines.postgres.migrating import migrate
from backstory.ledger.engines.postgres.store import PostgresStore
from benchmarks.private_postgres import NotInstalledError, Pooler, Reached, Server, make_data, program
from doubles import run

_TABLES = ", ".join(f"backstory.{name}" for name in ("streams", "commits", "keys", "removed", "unclean", "seal"))
_kept: list[Server | Pooler] = []
"""What this process has started for the run; it outlives this process."""


class _Place(msgspec.Struct, frozen=True):
    """Where something of the run is."""

    folder: str
    port: int = 0


def _start() -> _Place:
    server = Server(within=run.folder(), template=template(), stays=True, autovacuum="off")
    _kept.append(server)
    run.until_the_end(server.pid, signal.SIGQUIT)
    return _Place(str(server.folder), server.port)


def _make_template() -> _Place:
    data = run.folder() / "template"
    make_data(data)
    return _Place(str(data))


def template() -> Path:
    """Return data with which a private server can begin."""
    return Path(run.once("template", _Place, _make_template).folder)


@cache
def _server() -> Reached | str:
    """Return the server of the run, or why there is none."""
    try:
        program("initdb")
    except NotInstalledError as error:
        return str(error)
    place = run.once("postgres", _Place, _start)
    return Reached(Path(place.folder), place.port)


@cache
def _pooler(server: Reached) -> int | str:
    """Return the port of the pooler of the run."""

    def start() -> _Place:
        pooler = Pooler(server, stays=True)
        _kept.append(pooler)
        run.until_the_end(pooler.pid)
        return _Place("", pooler.port)

    try:
        program("pgbouncer")
    except NotInstalledError as error:
        return str(error)
    return run.once("pooler", _Place, start).port


@cache
def _database(server: Reached) -> str:
    """Make the database of this worker."""
    name = f"worker{run.worker()}"
    migrate(server.create(name))
    return name


def the_server() -> Reached:
    """Return the server of the run."""
    server = _server()
    if not isinstance(server, Reached):
        cannot(server)
    assert isinstance(server, Reached)
    return server


def empty_database() -> str:
    """Return the name of this worker's database, emptied."""
    server = the_server()
    name = _database(server)
    with psycopg.connect(server.url(name)) as connection:
        connection.execute(f"TRUNCATE {_TABLES}")
    return name


def own_server(**more: Any) -> Server:
    """Start a server of a test's own, which may take it away."""
    the_server()
    return Server(**{"within": run.folder(), "template": template(), **more})


class PostgresEngine:
    """Opens stores in this worker's database, directly or through the pooler, or on a server of a test's own."""

    def __init__(self, own: Server | None = None, *, pooled: bool = False) -> None:
        self.server = own or the_server()
        self.database = "postgres" if own else empty_database()
        self._stores: list[PostgresStore] = []
        self.url = self.server.url(self.database)
        if pooled:
            port = _pooler(self.server)
            if not isinstance(port, int):
                cannot(port)
            assert isinstance(port, int)
            self.url = self.server.url(self.database, port=port)

    def open(
        self, *, lock_timeout: float = PATIENCE, clock: FakeClock | None = None, url: str | None = None
    ) -> PostgresStore:
        store = PostgresStore(url or self.url, lock_timeout=lock_timeout, clock=clock)
        self._stores.append(store)
        return store

    def admin(self, database: str | None = None) -> psycopg.Connection[tuple[object, ...]]:
        """Connect as the owner of everything, past the pooler."""
        return psycopg.connect(self.server.url(database or self.database), autocommit=True)

    @contextmanager
    def another_database(self, options: str = "") -> Iterator[str]:
        """Make an empty database that is there for the length of the block; return its name."""
        name = f"{self.database}_new"
        with self.admin() as admin:
            admin.execute(f"CREATE DATABASE {name} {options}".encode())
            yield name
            self.close()
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def files_with(self, text: str, database: str | None = None) -> list[Path]:
        """Return the files of a database that hold a text, once all is written."""
        with self.admin(database) as admin:
            admin.execute("CHECKPOINT")
            row = admin.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
        assert row is not None
        below = self.server.data / "base" / str(row[0])
        return [path for path in below.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]

    def close(self) -> None:
        for store in self._stores:
            store.close()
