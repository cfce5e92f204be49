"""The command line on a database: it is migrated by a verb, and keeps memory as the files do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from commandline import Cli
from doubles.postgres_engine import PostgresEngine


@pytest.fixture
def engine() -> Iterator[PostgresEngine]:
    engine = PostgresEngine()
    yield engine
    engine.close()


def test_a_new_database_is_migrated_and_then_keeps_memory(cli: Cli, engine: PostgresEngine) -> None:
    with engine.another_database() as name:
        store = ("--store", engine.server.url(name))
        assert "run `backstory migrate`" in cli.error(*store, "show", code=3)
        assert cli.json(*store, "migrate") == ["0001_streams.sql", "0002_changes.sql", "0003_statistics.sql"]
        assert cli.run(*store, "migrate").stdout == "nothing to do: the tables are those of this version\n"
        cli.run(*store, "fact", "add", "User sails")
        assert [fact["content"] for fact in cli.json(*store, "fact", "list")] == ["User sails"]
        assert not list(cli.home.rglob("*.jsonl"))


def test_files_are_not_migrated(cli: Cli) -> None:
    assert "only a database is migrated, and event_store is 'jsonl'" in cli.error("migrate", code=2)
