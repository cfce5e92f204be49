"""What a host sends again of turns that were erased or taken back, with and without the digests of their texts."""

from __future__ import annotations

import pytest
from one_thread import Conversation, after, chat, says
from streams import recorded

from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.events import TurnRange, TurnRestored, TurnSuperseded
from backstory.ledger.threads.delivery.turn_match import Said, matches
from backstory.ledger.threads.turn_columns import Trace


@pytest.mark.parametrize(("text", "new"), [("I like tea.", 0), ("I run 5 km.", 0), ("I like black tea.", 1)])
def test_without_a_digest_an_erased_id_is_known_by_the_length_of_its_text(text, new):
    conversation = Conversation(key=None)
    conversation.send(says("I like tea.", "h1"))
    conversation.erase(1)
    assert conversation.send(says(text, "h1")) == new


def test_without_a_digest_an_id_that_may_have_been_ours_proves_nothing():
    conversation = Conversation(key=None)
    conversation.send(says("I like tea."))
    conversation.erase(1)
    assert conversation.send(says("I run 5 km.", "t1")) == 1


@pytest.mark.parametrize(("text", "new"), [("I like tea.", 0), ("I run 5 km.", 1)])
def test_with_a_digest_it_is_known_by_its_text(text, new):
    conversation = after([says("I like tea.", "h1")])
    conversation.erase(1)
    assert conversation.send(says(text, "h1")) == new


@pytest.mark.parametrize(("mode", "new"), [("conversation", 0), ("append", 1)])
def test_a_turn_that_was_taken_back_is_recorded_again_only_if_it_is_said_to_be_new(mode, new):
    conversation = after([says("I like tea.", "h1")])
    conversation.withdraw(1)
    assert conversation.send(says("I like tea.", "h1"), mode=mode) == new


@pytest.mark.parametrize(("text", "is_it"), [("I row.", True), ("I swim.", False)])
def test_without_ids_an_erased_turn_without_a_digest_is_matched_by_its_length(text, is_it):
    assert matches(Trace(1, "t1", len("I run.")), Said("user", text), None) is is_it


@pytest.mark.parametrize(("role", "new"), [("assistant", 1), ("user", 2)])
def test_a_last_question_is_known_again_only_if_an_answer_follows_it(role, new):
    conversation = after(chat("I build trains and ships.", "I see.", "Why?"))
    assert conversation.send(says("Why?"), says("Hm?", role=role)) == new


@pytest.mark.parametrize(("first", "last", "restored"), [(1, 1, False), (1, 2, True), (2, 2, True), (3, 3, False)])
def test_a_range_was_restored_where_one_of_its_turns_was(first, last, restored):
    streams = recorded(3)
    for seq, event in ((2, TurnSuperseded(2)), (3, TurnRestored(2))):
        streams.transcript.apply(Commit(seq, "", Cause(kind="restore", thread="t"), (event,), "", str(seq)))
    assert streams.thread().restored_after(2, TurnRange(first, last)) is restored
    assert not streams.thread().restored_after(3, TurnRange(first, last))
