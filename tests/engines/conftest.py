"""The engines that a home may have beside files: one that keeps none in the home, and PostgreSQL."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from elsewhere import STORAGE_CLASS
from homes import HomesOn
from store.postgres_engine import the_server

for folder in ("cli", "http", "langchain", "mcp", "deerflow", "standin"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))


@pytest.fixture(params=["elsewhere", "postgres"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HomesOn:
    if request.param == "elsewhere":
        return HomesOn({"storage_class": STORAGE_CLASS})
    # It warns of a server that syncs nothing, as that of the tests does.
    monkeypatch.setattr(logging.getLogger("backstory.ledger.log.store.postgres.store"), "level", logging.ERROR)
    return HomesOn({"event_store": the_server().url()})


@pytest.fixture
def chosen(engine: HomesOn, monkeypatch: pytest.MonkeyPatch) -> HomesOn:
    """The engine, chosen for every home that this test opens without a word about engines."""
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    return engine
