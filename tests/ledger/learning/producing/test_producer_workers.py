"""Workers"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest
from fakes import PATIENCE, Gate, reply
from producers import Shop

from backstory.ledger.core.errors import (
    CorruptLogError,
    StoreError,
)
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.learning.producer import Producer


def test_workers_flush_what_is_pending(started):
    shop = started(reply("Likes tea"))
    for thread in "abcdef":
        shop.say(thread)
    assert shop.producer.flush(PATIENCE)
    assert sorted(shop.asked()) == list("abcdef")
    assert sum(map(shop.pending, "abcdef")) == 0


def test_a_flush_does_not_wait_beyond_its_timeout(started):
    gate = Gate(reply("Likes tea"))
    shop = started(gate)
    shop.say()
    assert not shop.producer.flush(0.05)
    assert gate.entered.wait(PATIENCE)
    assert not shop.producer.flush(0.05)
    gate.opened.set()
    assert shop.producer.flush(PATIENCE)
    assert shop.pending() == 0


def test_a_flush_takes_along_what_was_said_during_the_update_under_way(started):
    gate = Gate(reply("Likes tea"))
    shop = started(gate)
    shop.say(immediate=True)
    assert gate.entered.wait(PATIENCE)
    shop.say()
    gate.opened.set()
    assert shop.producer.flush(PATIENCE)
    assert shop.pending() == 0
    assert len(shop.model.prompts) == 2


def test_a_flush_does_not_wait_for_what_cannot_be_done_now(started):
    shop = started()
    shop.say()
    shop.store.mood = StoreError("the disk is full")
    began = time.monotonic()
    assert shop.producer.close(PATIENCE) is False
    assert time.monotonic() - began < PATIENCE / 2
    assert shop.pending() == 2


def test_a_flush_is_done_though_more_is_said_meanwhile(started):
    def think(prompt: Prompt) -> str:
        if len(shop.model.prompts) == 1:
            shop.say()
        return reply("Likes tea")

    shop = started(think)
    shop.say()
    assert shop.producer.flush(PATIENCE)
    # The new words have a debounce of their own.
    assert shop.pending() == 2
    assert shop.producer.flush(PATIENCE)
    assert shop.pending() == 0


def test_two_threads_are_learned_from_side_by_side(started):
    together = threading.Barrier(2)

    def think(prompt: Prompt) -> str:
        together.wait(PATIENCE)
        return reply("Likes tea")

    shop = started(think)
    shop.say("a")
    shop.say("b")
    assert shop.producer.flush(PATIENCE)
    assert (shop.parked("a"), shop.parked("b")) == ([], [])


def test_no_thread_is_worked_on_twice_at_once(started):
    busy: Counter[str] = Counter()
    lock = threading.Lock()
    most = 0
    paused = threading.Event()

    def think(prompt: Prompt) -> str:
        nonlocal most
        name = prompt.user.partition('thread="')[2].partition('"')[0]
        with lock:
            busy[name] += 1
            most = max(most, busy[name])
        paused.wait(0.002)
        with lock:
            busy[name] -= 1
        return reply("Likes tea")

    shop = started(think, workers=6)
    for _ in range(6):
        for thread in ("a", "b"):
            shop.say(thread, immediate=True)
    assert shop.producer.flush(PATIENCE)
    assert most == 1
    assert shop.pending("a") == shop.pending("b") == 0


def test_a_worker_outlives_every_fault(started, caplog):
    shop = started(ValueError("a bug"), reply("Likes tea"), workers=1)
    workers = set()
    for mood in (
        StoreError("the disk is full"),
        ZeroDivisionError("what"),
        CorruptLogError("bad", kind="altered", stream="s", line=1, byte=0),
        asyncio.CancelledError("called off"),
        KeyboardInterrupt("stop"),
        SystemExit(3),
    ):
        shop.store.mood = mood
        shop.store.refused.clear()
        shop.say(immediate=True)
        assert shop.store.refused.wait(PATIENCE)
        workers.update(shop.producer._threads)
        with shop.producer.claim(shop.writer, "t"):
            assert shop.pending() > 0
    shop.store.mood = None
    assert shop.producer.flush(PATIENCE)
    assert shop.pending() == 0
    assert len(workers) == 1
    assert all(f": {said}" in caplog.text for said in ("the disk is full", "what", "called off", "stop", "3"))


def test_a_model_that_calls_itself_off_takes_no_worker_along(started, caplog):
    shop = started(asyncio.CancelledError("not now"), reply("Likes tea"), workers=1)
    shop.say()
    assert not shop.producer.flush(PATIENCE)
    assert "not now" in caplog.text
    assert shop.pending() == 2
    assert shop.producer.depth() == 0
    shop.clock.advance(60)
    assert shop.producer.depth() == 1
    assert shop.producer.flush(PATIENCE)
    assert shop.pending() == 0


def test_what_calls_itself_off_in_the_callers_own_thread_is_a_fault_too(tmp_path):
    shop = Shop(tmp_path, asyncio.CancelledError(), reply("Likes tea"))
    shop.say()
    assert shop.after(30) == 1
    assert shop.pending() == 2
    assert shop.after(59) == 0
    assert shop.after(1) == 1
    assert shop.pending() == 0


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("run", [Producer.run_due, lambda producer: producer.flush(0)], ids=["run_due", "flush"])
def test_whoever_ends_the_program_in_its_own_thread_is_heard_and_the_thread_is_let_go(tmp_path, ends, run):
    shop = Shop(tmp_path, ends(), reply("Likes tea"))
    shop.say(immediate=True)
    with pytest.raises(ends):
        run(shop.producer)
    assert shop.pending() == 2
    assert shop.after(59) == 0
    assert shop.after(1) == 1
    assert shop.pending() == 0


def test_a_thread_that_is_claimed_is_left_to_the_claimant(started):
    shop = started(reply("Likes tea"))
    with shop.producer.claim(shop.writer, "t"):
        shop.say(immediate=True)
        shop.say("other", immediate=True)
        shop.producer.flush(0.05)
        assert shop.asked() == ["other"]
    assert shop.producer.flush(PATIENCE)
    assert shop.asked() == ["other", "t"]


def test_a_claim_waits_for_the_worker_that_is_at_the_thread(started):
    gate = Gate(reply("Likes tea"))
    shop = started(gate)
    shop.say(immediate=True)
    assert gate.entered.wait(PATIENCE)
    order: list[str] = []

    def claim() -> None:
        with shop.producer.claim(shop.writer, "t"):
            order.append("claimed")

    claimant = threading.Thread(target=claim)
    claimant.start()
    claimant.join(0.05)
    assert order == []
    gate.opened.set()
    claimant.join(PATIENCE)
    assert order == ["claimed"]
    assert shop.pending() == 0


def test_a_claim_is_given_back_whatever_happens(shop, monkeypatch):
    shop.say()

    def broken(**_: object) -> None:
        raise StoreError("the disk is gone")

    with pytest.raises(StoreError), shop.producer.claim(shop.writer, "t"):
        monkeypatch.setattr(shop.writer, "state", broken)
    monkeypatch.undo()
    free = threading.Event()

    def claim() -> None:
        with shop.producer.claim(shop.writer, "t"):
            free.set()

    claimant = threading.Thread(target=claim, daemon=True)
    claimant.start()
    assert free.wait(PATIENCE)
    claimant.join(PATIENCE)
    assert shop.producer.flush(PATIENCE)
    assert shop.pending() == 0


def test_a_burst_of_conversations_wakes_no_worker_that_looks_soon_enough_by_itself(started, monkeypatch):
    shop = started(reply("Likes tea"))
    producer, wake, looks = shop.producer, shop.producer._wake, shop.producer._next
    wakes: list[bool] = []
    waiting = threading.Event()

    def look() -> object:
        found = looks()
        if found is not None and found[1] is None:
            waiting.set()
        return found

    monkeypatch.setattr(producer, "_next", look)
    monkeypatch.setattr(producer, "_wake", lambda: wakes.append(True) or wake())
    shop.say("first")
    assert wakes == [True]
    assert waiting.wait(PATIENCE)
    for number in range(50):
        shop.say(f"t{number}")
    assert wakes == [True]
    # What is due before the worker looks again has to wake it.
    shop.say("now", immediate=True)
    assert len(wakes) > 1
    assert producer.flush(PATIENCE)
    assert len(shop.asked()) == 52
