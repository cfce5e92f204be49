"""Flush"""

from __future__ import annotations

from datetime import timedelta

from fakes import PATIENCE, exchange, reply, updater_on
from producers import ACK, Shop

from backstory.ledger.core.errors import (
    ModelRejectedError,
    StoreError,
)
from backstory.ledger.learning.producer import Producer
from backstory.ledger.threads.due import Timing


def test_a_process_that_ends_spends_no_time_on_gaps_between_calls(tmp_path):
    shop = Shop(tmp_path, reply())
    shop.updater = updater_on(shop.clock, min_gap=30)
    shop.producer = Producer(shop.updater, shop.model, timing=Timing(30, 300))
    for thread in ("a", "b", "c"):
        shop.say(thread)
    begun = shop.clock.now()
    assert shop.producer.drain(0)
    assert shop.clock.now() == begun
    assert len(shop.model.prompts) == 3
    for thread in ("a", "b", "c"):
        shop.say(thread, exchange("rain"))
    assert shop.producer.flush(0)
    assert (shop.clock.now() - begun).total_seconds() >= 60


def test_closing_spends_no_time_on_gaps_either(tmp_path):
    shop = Shop(tmp_path, reply())
    shop.updater = updater_on(shop.clock, min_gap=30)
    shop.producer = Producer(shop.updater, shop.model, timing=Timing(30, 300))
    for thread in ("a", "b", "c"):
        shop.say(thread)
    begun = shop.clock.now()
    assert shop.producer.close(0)
    assert (shop.clock.now() - begun, len(shop.model.prompts)) == (timedelta(), 3)


def test_a_flush_waits_for_no_debounce(shop):
    for thread in ("a", "b"):
        shop.say(thread)
    assert shop.producer.flush(PATIENCE)
    assert sorted(shop.asked()) == ["a", "b"]


def test_a_flush_of_nothing_is_done(shop):
    assert shop.producer.flush(0)
    shop.say(messages=ACK)
    assert shop.producer.flush(0)
    assert shop.pending() == 2


def test_a_flush_says_so_when_something_is_left(shop):
    shop.say()
    shop.store.mood = StoreError("the disk is full")
    assert not shop.producer.flush(PATIENCE)
    shop.store.mood = None
    assert shop.producer.flush(PATIENCE)
    assert shop.pending() == 0


def test_parked_turns_are_no_longer_due(tmp_path):
    shop = Shop(tmp_path, ModelRejectedError("no key"))
    shop.say()
    assert not shop.producer.flush(PATIENCE)
    assert shop.parked() == [("rejected", 1)]
    assert shop.producer.flush(PATIENCE)
