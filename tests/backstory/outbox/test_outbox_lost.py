"""What can never be recorded."""

from __future__ import annotations

import sqlite3

import pytest
from fakes import PATIENCE, exchange
from outboxes import ADA, BOB, Disk, Elapsed, by_hand, kinds, said, words

from backstory.home import Backstory
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import LOST, QueueLimits


@pytest.mark.parametrize("messages", [None, 7, "words", {"role": "user", "content": "x"}, iter(())])
def test_what_is_no_list_of_messages_is_a_fault_and_nothing_waits(
    messages: object, bs: Backstory, door: FailSafeMemory
) -> None:
    done = door.record(ADA, "t", messages)  # type: ignore[arg-type]
    assert (done is None) == (kinds(bs) == {"InputError": 1})
    assert door.waiting == 0


@pytest.mark.parametrize("thread", ["", "x" * 10_000, 7, None, ["t"]], ids=["empty", "long", "int", "None", "list"])
def test_a_thread_that_cannot_be_one_is_a_fault_and_nothing_waits(
    thread: object, bs: Backstory, door: FailSafeMemory
) -> None:
    assert door.record(ADA, thread, exchange("tea")) is None  # type: ignore[arg-type]
    assert kinds(bs) == {"UsageError": 1}
    assert door.waiting == 0


def test_a_message_nobody_can_read_is_left_out_and_counted_once(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    messages = [{"role": "user", "content": "one"}, object(), {"role": "wizard", "content": "?"}, *exchange("tea")]
    disk.plan = [StoreError("full"), StoreError("full")]
    assert door.record(ADA, "t", messages) is None
    assert kinds(bs) == {"StoreError": 1, "InputError": 2}
    assert not door.flush(PATIENCE)
    assert door.flush(PATIENCE)
    assert kinds(bs) == {"StoreError": 2, "InputError": 2}
    assert said(bs) == ["one", *words(exchange("tea"))]


def test_a_message_nobody_can_read_is_counted_also_where_nobody_tried_to_record_it(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.plan = [LockTimeoutError("locked")]
    door.record(ADA, "t", exchange("tea"))
    assert door.record(ADA, "t", [object(), *exchange("rye")]) is None
    assert kinds(bs) == {"LockTimeoutError": 1, "InputError": 1}
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_message_nobody_can_read_is_logged_once_although_the_rest_is_recorded_each_time(
    bs: Backstory, door: FailSafeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        assert door.record(ADA, "t", [object(), *exchange("tea", number)]) is not None
    assert caplog.text.count("InputError") == 1
    assert kinds(bs) == {"InputError": 3}
    assert door.record(ADA, "t", exchange("rye")) is not None
    door.record(ADA, "t", [object()])
    assert caplog.text.count("InputError") == 2


def test_where_nothing_is_to_be_kept_nothing_waits(bs: Backstory, door: FailSafeMemory, disk: Disk) -> None:
    disk.plan = [LockTimeoutError("locked")]
    door.record(ADA, "t", exchange("tea"))
    assert door.record(ADA, "other", [{"role": "tool", "content": "42"}]) is None
    assert door.waiting == 1


def test_a_message_that_ruins_its_reader_does_not_take_the_others_along(bs: Backstory, door: FailSafeMemory) -> None:
    class Evil:
        role = "user"

        @property
        def content(self) -> str:
            raise ZeroDivisionError

    class Worse(dict):  # type: ignore[type-arg]
        def get(self, *_: object) -> object:
            raise ZeroDivisionError

    door.record(ADA, "t", [Evil(), *exchange("tea"), Worse()])
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))
    assert sum(kinds(bs).values()) >= 2


def test_a_delivery_that_always_fails_unforeseen_is_given_up_and_what_waits_behind_it_is_not(
    bs: Backstory, elapsed: Elapsed, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    door = by_hand(bs, elapsed, QueueLimits(attempts=3))
    disk.plan = [KeyError("a bug")] * 3
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "t", exchange("rye")) is None
    assert LOST not in kinds(bs)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("rye"))
    assert kinds(bs)[LOST] == 1
    assert "failed 3 times" in caplog.text


def test_a_thread_pauses_no_longer_for_what_was_given_up_in_it(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    door = by_hand(bs, elapsed, QueueLimits(attempts=2))
    disk.plan = [KeyError("a bug")] * 2
    door.record(ADA, "t", exchange("tea"))
    door.flush(PATIENCE)
    disk.plan = [StoreError("full")] * 2
    door.record(BOB, "t", exchange("tea"))
    assert set(door._outbox._lines._pauses) == {BOB}
    door._outbox.close(PATIENCE)
    assert (door._outbox._lines._pauses, door._outbox.count) == ({}, 0)


def test_an_outage_is_waited_for_however_long_it_lasts(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    door = by_hand(bs, elapsed, QueueLimits(attempts=2))
    disk.plan = [StoreError("full"), OSError(5, "x"), sqlite3.OperationalError("disk I/O error")] * 7
    assert door.record(ADA, "t", exchange("tea")) is None
    for _ in range(20):
        assert not door.flush(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))
