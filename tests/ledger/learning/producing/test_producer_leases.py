"""Leases"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import PATIENCE, FakeClock, Gate, ScriptedModel, exchange, open_home, reply
from producers import Shop

from backstory.ledger.extraction.models.model import Prompt


def test_a_thread_that_another_process_learns_from_is_asked_about_once(tmp_path: Path) -> None:
    gate = Gate(reply("Likes tea"))
    clock = FakeClock()
    one, other = Shop(tmp_path, gate, clock=clock), Shop(tmp_path, clock=clock)
    one.say()
    other.producer.notice(other.writer, "t")
    clock.advance(30)
    working = threading.Thread(target=one.producer.run_due)
    working.start()
    assert gate.entered.wait(PATIENCE)
    assert other.producer.run_due() == 1
    assert not other.producer.flush(0)
    gate.opened.set()
    working.join(PATIENCE)
    assert other.after(1) == 1
    assert other.asked() == []
    assert other.producer.flush(0)
    assert one.pending() == other.pending() == 0
    assert one.asked() == ["t"]


def test_a_thread_whose_learner_died_is_taken_over(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.say()
    lease = shop.store.lease(shop.writer.ledger, "t")
    lease.__enter__()
    assert shop.after(30) == 1
    assert shop.asked() == []
    lease.__exit__(None, None, None)
    assert shop.after(1) == 1
    assert shop.asked() == ["t"]


def test_here_and_now_waits_for_whoever_is_at_it_and_asks_only_about_what_is_left(tmp_path: Path) -> None:
    gate, clock = Gate(reply("Likes tea")), FakeClock()
    one = open_home(tmp_path, ScriptedModel(gate), clock=clock).memory("ada")
    second = ScriptedModel()
    other = open_home(tmp_path, second, clock=clock).memory("ada")
    one.record("t", exchange("tea"))
    working = threading.Thread(target=one.extract)
    working.start()
    assert gate.entered.wait(PATIENCE)
    told: list[int] = []
    waiting = threading.Thread(target=lambda: told.append(other.extract().updates))
    waiting.start()
    while not clock.slept:
        assert waiting.is_alive()
    gate.opened.set()
    for thread in (working, waiting):
        thread.join(PATIENCE)
    assert told == [0]
    assert second.prompts == []
    assert [fact.content for fact in other.facts()] == ["Likes tea"]


class Stream:
    """A model that is told of a new thread each time it is asked, until `enough`; `over` tells that it is."""

    def __init__(self, enough: Callable[[Shop], bool]) -> None:
        self.shop: Shop | None = None
        self.over = threading.Event()
        self._enough = enough

    def __call__(self, prompt: Prompt) -> str:
        assert self.shop is not None
        if self._enough(self.shop):
            self.over.set()
        else:
            self.shop.say(f"other {len(self.shop.asked())}", immediate=True)
        return reply()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_thread_that_another_process_is_at_keeps_no_other_waiting_and_is_not_asked_for_all_the_time(
    started, monkeypatch, workers
):
    monkeypatch.setattr("backstory.ledger.learning.producer._LOOK_AGAIN_SECONDS", 3600.0)
    stream = Stream(lambda shop: len(shop.asked()) == 20)
    shop = stream.shop = started(stream, workers=workers)
    shop.store.elsewhere.add("held")
    shop.say("held", immediate=True)
    shop.clock.advance(1)
    shop.say("first", immediate=True)
    assert stream.over.wait(PATIENCE)
    assert shop.store.tries["held"] == 1
    assert "held" not in shop.asked()
    assert shop.producer.depth() >= 1


def test_a_worker_with_nothing_else_to_do_waits_before_it_looks_again(started, monkeypatch):
    now, waits = [0.0], []
    shop = started(workers=1)
    shop.store.elsewhere.add("held")
    wait = shop.producer._changed.wait

    def elsewhere() -> bool:
        return any(one.elsewhere_until > 0 for one in shop.producer._waiting.values())

    def waiting(seconds: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread() or not elsewhere():
            return wait(seconds)
        # The worker has nothing to do until it may look again, so that time passes.
        assert seconds is not None
        waits.append(seconds)
        now[0] += seconds
        if shop.store.tries["held"] == 3:
            shop.store.elsewhere.clear()
        return False

    monkeypatch.setattr("backstory.ledger.learning.producer.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("backstory.ledger.learning.producer._LOOK_AGAIN_SECONDS", 0.25)
    monkeypatch.setattr(shop.producer._changed, "wait", waiting)
    shop.say("held", immediate=True)
    assert shop.producer.flush(PATIENCE)
    assert shop.asked() == ["held"]
    assert waits == [0.25] * 3
    assert shop.store.tries["held"] == 4


def test_a_thread_that_another_process_was_at_has_its_turn_though_others_keep_coming(started, monkeypatch):
    monkeypatch.setattr("backstory.ledger.learning.producer._LOOK_AGAIN_SECONDS", 0.02)

    def enough(shop: Shop) -> bool:
        if shop.store.tries["held"]:
            shop.store.elsewhere.clear()
        return "held" in shop.asked() or len(shop.asked()) == 500

    stream = Stream(enough)
    shop = stream.shop = started(stream, workers=1)
    shop.store.elsewhere.add("held")
    shop.say("held", immediate=True)
    shop.clock.advance(1)
    shop.say("first", immediate=True)
    assert stream.over.wait(PATIENCE)
    assert shop.asked()[0] == "first"
    assert "held" in shop.asked()


def test_what_was_wanted_at_once_is_due_still_when_another_process_was_at_it(shop):
    shop.store.elsewhere.add("t")
    shop.say(immediate=True)
    assert shop.producer.run_due() == 1
    assert shop.producer.depth() == 1
    assert not shop.producer.flush(0)
    shop.store.elsewhere.clear()
    assert shop.producer.run_due() == 1
    assert shop.pending() == 0
    assert shop.producer._waiting == {}
