"""Too much."""

from __future__ import annotations

import pytest
from fakes import PATIENCE, exchange
from outboxes import ADA, BOB, Disk, Elapsed, by_hand, kinds, locked, said, words

from backstory.home import Backstory
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.outbox.outbox import LOST, QueueLimits


def test_of_too_many_deliveries_the_oldest_are_given_up_and_counted(
    bs: Backstory, elapsed: Elapsed, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    door = by_hand(bs, elapsed, QueueLimits(deliveries=3))
    disk.always = LockTimeoutError("locked")
    for number in range(5):
        door.record(ADA, f"t{number}", exchange(f"tea {number}"))
    assert door.waiting == 3
    assert kinds(bs)[LOST] == 2
    assert caplog.text.count(LOST) == 1
    disk.always = None
    assert door.flush(PATIENCE)
    assert [said(bs, f"t{number}") != [] for number in range(5)] == [False, False, True, True, True]


def test_a_conversation_that_goes_on_while_it_waits_keeps_its_age(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    door = by_hand(bs, elapsed, QueueLimits(deliveries=2))
    disk.always = LockTimeoutError("locked")
    for thread, messages in (
        ("going on", exchange("tea")),
        ("over", exchange("rye")),
        ("going on", [*exchange("tea"), *exchange("oat")]),
        ("new", exchange("bun")),
    ):
        door.record(ADA, thread, messages)
    disk.always = None
    assert door.flush(PATIENCE)
    assert {summary.thread for summary in bs.memory("ada").threads()} == {"over", "new"}


def test_of_too_much_text_the_oldest_is_given_up_and_the_newest_never(
    bs: Backstory, elapsed: Elapsed, disk: Disk
) -> None:
    door = by_hand(bs, elapsed, QueueLimits(bytes=10_000))
    disk.always = LockTimeoutError("locked")
    for number in range(5):
        door.record(ADA, f"t{number}", [{"role": "user", "content": str(number) * 4000}])
    assert door.waiting == 2
    door.record(ADA, "long", [{"role": "user", "content": "x" * 20_000}])
    assert door.waiting == 1
    disk.always = None
    assert door.flush(PATIENCE)
    assert [summary.thread for summary in bs.memory("ada").threads()] == ["long"]
    door.record(ADA, "next", exchange("tea"))
    assert kinds(bs)[LOST] == 5


def test_what_is_being_recorded_does_not_give_way(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    door = by_hand(bs, elapsed, QueueLimits(deliveries=1))
    disk.plan = [StoreError("full")]
    door.record(ADA, "t", exchange("tea"))
    disk.plan = [lambda: door.record(BOB, "t", exchange("rye")) and None]
    with locked(bs, BOB):
        assert door.flush(PATIENCE) is False
        assert said(bs) == words(exchange("tea"))
    assert LOST not in kinds(bs)
    assert door.flush(PATIENCE)
    assert said(bs, scope=BOB) == words(exchange("rye"))
