"""Memory fails in every way it can: the agent goes on, nothing said is lost, doubled or put out of order."""

from __future__ import annotations

import threading

from fakes import exchange
from outboxes import ADA

from backstory.home import Backstory
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.results import RecordResult


def test_what_memory_takes_does_not_wait_and_is_told_as_record_tells_it(bs: Backstory, door: FailSafeMemory) -> None:
    assert door.record(bs.memory("ada"), "t", exchange("tea")) == RecordResult(1, 2, 0)
    assert door.record(ADA, "t", exchange("tea")) == RecordResult(1, 0, 2)
    assert (door.waiting, bs.faults.of(ADA)) == (0, ())
    assert door.flush(0)


def test_no_thread_is_started_where_nothing_waits(bs: Backstory) -> None:
    FailSafeMemory(bs).record(ADA, "t", exchange("tea"))
    assert "backstory-deliveries" not in {thread.name for thread in threading.enumerate()}
