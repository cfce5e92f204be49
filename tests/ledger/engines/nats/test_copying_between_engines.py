"""A home moves from files to PostgreSQL, on to NATS and back to files, and is the same to the byte."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from doubles.copied_streams import contents, copy, grow, takes_changes, write
from doubles.nats_engine import NatsEngine
from doubles.postgres_engine import PostgresEngine

from backstory.ledger.engines.jsonl.store import JsonlStore


@pytest.mark.slow
def test_a_home_moves_through_all_engines(engine: NatsEngine, tmp_path: Path) -> None:
    postgres = PostgresEngine()
    try:
        stores = [JsonlStore(tmp_path / "a"), postgres.open(), engine.open(), JsonlStore(tmp_path / "b")]
        write(stores[0])
        for source, target in itertools.pairwise(stores):
            before = contents(source)
            assert copy(source, target).new == sum(source.head(stream).seq for stream in source.streams())
            assert contents(target) == contents(source) == before
            assert not takes_changes(source)
            assert takes_changes(target)
            grow(target, "users/ada/ledger")
    finally:
        postgres.close()
