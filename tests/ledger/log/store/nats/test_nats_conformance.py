"""The NATS engine keeps every engine's promises."""

from __future__ import annotations

import pytest
from doubles.nats_engine import NatsEngine

from backstory.testing.conformance import EventStoreConformance


class TestNatsStore(EventStoreConformance):
    @pytest.fixture
    def engine(self, engine: NatsEngine) -> NatsEngine:
        return engine
