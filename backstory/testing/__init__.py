"""Tests for engines: the conformance suite that each `EventStore` has to pass. Needs the extra `testing`.

Subclass the suite in a test module of your own:

    import pytest
    from backstory.testing import EventStoreConformance

    class MyEngine:
        def open(self, *, lock_timeout=30.0):
            return MyStore(..., lock_timeout=lock_timeout)

    class TestMyStore(EventStoreConformance):
        @pytest.fixture
        def engine(self):
            return MyEngine()
"""

from backstory.testing.conformance import Engine, EventStoreConformance

__all__ = ["Engine", "EventStoreConformance"]
