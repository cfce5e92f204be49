"""The engines that a home may have beside files: one for tests that keeps none in the home, PostgreSQL, and NATS."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from doubles.nats_engine import NatsEngine, the_nats
from doubles.postgres_engine import PostgresEngine
from elsewhere import STORAGE_CLASS
from homes import ENGINES, HomesOn

for folder in ("cli", "http", "langchain", "mcp", "deerflow", "standin"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HomesOn:
    # They warn of a server that syncs nothing, or is alone, as those of the tests are.
    monkeypatch.setattr(logging.getLogger("backstory.ledger.engines"), "level", logging.ERROR)
    if request.param == "postgres":
        return HomesOn({"event_store": PostgresEngine().url})
    if request.param == "nats":
        return HomesOn({"event_store": NatsEngine(the_nats().at).url})
    return HomesOn({"storage_class": STORAGE_CLASS})


@pytest.fixture
def chosen(engine: HomesOn, monkeypatch: pytest.MonkeyPatch) -> HomesOn:
    """The engine, chosen for every home that this test opens without a word about engines."""
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    return engine
