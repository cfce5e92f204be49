"""A user's last words: the background waits for their answer for a bounded time, a flush does not."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from fakes import PATIENCE, FakeClock, Gate, exchange, reply, updater_on
from hypothesis import given
from hypothesis import strategies as st
from producers import ACK, Shop

from backstory.ledger.core.errors import ModelRejectedError, StoreError
from backstory.ledger.learning.producer import Producer
from backstory.ledger.log.commits import read_commits
from backstory.ledger.threads.due import Timing, due_of, ready_runs

WORDS, ANSWER = exchange("tea")


def covered(shop: Shop) -> list[int]:
    """The turns that updates have covered, in the order of their commits."""
    ranges = [commit.cause.turns for commit in read_commits(shop.store, shop.writer.ledger)]
    return [n for turns in ranges if turns is not None for n in range(turns.first, turns.last + 1)]


def test_words_without_an_answer_are_due_once_they_have_waited_for_it(shop):
    shop.say(messages=[WORDS])
    assert shop.after(599.9) == 0
    assert shop.after(0.1) == 1
    assert shop.pending() == 0
    assert shop.after(1_000_000) == 0
    assert covered(shop) == [1]


def test_an_answer_in_time_goes_along_with_its_question(shop):
    shop.say(messages=[WORDS])
    shop.clock.advance(599)
    shop.say(messages=[ANSWER])
    assert shop.after(0) == 1
    assert covered(shop) == [1, 2]
    assert shop.after(1_000_000) == 0


def test_an_answer_that_comes_later_goes_along_with_the_next_update(shop):
    shop.say(messages=[WORDS])
    assert shop.after(600) == 1
    shop.say(messages=[ANSWER])
    assert shop.after(1_000_000) == 0
    assert shop.pending() == 1
    shop.say(messages=exchange("milk"))
    assert shop.after(30) == 1
    assert "tea it is." in shop.model.prompts[1].user
    assert covered(shop) == [1, 2, 3, 4]


def test_a_restart_loses_nothing_of_the_wait(tmp_path):
    shop = Shop(tmp_path)
    shop.say(messages=[WORDS])
    shop.clock.advance(400)
    again = Shop(tmp_path, clock=shop.clock)
    assert again.after(199) == 0
    assert again.after(1) == 1
    assert again.pending() == 0


def test_the_wait_counts_from_the_first_words_and_the_debounce_from_the_last(shop):
    shop.say(messages=[WORDS])
    shop.clock.advance(590)
    shop.say(messages=[{"role": "user", "content": "And milk."}])
    assert shop.after(29) == 0
    assert shop.after(1) == 1
    assert covered(shop) == [1, 2]


def test_words_after_an_exchange_wait_for_themselves(shop):
    shop.say(messages=[*exchange("milk"), WORDS])
    assert shop.after(30) == 1
    assert covered(shop) == [1, 2]
    assert shop.after(569) == 0
    assert shop.after(1) == 1
    assert covered(shop) == [1, 2, 3]


def test_words_that_have_waited_long_enough_go_along_with_what_is_due(shop):
    shop.say(messages=[*exchange("milk"), WORDS])
    shop.clock.advance(600)
    assert shop.after(0) == 1
    assert covered(shop) == [1, 2, 3]
    assert len(shop.model.prompts) == 1


def test_without_a_wait_words_are_due_after_the_debounce(shop):
    timing = Timing(30, 300, 0)
    shop.producer = Producer(shop.updater, shop.model, timing=timing)
    shop.say(messages=[WORDS])
    assert shop.after(29) == 0
    assert shop.after(1) == 1


@pytest.mark.parametrize("back", [400, 86_400])
def test_a_clock_that_is_set_back_puts_words_off_no_longer_than_the_wait(shop, back):
    shop.say(messages=[WORDS])
    shop.clock.advance(-back)
    shop.producer.notice(shop.writer, "t")
    assert shop.after(599) == 0
    assert shop.after(401) == 1
    assert covered(shop) == [1]


def test_a_clock_set_back_unnoticed_does_not_either(shop):
    shop.say(messages=[WORDS])
    shop.clock.advance(-86_400)
    shop.after(0)
    assert shop.after(600) == 1
    assert covered(shop) == [1]


def test_words_at_once_still_wait_for_their_answer(shop):
    shop.say(messages=[WORDS], immediate=True)
    assert shop.after(0) == 0
    assert shop.after(600) == 1


def test_an_acknowledgement_is_learned_neither_after_the_wait_nor_by_a_flush(shop):
    shop.say(messages=ACK[:1])
    assert shop.after(1_000_000) == 0
    assert shop.producer.flush(0)
    assert (shop.pending(), shop.model.prompts) == (1, [])


def test_a_flush_learns_from_words_without_an_answer(shop):
    shop.say("a", messages=[WORDS])
    shop.say("b", messages=[*exchange("milk"), WORDS])
    assert shop.producer.flush(0)
    assert shop.pending("a") == shop.pending("b") == 0
    assert sorted(shop.asked()) == ["a", "b"]
    shop.say("a", messages=[ANSWER])
    assert shop.producer.flush(0)
    assert shop.after(1_000_000) == 0
    assert shop.pending("a") == 1


def test_a_process_that_ends_leaves_them_to_the_next_one(tmp_path):
    shop = Shop(tmp_path)
    shop.say("a", messages=[WORDS])
    shop.say("b", messages=[*exchange("milk"), WORDS])
    assert shop.producer.drain(0)
    assert (shop.pending("a"), shop.pending("b")) == (1, 1)
    assert shop.asked() == ["b"]
    assert shop.producer.close(0)
    again = Shop(tmp_path, clock=shop.clock)
    assert again.after(600) == 2
    assert again.pending("a") == again.pending("b") == 0


def test_a_flush_while_a_worker_is_busy_learns_from_what_it_left(started):
    gate = Gate(reply("Likes milk"))
    shop = started(gate, reply("Likes tea"), workers=1)
    shop.say(messages=[*exchange("milk"), WORDS])
    shop.clock.advance(30)
    shop.producer.notice(shop.writer, "t")
    assert gate.entered.wait(PATIENCE)
    done: list[bool] = []
    flushing = threading.Thread(target=lambda: done.append(bool(shop.producer.flush(PATIENCE))))
    flushing.start()
    while not any(one.requested for one in list(shop.producer._waiting.values())):
        pass
    gate.opened.set()
    flushing.join(PATIENCE)
    assert done == [True]
    assert covered(shop) == [1, 2, 3]


def test_what_was_asked_for_is_learned_once_another_process_lets_go(shop):
    shop.say(messages=[WORDS])
    shop.store.elsewhere.add("t")
    flushed = shop.producer.flush(0)
    assert not flushed
    assert flushed.reason == "another process works on thread t of user ada: flush again later"
    shop.store.elsewhere.clear()
    assert shop.after(1) == 1
    assert covered(shop) == [1]


def test_what_was_asked_for_and_met_a_fault_is_learned_a_minute_later(shop):
    shop.say(messages=[WORDS])
    shop.store.mood = StoreError("the disk is full")
    flushed = shop.producer.flush(0)
    assert not flushed
    assert flushed.reason == "user ada, thread t: not learned from yet, will be tried again: the disk is full"
    shop.store.mood = None
    assert shop.after(60) == 1
    assert covered(shop) == [1]


def test_a_flush_says_which_update_failed_and_the_next_has_nothing_left(tmp_path):
    shop = Shop(tmp_path, ModelRejectedError("no such model"))
    shop.say(messages=[WORDS])
    flushed = shop.producer.flush(0)
    assert not flushed
    assert flushed.reason == (
        "user ada, thread t: an update failed and its turns are parked, see `status` and `retry` "
        "(rejected: no such model)"
    )
    assert shop.parked() == [("rejected", 1)]
    assert shop.producer.flush(0).reason is None


def test_a_flush_says_that_its_time_was_over(started):
    gate = Gate(reply())
    shop = started(gate, workers=1)
    for thread in ("a", "b"):
        shop.say(thread)
    flushed = shop.producer.flush(0.01)
    gate.opened.set()
    assert not flushed
    assert flushed.reason == (
        "the time was over before thread a of user ada (and 1 more) was learned from: the turns stay pending"
    )
    assert shop.producer.flush(PATIENCE)


def test_a_flush_of_a_closed_producer_says_so(shop):
    shop.say()
    shop.producer.close(0)
    shop.say()
    flushed = shop.producer.flush(0)
    assert flushed.reason == "the home was closed before thread t of user ada was learned from: the turns stay pending"


def test_the_end_of_a_long_conversation_is_learned_from_when_it_is_asked_for(shop):
    shop.updater = updater_on(shop.clock, prompt_max_tokens=4_000)
    shop.producer = Producer(shop.updater, shop.model, timing=Timing(30, 300))
    words = [{"role": "user", "content": f"I like tea number {n}. " + "Really so. " * 300} for n in range(20)]
    shop.say(messages=words)
    assert shop.producer.flush(0)
    assert len(shop.model.prompts) > 1
    assert covered(shop) == list(range(1, 21))


SAID = st.tuples(st.sampled_from(["user", "assistant"]), st.sampled_from(["ok", "I like tea."]), st.integers(0, 700))


@given(st.lists(SAID, min_size=1, max_size=6), st.sampled_from([Timing(), Timing(30, 300, 0), Timing(0, 1, 10)]))
def test_whatever_is_said_something_can_be_learned_when_it_is_due_and_no_user_is_kept_waiting(
    tmp_path_factory, said, timing
):
    clock = FakeClock()
    shop = Shop(tmp_path_factory.mktemp("shop"), clock=clock)
    shop.producer = Producer(shop.updater, shop.model, timing=timing)
    for role, content, gap in said:
        shop.say(messages=[{"role": role, "content": content}])
        clock.advance(gap)
    with shop.writer.state() as state:
        thread = state.transcript.threads["t"]
        runs = state.coverage.pending(thread)
        due = due_of(thread, runs, timing)
        telling = [n for n, (role, content, _) in enumerate(said, 1) if (role, content) == ("user", "I like tea.")]
        assert (due is None) == (not telling)
        if due is not None:
            assert ready_runs(state.coverage, thread, timing, due.at)
            assert due.at - timedelta(seconds=timing.debounce + timing.answer_wait) <= clock.now()
    runs_at_most = len(said) + 1
    for _ in range(runs_at_most):
        shop.after(timing.debounce + timing.answer_wait)
    assert set(telling) <= set(covered(shop))
    assert len(covered(shop)) == len(set(covered(shop)))
    assert shop.after(1_000_000) == 0
