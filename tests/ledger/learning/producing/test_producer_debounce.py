"""When it is learned from (rows D6 and D7): debounce, longest wait, workers, flush, close; and what outlives it all."""

from __future__ import annotations

from fakes import exchange
from producers import ACK


def test_a_thread_is_due_once_it_has_been_quiet_for_the_debounce(shop):
    shop.say()
    assert shop.after(29.9) == 0
    assert shop.after(0.2) == 1
    assert shop.pending() == 0
    assert shop.after(3600) == 0
    assert len(shop.model.prompts) == 1


def test_each_new_word_puts_the_update_off(shop):
    for _ in range(5):
        shop.say()
        assert shop.after(20) == 0
    assert shop.after(10) == 1
    assert len(shop.model.prompts) == 1
    assert shop.pending() == 0


def test_steady_traffic_puts_it_off_no_longer_than_the_longest_wait(shop):
    waited = 0
    while shop.after(0) == 0:
        shop.say()
        shop.clock.advance(20)
        waited += 20
        assert waited <= 320
    assert waited == 300
    assert shop.pending() == 0


def test_after_an_update_the_wait_begins_anew(shop):
    for _ in range(15):
        shop.say()
        shop.clock.advance(20)
    assert shop.after(0) == 1
    shop.say()
    assert shop.after(29) == 0
    assert shop.after(1) == 1


def test_each_thread_has_a_debounce_of_its_own(shop):
    shop.say("busy")
    shop.say("calm")
    for _ in range(2):
        shop.clock.advance(20)
        shop.say("busy")
        shop.producer.run_due()
    assert shop.asked() == ["calm"]


def test_the_longest_overdue_thread_comes_first(shop):
    for thread in ("c", "a", "b"):
        shop.say(thread)
        shop.clock.advance(1)
    assert shop.after(60) == 3
    assert shop.asked() == ["c", "a", "b"]


def test_an_acknowledgement_is_never_due(shop):
    shop.say(messages=ACK)
    assert shop.after(10_000) == 0
    assert shop.pending() == 2


def test_an_old_acknowledgement_does_not_cost_new_words_their_debounce(shop):
    shop.say(messages=ACK)
    shop.clock.advance(86_400)
    shop.say()
    assert shop.after(29) == 0
    shop.say()
    assert shop.after(29) == 0
    assert shop.after(1) == 1
    # It goes along all the same.
    assert "Anything else?" in shop.model.prompts[0].user


def test_a_question_that_waited_for_its_answer_counts_from_when_it_was_asked(shop):
    shop.say(messages=exchange("tea")[:1])
    shop.clock.advance(290)
    shop.say(messages=exchange("tea")[1:])
    assert shop.after(9) == 0
    assert shop.after(1) == 1


def test_at_once_skips_the_debounce(shop):
    shop.say(immediate=True)
    assert shop.after(0) == 1
    assert shop.pending() == 0


def test_what_was_due_at_once_stays_so_when_more_is_said(shop):
    shop.say(immediate=True)
    shop.say()
    assert shop.after(0) == 1
    assert shop.pending() == 0


def test_what_is_overdue_is_not_put_off_again(shop):
    shop.say()
    shop.clock.advance(31)
    shop.say()
    assert shop.after(0) == 1


def test_at_once_makes_nothing_of_an_acknowledgement(shop):
    shop.say(messages=ACK, immediate=True)
    assert shop.after(10_000) == 0


def test_the_depth_counts_what_is_due_and_waiting(shop):
    for thread in ("a", "b", "c"):
        shop.say(thread)
    assert shop.producer.depth() == 0
    shop.clock.advance(30)
    assert shop.producer.depth() == 3
    shop.say("d", immediate=True)
    assert shop.producer.depth() == 4
    shop.producer.run_due()
    assert shop.producer.depth() == 0


def test_an_edit_that_leaves_nothing_to_learn_is_forgotten(shop):
    shop.say(messages=exchange("tea", 1))
    shop.say(messages=[{**message, "id": exchange("tea", 1)[i]["id"]} for i, message in enumerate(ACK)])
    assert shop.after(10_000) == 0
