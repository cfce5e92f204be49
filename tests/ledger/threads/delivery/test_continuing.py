"""Threads that a conversation continues: found by the words, and never one that only begins alike.

The letters are those of `test_resent`: a c e g i k are a user's sentences, b d f h j l an agent's answers; o y s n say
next to nothing; C is c rephrased.
"""

from __future__ import annotations

import pytest
from one_thread import Conversation, says
from test_resent import after, said

from backstory.ledger.threads.delivery.continuing import continued, holds
from backstory.ledger.threads.delivery.told import begin_of_question
from backstory.ledger.threads.transcript import Thread


def thread(letters: str, name: str) -> Thread:
    made = after(letters).thread if letters else Thread(name)
    made.name = name
    return made


def found(conversation: str, **threads: str) -> list[str]:
    places = continued([thread(letters, name) for name, letters in threads.items()], said(conversation))
    return [name for name, _ in places]


@pytest.mark.parametrize(
    ("conversation", "recorded"),
    [
        ("abc", "ab"),
        ("abcde", "abcd"),
        ("oso", "os"),
        ("abac", "ab"),
        ("abc", "abc"),
        ("abce", "abc"),
        ("a", "a"),
        ("o", "o"),
        ("abc", "abcd"),
        ("abC", "abcd"),
        ("cdefg", "abcdef"),
        # Another answer was told; and an exchange that the thread has not seen.
        ("abcde", "abcf"),
        ("abcde", "ab"),
    ],
)
def test_a_conversation_continues_the_thread_that_holds_it(conversation, recorded):
    assert found(conversation, t=recorded) == ["t"]


@pytest.mark.parametrize(
    ("conversation", "recorded"),
    [
        ("a", "ab"),
        ("o", "os"),
        ("a", "abcd"),
        ("abe", "abcd"),
        ("oso", "osyn"),
        ("abc", "abcdef"),
        ("oso", "abos"),
        ("oso", ""),
        ("abc", ""),
    ],
)
def test_a_thread_that_goes_on_otherwise_is_not_continued(conversation, recorded):
    assert found(conversation, t=recorded) == []


def test_the_thread_where_the_question_stands_unanswered_comes_first():
    assert found("abc", again="abcd", answered="ab", asked="abc", other="cd") == ["asked", "answered", "again"]


def test_of_two_that_end_alike_the_newest_comes_first():
    assert found("oso", newest="os", oldest="os") == ["newest", "oldest"]


def test_nothing_said_continues_nothing():
    assert found("", t="ab") == []


@pytest.mark.parametrize("erased", [(1,), (1, 2), (3,), (1, 2, 3, 4)])
def test_a_thread_whose_words_were_forgotten_goes_on_to_keep_them_out(erased):
    conversation = after("abcd")
    conversation.erase(*erased)
    found = continued([conversation.thread], said("abcde"), lambda: conversation.seal)
    assert [name for name, _ in found] == ["t"]
    conversation.send(*said("abcde"))
    assert conversation.standing[-1] == said("e")[0].content
    assert len(conversation.standing) == 5 - len(erased)


def test_a_thread_with_forgotten_words_is_not_continued_by_other_conversations():
    conversation = after("abcd")
    conversation.erase(1)
    assert continued([conversation.thread], said("ghi"), lambda: conversation.seal) == []


@pytest.mark.parametrize(("letters", "index"), [("abc", 2), ("ab", 2), ("a", 0), ("abce", 2), ("", 0)])
def test_the_question_begins_behind_the_last_answer(letters, index):
    assert begin_of_question(said(letters)) == index


def test_a_thread_holds_the_ids_of_its_last_turns():
    conversation = Conversation()
    for n in range(20):
        conversation.send(says("Remind me of the flight", f"r{n}"))
    assert holds(conversation.thread, "r19")
    assert holds(conversation.thread, "r4")
    assert not holds(conversation.thread, "r3")
    assert not holds(conversation.thread, "t20")
