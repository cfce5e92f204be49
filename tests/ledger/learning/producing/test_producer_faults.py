"""Faults"""

from __future__ import annotations

import logging
from datetime import timedelta

from fakes import ScriptedModel, exchange, reply
from producers import Shop

from backstory.ledger.core.errors import (
    ModelRejectedError,
    ModelUnavailableError,
    StoreError,
)
from backstory.ledger.core.events import TurnRange
from backstory.ledger.extraction.models.model import Prompt
from backstory.ledger.learning.producer import Producer
from backstory.ledger.log.commits import read_commits
from backstory.ledger.threads.due import Timing, answered


def test_a_disk_that_refuses_is_tried_again_a_minute_later(shop, caplog):
    shop.say()
    shop.store.mood = StoreError("the disk is full")
    with caplog.at_level(logging.WARNING):
        assert shop.after(30) == 1
    assert "the disk is full" in caplog.text
    assert shop.pending() == 2
    assert shop.after(59) == 0
    shop.store.mood = None
    assert shop.after(1) == 1
    assert shop.pending() == 0


def test_the_minute_counts_from_the_fault_however_long_the_model_took(tmp_path):
    def think(prompt: Prompt) -> str:
        shop.clock.advance(120)
        return reply("Likes tea")

    shop = Shop(tmp_path, think)
    shop.say()
    shop.store.mood = StoreError("the disk is full")
    assert shop.after(30) == 1
    assert shop.after(59) == 0
    assert shop.after(1) == 1


def test_a_fault_nobody_thought_of_leaves_the_turns_pending(shop, caplog):
    shop.say()
    shop.store.mood = ZeroDivisionError("who would have thought")
    with caplog.at_level(logging.ERROR):
        assert shop.after(30) == 1
    assert "who would have thought" in caplog.text
    assert shop.pending() == 2
    shop.store.mood = None
    assert shop.after(60) == 1
    assert shop.pending() == 0


def test_a_model_that_fails_parks_its_turns_and_is_left_alone(tmp_path):
    shop = Shop(tmp_path, ModelRejectedError("no such model"))
    shop.say()
    assert shop.after(30) == 1
    assert shop.parked() == [("rejected", 1)]
    assert shop.after(100_000) == 0
    assert len(shop.model.prompts) == 1


def test_what_an_outage_has_parked_is_learned_from_once_the_model_is_back(tmp_path):
    down = ModelUnavailableError("connection refused")
    shop = Shop(tmp_path, *[down] * 6, reply("Likes tea"))
    shop.say()
    assert shop.after(30) == 1
    assert shop.parked() == [("unavailable", 2)]
    # As many minutes later as it was tried.
    assert shop.after(119) == 0
    assert shop.after(1) == 1
    assert shop.parked() == [("unavailable", 4)]
    assert shop.after(239) == 0
    assert shop.after(1) == 1
    assert shop.parked() == [("unavailable", 6)]
    assert shop.after(360) == 1
    assert shop.parked() == []
    assert shop.pending() == 0
    assert [fact.content for fact in shop.writer.memory().facts.values()] == ["Likes tea"]
    assert shop.after(100_000) == 0
    assert len(shop.model.prompts) == 7


def test_an_hour_without_a_model_loses_no_conversation_and_learns_from_each_once(tmp_path):
    shop = Shop(tmp_path)
    back = shop.clock.now() + timedelta(hours=1)

    def think(prompt: Prompt) -> str:
        if shop.clock.now() < back:
            raise ModelUnavailableError("connection refused")
        return reply(f"Knows {prompt.user.partition('thread=')[2][:4]}")

    shop.model = ScriptedModel(think, repeat=True)
    shop.producer = Producer(shop.updater, shop.model, timing=Timing(30, 300))
    threads = [f"t{number}" for number in range(6)]
    for thread in threads:
        shop.say(thread)
        shop.after(600)
    for _ in range(120):
        shop.after(60)
    assert [shop.parked(thread) for thread in threads] == [[]] * 6
    assert [shop.pending(thread) for thread in threads] == [0] * 6
    learned = [commit for commit in read_commits(shop.store, shop.writer.ledger) if commit.cause.turns is not None]
    assert sorted(commit.cause.thread or "" for commit in learned) == threads


def test_an_outage_goes_on_over_a_restart(tmp_path):
    shop = Shop(tmp_path, ModelUnavailableError("connection refused"))
    shop.say()
    shop.after(30)
    again = Shop(tmp_path, reply("Likes tea"), clock=shop.clock)
    assert again.after(119) == 0
    assert again.after(1) == 1
    assert (again.parked(), again.pending()) == ([], 0)


def test_a_flush_does_not_try_again_what_an_outage_has_parked(tmp_path):
    shop = Shop(tmp_path, ModelUnavailableError("connection refused"))
    shop.say()
    shop.after(30)
    assert shop.producer.flush(0)
    assert len(shop.model.prompts) == 2
    assert shop.after(120) == 1


def test_a_clock_set_back_in_an_outage_puts_nothing_off_for_long(tmp_path):
    shop = Shop(tmp_path, ModelUnavailableError("busy"), ModelUnavailableError("busy"), reply("Likes tea"))
    shop.say()
    shop.after(30)
    shop.clock.advance(-86_400)
    assert [shop.after(30) for _ in range(8)].count(1) >= 1
    assert shop.parked() == []


def test_words_that_may_still_be_answered_wait_for_their_answer(shop):
    shop.say(messages=exchange("tea"))
    shop.say(messages=[{"role": "user", "content": "I also like rain, by the way"}])
    assert shop.after(30) == 1
    assert shop.pending() == 1
    shop.say(messages=[{"role": "assistant", "content": "So do I!"}])
    assert shop.after(30) == 1
    assert shop.pending() == 0
    assert ["rain" in prompt.user for prompt in shop.model.prompts] == [False, True]


def test_words_before_what_was_learned_already_wait_for_nobody(shop):
    shop.say(messages=[*exchange("tea"), {"role": "user", "content": "And rain"}])
    assert shop.after(30) == 1
    shop.say(messages=[{"role": "user", "content": "And snow"}, {"role": "assistant", "content": "I see."}])
    assert shop.after(30) == 1
    assert shop.pending() == 0


def test_only_the_last_words_of_a_thread_may_still_be_answered(shop):
    user = {"role": "user", "content": "And rain"}
    shop.say(messages=[*exchange("tea"), user, {**user, "content": "And snow"}])
    with shop.writer.state() as state:
        thread = state.transcript.threads["t"]
    assert answered(thread, TurnRange(1, 4)) == TurnRange(1, 2)
    # What comes after it is done with, so nobody answers it any more.
    assert answered(thread, TurnRange(1, 3)) == TurnRange(1, 3)


def test_a_model_that_is_broken_is_asked_ever_more_seldom(tmp_path):
    shop = Shop(tmp_path, ValueError("a bug"))
    shop.say()
    assert shop.after(30) == 1
    assert shop.parked() == [("unavailable", 2)]
    rounds = [shop.after(600) for _ in range(6 * 24 * 7)]
    assert 30 < sum(rounds) < 120
    assert sum(rounds[-6 * 24 :]) < 12


def test_one_bad_thread_does_not_stop_the_others(tmp_path):
    def think(prompt: Prompt) -> str:
        return "half {" if 'thread="bad"' in prompt.user else reply("Likes tea")

    shop = Shop(tmp_path, think)
    for thread in ("bad", "good", "better"):
        shop.say(thread)
    assert shop.after(30) == 3
    assert shop.parked("bad") == [("reply", 1)]
    assert shop.pending("good") == shop.pending("better") == 0
