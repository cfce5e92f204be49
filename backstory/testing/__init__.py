"""Testing: memory tests in pytest, and the conformance suite that each `EventStore` has to pass.

    from backstory.testing import memory_test

    def test_what_ada_said():
        memory_test("tests/ada.test.yaml")

The suite needs the extra `testing`. Subclass it in a test module of your own:

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

from __future__ import annotations

from typing import TYPE_CHECKING

from backstory.testing.memory_files import memory_test

if TYPE_CHECKING:
    from backstory.testing.conformance import Engine, EventStoreConformance

__all__ = ["Engine", "EventStoreConformance", "memory_test"]


def __getattr__(name: str) -> object:
    """Import the suite when it is asked for, since it needs hypothesis."""
    if name in {"Engine", "EventStoreConformance"}:
        from backstory.testing import conformance

        return getattr(conformance, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
