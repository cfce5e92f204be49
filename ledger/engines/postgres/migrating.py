"""Migrations: plain SQL files that make the tables, each run once, in order, in a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import psycopg

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.errors import StoreError
from backstory.ledger.engines.postgres.address import PostgresAddress
from backstory.ledger.engines.postgres.changes import leave_the_other_server
from backstory.ledger.engines.postgres.connections import Connection, Connections

__all__ = ["migrate", "must_be_migrated"]

_LOCK = 0x6261636B73746F72
"""The advisory lock of all who migrate; its digits spell "backstor"."""

_BEGIN = """
CREATE SCHEMA IF NOT EXISTS backstory;
CREATE TABLE IF NOT EXISTS backstory.migrations (
    version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
);
"""


@cache
def _migrations() -> Sequence[tuple[int, str, bytes]]:
    """Return version, name and text of each file, oldest first."""
    folder = files(__package__) / "migrations"
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(int(name[:4]), name, (folder / name).read_bytes()) for name in found]


def migrate(url: str) -> Sequence[str]:
    """Bring the tables of a database up to this version of the program.

    Args:
        url: The database, as a role that may create a schema in it.

    Returns:
        The names of the migrations that were run, oldest first; none if all had been run before.

    Raises:
        ConfigError: The address is no valid one.
        StoreError: The database cannot be reached, refuses, or was migrated by a newer version.
    """
    connections = Connections(PostgresAddress(url), 0.0, SystemClock())
    try:
        with connections.connected() as connection:
            return _migrated(connection, connections.address.label)
    except psycopg.Error as error:
        raise connections.refusal("migrate", error) from error


def _migrated(connection: Connection, label: str) -> Sequence[str]:
    done = []
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Even IF NOT EXISTS asks for the right to create it.
        if connection.execute("SELECT to_regclass('backstory.migrations')").fetchone() == (None,):
            connection.execute(_BEGIN)
    for version, name, text in _migrations():
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            if version <= _standing(connection, label):
                continue
            connection.execute(text)
            connection.execute("INSERT INTO backstory.migrations (version, name) VALUES (%s, %s)", (version, name))
            done.append(name)
    with connection.transaction():
        leave_the_other_server(connection)
    return done


def must_be_migrated(connection: Connection, label: str) -> None:
    """Refuse a database whose tables are not those of this version.

    Raises:
        StoreError: It was not migrated, or by another version.
        psycopg.Error: It has no tables at all, or they may not be read.
    """
    standing, newest = _standing(connection, label), _migrations()[-1][0]
    if standing < newest:
        raise StoreError(f"{label} has migration {standing}, and this version needs {newest}: run `backstory migrate`")


def _standing(connection: Connection, label: str) -> int:
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM backstory.migrations").fetchone() or (0,)
    newest = _migrations()[-1][0]
    if version > newest:
        raise StoreError(
            f"{label} has migration {version}, and this version knows {newest}: use the newer backstory that made it"
        )
    return int(version)
