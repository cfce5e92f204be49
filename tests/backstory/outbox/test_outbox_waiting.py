"""Memory keeps an agent waiting."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from fakes import PATIENCE, exchange
from outboxes import ADA, BOB, Disk, Elapsed, by_hand, kinds, locked, said, words

from backstory.home import Backstory
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import LOST, Outbox, QueueLimits


def test_an_agent_waits_for_a_lock_once_and_not_at_every_turn(bs: Backstory, door: FailSafeMemory, disk: Disk) -> None:
    with locked(bs):
        assert door.record(ADA, "t", exchange("tea")) is None
        assert disk.calls == 1
        for topic in ("rye", "oat"):
            assert door.record(ADA, "t", exchange(topic)) is None
        assert door.record(ADA, "other", exchange("bun")) is None
        assert disk.calls == 1
        assert door.record(BOB, "t", exchange("tea")) is not None
        assert not door.flush(PATIENCE)
        assert door.record(ADA, "third", exchange("bun")) is None
        assert disk.calls == 2
    assert door.flush(PATIENCE)
    assert said(bs) == words([*exchange("tea"), *exchange("rye"), *exchange("oat")])
    assert said(bs, "other") == said(bs, "third") == words(exchange("bun"))
    assert door.record(ADA, "t", exchange("jam")) is not None


def test_one_success_of_the_background_opens_a_memory_to_all(bs: Backstory, elapsed: Elapsed) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting)
    with locked(bs):
        door.record(ADA, "t", exchange("tea"))
        door.record(ADA, "other", exchange("rye"))
    assert door.record(ADA, "third", exchange("oat")) is None
    waiting._run((ADA, "t"))
    assert door.record(ADA, "fourth", exchange("bun")) is not None
    assert door.waiting == 2


def test_nobody_who_reads_memory_waits_while_the_background_does(
    bs: Backstory, door: FailSafeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = bs.memory("ada")
    memory.add_fact("User likes tea")
    entered, opened = threading.Event(), threading.Event()
    take = bs.store._locks._take  # type: ignore[attr-defined]

    def taken(path: str, timeout: float) -> object:
        if path.endswith("transcript.lock") and threading.current_thread() is background:
            entered.set()
            assert opened.wait(PATIENCE)
        return take(path, timeout)

    with locked(bs):
        assert door.record(ADA, "t", exchange("tea")) is None
    background = threading.Thread(target=door.flush, args=(PATIENCE,))
    monkeypatch.setattr(bs.store._locks, "_take", taken)  # type: ignore[attr-defined]
    background.start()
    assert entered.wait(PATIENCE)
    reading = threading.Thread(target=memory.context, args=("tea",))
    reading.start()
    reading.join(PATIENCE / 2)
    read = not reading.is_alive()
    opened.set()
    background.join(PATIENCE)
    reading.join(PATIENCE)
    assert read
    assert said(bs) == words(exchange("tea"))


def test_one_who_records_waits_for_a_lock_once_also_where_there_are_workers(home: Path) -> None:
    with Backstory.open(home, model=lambda _: "{}", debounce_seconds=300) as bs:
        memory = bs.memory("ada")
        memory.record("t", exchange("tea"))
        waits: list[str] = []
        take = bs.store._locks._take  # type: ignore[attr-defined]

        def taken(path: str, timeout: float) -> object:
            waits.append(path)
            # Whoever reads folds what is on its way to disk, and has to look at the disk once that has failed.
            memory.context("tea")
            return take(path, timeout)

        bs.store._locks._take = taken  # type: ignore[attr-defined]
        with locked(bs), pytest.raises(LockTimeoutError):
            memory.record("t", exchange("rye"))
        assert len(waits) == 1
        bs.store._locks._take = take  # type: ignore[attr-defined]


def test_what_fails_slowly_is_left_to_the_background_as_a_lock_is(
    bs: Backstory, door: FailSafeMemory, disk: Disk, elapsed: Elapsed
) -> None:
    def slowly() -> None:
        elapsed.now += 3
        raise StoreError("the server does not answer")

    disk.plan = [slowly]
    assert door.record(ADA, "t", exchange("tea")) is None
    assert door.record(ADA, "other", exchange("rye")) is None
    assert disk.calls == 1
    assert door.flush(PATIENCE)
    assert door.record(ADA, "t", exchange("oat")) is not None


def test_a_memory_is_tried_again_when_what_kept_it_shut_was_given_up(
    bs: Backstory, elapsed: Elapsed, disk: Disk
) -> None:
    door = by_hand(bs, elapsed, QueueLimits(deliveries=1))
    disk.plan = [LockTimeoutError("locked"), StoreError("full")]
    door.record(ADA, "t", exchange("tea"))
    door.record(BOB, "t", exchange("rye"))
    assert (door.waiting, kinds(bs)[LOST]) == (1, 1)
    assert door.record(ADA, "t", exchange("oat")) is not None


def test_pauses_grow_to_a_minute_and_begin_anew_after_a_success(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting, elapsed=elapsed)

    def pause() -> float:
        moment, key = waiting._lines.next(elapsed())
        assert key == (ADA, "t")
        wait, elapsed.now = moment - elapsed.now, moment
        return wait

    disk.plan = [StoreError("full")] * 9
    door.record(ADA, "t", exchange("tea"))
    pauses = [pause()]
    for _ in range(8):
        waiting._run((ADA, "t"))
        pauses.append(pause())
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    waiting._run((ADA, "t"))
    assert waiting.count == 0
    disk.plan = [StoreError("full")]
    door.record(ADA, "t", exchange("rye"))
    assert pause() == 1


def test_what_comes_after_a_flush_pauses_like_everything_else(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting)
    disk.plan = [LockTimeoutError("locked"), LockTimeoutError("locked")]
    door.record(ADA, "t", exchange("tea"))
    assert not door.flush(PATIENCE)
    door.record(ADA, "other", exchange("rye"))
    assert waiting._lines.next(elapsed())[0] == elapsed() + 2


def test_one_thread_that_fails_unforeseen_does_not_put_the_others_of_its_memory_off(
    bs: Backstory, elapsed: Elapsed, disk: Disk
) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting, elapsed=elapsed)
    disk.plan = [StoreError("full"), KeyError("a bug")]
    door.record(ADA, "good", exchange("tea"))
    door.record(ADA, "bad", exchange("rye"))
    elapsed.now += 1
    waiting._run((ADA, "good"))
    assert said(bs, "good")
    disk.plan = [KeyError("a bug")]
    waiting._run((ADA, "bad"))
    disk.plan = [StoreError("full")]
    door.record(ADA, "good", [*exchange("tea"), *exchange("oat")])
    assert waiting._lines.next(elapsed()) == (elapsed() + 1, (ADA, "good"))


def test_a_flush_tries_the_other_threads_where_one_fails_unforeseen(
    bs: Backstory, door: FailSafeMemory, disk: Disk
) -> None:
    disk.always = StoreError("full")
    for thread in ("bad", "good"):
        door.record(ADA, thread, exchange("tea"))
    disk.always, disk.plan = None, [KeyError("a bug")]
    assert not door.flush(PATIENCE)
    assert said(bs, "good") == words(exchange("tea"))
    assert said(bs, "bad") == []


def test_a_thread_pauses_anew_after_a_success_of_its_own(bs: Backstory, elapsed: Elapsed, disk: Disk) -> None:
    waiting = Outbox(bs.faults, elapsed=elapsed, background=False)
    door = FailSafeMemory(bs, outbox=waiting)
    disk.plan = [KeyError("a bug"), KeyError("a bug")]
    for topic in ("tea", "rye"):
        door.record(ADA, "t", exchange(topic))
    assert waiting._lines.next(elapsed())[0] == elapsed() + 2
    disk.plan = [None, KeyError("a bug")]
    waiting._run((ADA, "t"))
    assert said(bs) == words(exchange("tea"))
    assert waiting._lines.next(elapsed())[0] == elapsed() + 1


def test_a_line_with_nothing_in_it_or_with_somebody_at_it_is_not_to_be_tried(
    bs: Backstory, door: FailSafeMemory, disk: Disk, elapsed: Elapsed
) -> None:
    lines = door._outbox._lines
    assert lines.begin((ADA, "empty"))
    assert not lines.begin((ADA, "empty"))
    assert lines.next(elapsed())[1] is None
    disk.plan = [StoreError("full")]
    door.record(ADA, "t", exchange("tea"))
    assert lines.next(elapsed())[1] == (ADA, "t")
    assert lines.begin((ADA, "t"))
    assert lines.next(elapsed())[1] is None
