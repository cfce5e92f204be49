"""The PostgreSQL engine keeps every engine's promises, directly and through a pooler that lends by the transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doubles.postgres_engine import PostgresEngine
from sizes import sized

from backstory.testing.conformance import EventStoreConformance


class TestPostgresStore(EventStoreConformance):
    examples = sized(4, 10)

    @pytest.fixture
    def engine(self) -> Iterator[PostgresEngine]:
        engine = PostgresEngine()
        yield engine
        engine.close()


# What a pooler may break `make test` sees in the tests of leases, of lost connections, and from end to end.
@pytest.mark.torture
class TestPostgresStoreBehindAPooler(EventStoreConformance):
    examples = 3

    @pytest.fixture
    def engine(self) -> Iterator[PostgresEngine]:
        engine = PostgresEngine(pooled=True)
        yield engine
        engine.close()
