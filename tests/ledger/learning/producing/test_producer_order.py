"""Who goes first"""

from __future__ import annotations

import logging

from fakes import PATIENCE, Gate, reply
from producers import Shop, told

from backstory.ledger.core.errors import (
    CorruptLogError,
)
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.learning.thread_learner import ThreadLearner


def test_corrections_go_first_then_other_signals_then_the_rest(shop):
    for thread, topic in (
        ("plain", "The rain has stopped."),
        ("goal", "My goal is to run a marathon."),
        ("wrong", "That's wrong, use ruff instead."),
        ("decision", "We decided on Postgres."),
        ("错", "不对，应该是三点。"),
        ("other", "The rain is back."),
    ):
        shop.say(thread, told(topic))
        shop.clock.advance(1)
    assert shop.after(30) == 6
    assert shop.asked() == ["wrong", "错", "goal", "decision", "plain", "other"]
    assert shop.producer._waiting == {}


def test_workers_take_corrections_first_too(started):
    gate = Gate(reply())
    shop = started(gate, reply(), workers=1)
    shop.say("first", immediate=True)
    assert gate.entered.wait(PATIENCE)
    shop.say("plain", told("The rain has stopped."), immediate=True)
    shop.say("wrong", told("No, I meant Bergen."), immediate=True)
    gate.opened.set()
    assert shop.producer.flush(PATIENCE)
    assert shop.asked() == ["first", "wrong", "plain"]


def test_what_has_been_due_for_the_longest_wait_is_overtaken_no_more(shop):
    shop.say("plain", told("The rain has stopped."))
    shop.clock.advance(30 + 299)
    shop.say("wrong", told("That's wrong."), immediate=True)
    assert shop.producer._take(()) == (shop.writer.scope, "wrong")
    shop.clock.advance(1)
    shop.say("late", told("That's wrong."), immediate=True)
    assert shop.producer._take(()) == (shop.writer.scope, "plain")


def test_nothing_starves_under_a_stream_of_corrections(tmp_path):
    def think(prompt: Prompt) -> str:
        shop.clock.advance(20)
        if 'thread="plain"' not in prompt.user and len(shop.model.prompts) < 100:
            shop.say(f"wrong {len(shop.model.prompts)}", told("That's wrong."), immediate=True)
        return reply()

    shop = Shop(tmp_path, think)
    shop.say("plain", told("The rain has stopped."), immediate=True)
    shop.say("wrong", told("That's wrong."), immediate=True)
    shop.producer.run_due()
    assert shop.asked().index("plain") == 300 // 20


def test_a_correction_said_while_its_thread_waits_lets_it_go_first(shop):
    for thread in ("a", "b", "c"):
        shop.say(thread, told("The rain has stopped."))
    shop.clock.advance(30)
    # All are looked at before the first is taken.
    assert shop.producer._take(()) == (shop.writer.scope, "a")
    shop.say("c", told("That's wrong."))
    assert shop.producer.run_due() == 2
    assert shop.asked() == ["c", "b"]


def test_a_correction_that_is_learned_from_counts_no_more(shop):
    shop.say("z", told("That's wrong."))
    assert shop.after(30) == 1
    shop.say("a", told("The rain has stopped."))
    shop.clock.advance(1)
    shop.say("z", told("The rain is back."))
    assert shop.after(30) == 2
    assert shop.asked() == ["z", "a", "z"]


def test_a_correction_waits_over_a_restart_and_goes_first(tmp_path):
    first = Shop(tmp_path)
    first.say("plain", told("The rain has stopped."))
    first.clock.advance(1)
    first.say("wrong", told("That's wrong."))
    first.clock.advance(60)
    second = Shop(tmp_path, clock=first.clock)
    assert second.producer.run_due() == 2
    assert second.asked() == ["wrong", "plain"]


def test_signals_cost_nothing_until_several_threads_are_due(shop, monkeypatch):
    looks = []
    judged = ThreadLearner.urgency
    monkeypatch.setattr(
        ThreadLearner, "urgency", lambda self, writer, name: looks.append(name) or judged(self, writer, name)
    )
    for thread in ("a", "b", "c"):
        shop.say(thread)
        shop.say(thread)
        shop.clock.advance(10)
    assert [shop.after(seconds) for seconds in (0, 10, 10)] == [1, 1, 1]
    assert looks == []
    for thread in ("a", "b", "c"):
        shop.say(thread)
    assert shop.after(30) == 3
    assert sorted(looks) == ["a", "b", "c"]


def test_a_thread_that_cannot_be_looked_at_stops_no_other(shop, monkeypatch, caplog):
    def broken(**_: object) -> None:
        raise CorruptLogError("bad", kind="altered", stream="s", line=1, byte=0)

    shop.say("a")
    shop.say("b")
    shop.clock.advance(30)
    monkeypatch.setattr(shop.writer, "state", broken)
    with caplog.at_level(logging.WARNING):
        assert shop.producer.run_due() == 2
    assert caplog.text.count("will be tried again: bad") == 2
    monkeypatch.undo()
    assert shop.after(60) == 2
