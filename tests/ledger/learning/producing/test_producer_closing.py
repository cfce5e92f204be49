"""Close"""

from __future__ import annotations

import time

import pytest
from fakes import PATIENCE, Gate, reply
from producers import Shop


def test_closing_learns_from_what_is_pending(started):
    shop = started(reply("Likes tea"))
    for thread in ("a", "b", "c"):
        shop.say(thread)
    assert shop.producer.close(PATIENCE) is True
    assert sorted(shop.asked()) == ["a", "b", "c"]
    assert not shop.producer._threads


def test_closing_keeps_to_its_time_and_leaves_the_rest_pending(tmp_path, started):
    gate = Gate(reply("never"))
    shop = started(gate, workers=1)
    for thread in ("a", "b"):
        shop.say(thread, immediate=True)
    assert gate.entered.wait(PATIENCE)
    assert shop.producer.close(0.05) is False
    worker = shop.producer._threads[0]
    gate.opened.set()
    worker.join(PATIENCE)
    assert not worker.is_alive()
    assert shop.asked() == ["a"]
    assert shop.writer.memory().seq == 0
    assert (shop.pending("a"), shop.pending("b")) == (2, 2)
    again = Shop(tmp_path, reply("Likes tea"), clock=shop.clock)
    assert again.producer.flush(0)
    assert again.pending("a") == again.pending("b") == 0


def test_closing_without_workers_runs_what_is_pending_here(shop):
    shop.say()
    assert shop.producer.close(0) is True
    assert shop.pending() == 0


def test_closing_twice_is_no_harm(started):
    shop = started(reply("Likes tea"))
    shop.say()
    assert shop.producer.close(PATIENCE) is True
    assert shop.producer.close(PATIENCE) is True


@pytest.mark.timeout(PATIENCE)
def test_after_closing_what_is_said_stays_pending_and_nobody_waits_for_it(shop, started):
    for closed in (shop, started(reply("never"))):
        closed.producer.close(PATIENCE)
        closed.say()
        closed.clock.advance(60)
        began = time.monotonic()
        assert not closed.producer.flush(PATIENCE)
        assert closed.producer.close(PATIENCE) is False
        assert time.monotonic() - began < PATIENCE / 2
        assert closed.producer.run_due() == 0
        assert closed.pending() > 0
        assert closed.model.prompts == []
