"""The PostgreSQL engine: appends by the server's own function, a hundred streams in each transaction."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import psycopg

from backstory.ledger.core.commit import head_of, prev_of
from backstory.ledger.engines.postgres.holds import lock_of
from backstory.ledger.engines.postgres.migrating import migrate
from benchmarks.many_streams.engines import on_disk
from benchmarks.many_streams.lines import lines
from benchmarks.private_postgres import Server

__all__ = ["Postgres"]

_AT_ONCE = 100
_APPEND = """
SELECT outcome FROM backstory.append(
    %b::text[], %s::bigint[], %s::bigint[], %s::bigint[], %b::text[], %s::integer[], %b::bytea[], %b::text[], %s, %s
)
"""


class Postgres:
    """A private server with its default settings."""

    name = "PostgreSQL"
    replicas = 1

    def __init__(self, folder: Path) -> None:
        del folder  # The server chooses one that its user may write to.
        self._server = Server(durable=True)
        self.url = self._server.url()
        migrate(self.url)

    def load(self, count: int) -> None:
        waiting = lines(count)
        with psycopg.connect(self.url, autocommit=True) as connection:
            while some := list(itertools.islice(waiting, _AT_ONCE)):
                outcomes = connection.execute(
                    _APPEND,
                    (
                        [name for name, _ in some],
                        # Nobody else is here, and a transaction has little room for locks.
                        [lock_of("the loading")] * len(some),
                        [None] * len(some),
                        [0] * len(some),
                        [prev_of(line) for _, line in some],
                        [1] * len(some),
                        [line for _, line in some],
                        [head_of(line).hash for _, line in some],
                        None,
                        None,
                    ),
                )
                assert {outcome for (outcome,) in outcomes} == {"appended"}

    def settle(self) -> None:
        # Autovacuum does so by itself, at a time of its own.
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    def bytes(self) -> int:
        """Return the bytes of the tables and their indexes; the write-ahead log is beside them."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE nspname = 'backstory' AND relkind IN ('r', 'p')"
            ).fetchone()
        assert row is not None
        return int(row[0])

    def log_bytes(self) -> int:
        """Return the bytes of the write-ahead log."""
        return on_disk(self._server.data / "pg_wal")

    def pids(self) -> list[int]:
        return self._server.pids

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def folders(self) -> Iterable[Path]:
        return [self._server.data]

    def close(self) -> None:
        self._server.remove()
