"""A PostgreSQL of the tests' own: one server per test process, emptied for each test."""

from __future__ import annotations

from functools import cache

import psycopg
from fakes import PATIENCE, FakeClock
from sizes import cannot

from backstory.ledger.log.store.postgres.migrating import migrate
from backstory.ledger.log.store.postgres.store import PostgresStore
from benchmarks.private_postgres import NotInstalledError, Pooler, Server

_TABLES = ", ".join(f"backstory.{name}" for name in ("streams", "commits", "keys", "removed", "unclean", "seal"))


@cache
def _server() -> Server | str:
    """Return the server, or why there is none."""
    try:
        server = Server()
    except NotInstalledError as error:
        return str(error)
    migrate(server.url())
    return server


@cache
def _pooler(server: Server) -> Pooler | str:
    try:
        return Pooler(server)
    except NotInstalledError as error:
        return str(error)


def the_server() -> Server:
    """Return the server of this process, empty."""
    server = _server()
    if not isinstance(server, Server):
        cannot(server)
    assert isinstance(server, Server)
    with psycopg.connect(server.url()) as connection:
        connection.execute(f"TRUNCATE {_TABLES}")
    return server


class PostgresEngine:
    """Opens stores on the server, or through the pooler before it."""

    def __init__(self, *, pooled: bool = False) -> None:
        self.server = the_server()
        self._stores: list[PostgresStore] = []
        self.url = self.server.url()
        if pooled:
            pooler = _pooler(self.server)
            if not isinstance(pooler, Pooler):
                cannot(pooler)
            assert isinstance(pooler, Pooler)
            self.url = self.server.url(port=pooler.port)

    def open(
        self, *, lock_timeout: float = PATIENCE, clock: FakeClock | None = None, url: str | None = None
    ) -> PostgresStore:
        store = PostgresStore(url or self.url, lock_timeout=lock_timeout, clock=clock)
        self._stores.append(store)
        return store

    def admin(self) -> psycopg.Connection[tuple[object, ...]]:
        """Connect as the owner of everything, past the pooler."""
        return psycopg.connect(self.server.url(), autocommit=True)

    def close(self) -> None:
        for store in self._stores:
            store.close()
