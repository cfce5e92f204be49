"""In the background."""

from __future__ import annotations

import threading
import time

import pytest
from fakes import PATIENCE, exchange
from outboxes import ADA, EAGER, Disk, Elapsed, kinds, said, words

from backstory.home import Backstory
from backstory.ledger.core.errors import StoreError
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import LOST, Outbox, QueueLimits
from backstory.results import RecordResult


def test_what_waits_is_recorded_by_itself(bs: Backstory, disk: Disk) -> None:
    done = threading.Event()
    disk.plan = [StoreError("full"), StoreError("full"), done.set]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
    assert door.record(ADA, "t", exchange("tea")) is None
    assert done.wait(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


def test_the_background_ends_when_nothing_waits_and_begins_again(bs: Backstory, disk: Disk) -> None:
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    for topic in ("tea", "rye"):
        disk.plan = [StoreError("full")]
        door.record(ADA, "t", exchange(topic))
        thread = next(iter(waiting._threads), None)
        assert door.flush(PATIENCE)
        if thread is not None:
            thread.join(PATIENCE)
            assert not thread.is_alive()
            assert thread not in waiting._threads
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_program_that_is_ended_while_it_records_has_not_lost_it(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    for error in (KeyboardInterrupt(), SystemExit()):
        disk.plan = [error]
        with pytest.raises(type(error)):
            door.record(ADA, "t", exchange(type(error).__name__))
        assert door.waiting == 1
        assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("KeyboardInterrupt"), *exchange("SystemExit")])
    assert LOST not in kinds(bs)


def test_the_background_outlives_what_asks_it_to_end_the_program(bs: Backstory, disk: Disk) -> None:
    waiting = Outbox(bs.faults, QueueLimits(shortest_pause=0.001, longest_pause=0.002))
    door = FailSafeMemory(bs, outbox=waiting)
    disk.plan = [StoreError("full"), SystemExit(), KeyboardInterrupt()]
    assert door.record(ADA, "t", exchange("tea")) is None
    while not door.flush(PATIENCE):
        assert waiting._threads
        assert waiting._threads[0].is_alive()
    assert said(bs) == words(exchange("tea"))


def test_what_asked_to_end_the_program_is_not_tried_again_at_once(bs: Backstory, disk: Disk, elapsed: Elapsed) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    disk.plan = [KeyError("a bug"), SystemExit()]
    FailSafeMemory(bs, outbox=waiting).record(ADA, "t", exchange("tea"))
    elapsed.now += 5
    waiting._run((ADA, "t"))
    assert waiting._lines.next(elapsed()) == (elapsed() + 2, (ADA, "t"))


def test_the_background_outlives_a_bug(bs: Backstory, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    failed: list[threading.Thread] = []
    tried = threading.Event()

    def bug(_: object) -> None:
        failed.append(threading.current_thread())
        tried.set()
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(waiting, "_run", bug)
        disk.plan = [StoreError("full")]
        door.record(ADA, "t", exchange("tea"))
        assert tried.wait(PATIENCE)
    assert failed[0].is_alive()
    assert door.flush(PATIENCE)
    assert said(bs) == words(exchange("tea"))


def test_flush_keeps_to_its_time_whatever_hangs(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [StoreError("full"), hang]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
    door.record(ADA, "t", exchange("tea"))
    assert entered.wait(PATIENCE)
    begun = time.monotonic()
    assert not door.flush(0.01)
    assert door.record(ADA, "t", exchange("rye")) is None
    assert time.monotonic() - begun < PATIENCE / 2
    opened.set()
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_what_goes_on_from_a_delivery_while_that_is_recorded_is_recorded_too(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [StoreError("full"), hang]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
    door.record(ADA, "t", exchange("tea"))
    assert entered.wait(PATIENCE)
    assert door.record(ADA, "t", [*exchange("tea"), *exchange("rye")]) is None
    opened.set()
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_delivery_that_is_under_way_is_not_overtaken_by_a_later_one(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)
        raise StoreError("full")

    disk.plan = [hang]
    door = FailSafeMemory(bs, outbox=Outbox(bs.faults, EAGER))
    first = threading.Thread(target=door.record, args=(ADA, "t", exchange("tea")))
    first.start()
    assert entered.wait(PATIENCE)
    second = threading.Thread(target=door.record, args=(ADA, "t", [*exchange("tea"), *exchange("rye")]))
    second.start()
    opened.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_two_that_record_in_one_thread_at_once_both_hear_what_became_of_it(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [hang]
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    told: list[RecordResult | None] = []

    def say(number: int) -> None:
        told.append(door.record(ADA, "t", exchange(f"tea {number}", number)))

    agents = [threading.Thread(target=say, args=(number,)) for number in range(3)]
    agents[0].start()
    assert entered.wait(PATIENCE)
    for agent in agents[1:]:
        agent.start()
    opened.set()
    for agent in agents:
        agent.join(PATIENCE)
    assert told == [RecordResult(1, 2, 0)] * 3
    assert not waiting._lines.is_busy((ADA, "t"))
    assert waiting._lines._queues == {}


def test_who_waited_for_another_in_a_thread_is_not_forgotten_when_it_fails(bs: Backstory, disk: Disk) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)

    disk.plan = [hang, StoreError("full")]
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    agents = [threading.Thread(target=door.record, args=(ADA, "t", exchange(topic))) for topic in ("tea", "rye")]
    agents[0].start()
    assert entered.wait(PATIENCE)
    agents[1].start()
    with waiting._changed:
        # The second agent waits for the first one.
        while not waiting._changed._waiters:  # type: ignore[attr-defined]
            waiting._changed.wait(0.001)
    opened.set()
    for agent in agents:
        agent.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_delivery_that_came_while_the_first_failed_waits_behind_it(bs: Backstory, disk: Disk) -> None:
    """Its memory was shut meanwhile, by a third."""
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)
        raise StoreError("full")

    disk.plan = [hang]
    waiting = Outbox(bs.faults, EAGER)
    door = FailSafeMemory(bs, outbox=waiting)
    first = threading.Thread(target=door.record, args=(ADA, "t", exchange("tea")))
    first.start()
    assert entered.wait(PATIENCE)
    with waiting._changed:
        waiting._lines.shut(ADA)
    assert door.record(ADA, "t", exchange("rye")) is None
    opened.set()
    first.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])


def test_a_flush_leaves_a_thread_alone_in_which_somebody_records(bs: Backstory, disk: Disk, elapsed: Elapsed) -> None:
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert opened.wait(PATIENCE)
        raise StoreError("full")

    disk.plan = [hang]
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting)
    first = threading.Thread(target=door.record, args=(ADA, "t", exchange("tea")))
    first.start()
    assert entered.wait(PATIENCE)
    waiting._lines.shut(ADA)
    assert door.record(ADA, "t", exchange("rye")) is None
    assert not door.flush(PATIENCE)
    opened.set()
    first.join(PATIENCE)
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye")])
