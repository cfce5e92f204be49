"""Reading."""

from __future__ import annotations

import pytest
from outboxes import ADA, BOB, Elapsed, kinds

from backstory.home import Backstory
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.outbox.fail_safe import FailSafeMemory


def test_a_read_that_goes_well_says_what_it_says(door: FailSafeMemory) -> None:
    assert door.guarded(ADA, "search", lambda: 7, 0) == 7


def test_a_read_that_fails_has_a_way_out_and_is_counted(bs: Backstory, door: FailSafeMemory) -> None:
    def fail() -> int:
        raise StoreError("gone")

    for _ in range(3):
        assert door.guarded(ADA, "search", fail, 0) == 0
    assert door.guarded(ADA, "search", lambda: 7, 0) == 7
    ((doing, count),) = [(fault.doing, fault.count) for fault in bs.faults.of(ADA)]
    assert (doing, count) == ("search", 3)


@pytest.mark.parametrize("slow", [False, True])
def test_a_memory_that_kept_a_reader_waiting_is_not_asked_for_half_a_minute(
    slow: bool, bs: Backstory, door: FailSafeMemory, elapsed: Elapsed
) -> None:
    asked: list[float] = []

    def fail() -> int:
        asked.append(elapsed.now)
        elapsed.now += 10.0 if slow else 0.0
        raise StoreError("slow") if slow else LockTimeoutError("locked")

    assert door.guarded(ADA, "inject", fail, 0) == 0
    elapsed.now += 29.9
    assert door.guarded(ADA, "inject", fail, 0) == 0
    assert door.guarded(BOB, "inject", lambda: 7, 0) == 7
    assert len(asked) == 1
    elapsed.now += 0.2
    assert door.guarded(ADA, "inject", lambda: 7, 0) == 7
    assert door.guarded(ADA, "inject", fail, 0) == 0
    assert len(asked) == 2
    assert sum(kinds(bs).values()) == 3


def test_a_read_that_went_well_has_the_next_fault_logged_again(
    door: FailSafeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        door.guarded(ADA, "search", lambda: 1 // 0, 0)
    assert len(caplog.records) == 1
    door.guarded(ADA, "search", lambda: 7, 0)
    door.guarded(ADA, "search", lambda: 1 // 0, 0)
    assert len(caplog.records) == 2


def test_a_question_that_was_wrong_keeps_nobody_from_asking_another(
    bs: Backstory, door: FailSafeMemory, elapsed: Elapsed
) -> None:
    def wrong() -> str:
        elapsed.now += 10
        return bs.memory("ada").context(7).text  # type: ignore[arg-type]

    assert door.guarded(ADA, "inject", wrong, "nothing") == "nothing"
    assert door.guarded(ADA, "inject", lambda: "memory", "nothing") == "memory"


def test_who_ends_the_program_while_reading_ends_it(door: FailSafeMemory) -> None:
    def end() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        door.guarded(ADA, "search", end, 0)
