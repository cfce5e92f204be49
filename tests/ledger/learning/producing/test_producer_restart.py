"""Restart"""

from __future__ import annotations

from producers import Shop

from backstory.ledger.core.errors import (
    ModelRejectedError,
)


def test_a_restart_forgets_nothing_and_loses_no_time(tmp_path):
    first = Shop(tmp_path)
    first.say("early")
    first.clock.advance(20)
    first.say("late")
    second = Shop(tmp_path, clock=first.clock)
    assert second.after(9) == 0
    assert second.after(1) == 1
    assert second.asked() == ["early"]
    assert second.after(19) == 0
    assert second.after(1) == 1
    assert second.asked() == ["early", "late"]


def test_what_fell_due_while_nobody_was_there_is_run_at_once(tmp_path):
    first = Shop(tmp_path)
    first.say()
    first.clock.advance(3600)
    second = Shop(tmp_path, clock=first.clock)
    assert second.producer.depth() == 1
    assert second.producer.run_due() == 1


def test_what_another_process_has_learned_from_is_not_asked_about_again(tmp_path):
    one = Shop(tmp_path)
    other = Shop(tmp_path, clock=one.clock)
    one.say()
    other.producer.notice(other.writer, "t")
    assert one.after(30) == 1
    assert other.producer.run_due() == 1
    assert other.model.prompts == []


def test_parked_turns_wait_over_a_restart_and_new_ones_do_not(tmp_path):
    first = Shop(tmp_path, ModelRejectedError("no key"))
    first.say()
    assert first.after(30) == 1
    assert first.parked() == [("rejected", 1)]
    second = Shop(tmp_path, clock=first.clock)
    assert second.after(10_000) == 0
    second.say()
    assert second.after(30) == 1
    assert second.parked() == [("rejected", 1)]
    assert second.pending() == 0
