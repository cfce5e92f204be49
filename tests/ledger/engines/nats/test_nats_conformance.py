"""The NATS engine keeps every engine's promises."""

from __future__ import annotations

import pytest
from doubles.nats_engine import NatsEngine
from sizes import sized

from backstory.testing.conformance import EventStoreConformance


class TestNatsStore(EventStoreConformance):
    examples = sized(3, 10)

    @pytest.fixture
    def engine(self, engine: NatsEngine) -> NatsEngine:
        return engine
