"""Conversations as a model is asked with them: told again and rewritten, of which only what is new is recorded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from one_thread import AT, Conversation, chat, says

from backstory.ledger.messages import Kept
from backstory.ledger.threads.delivery.continuing import continued
from backstory.ledger.threads.delivery.told import HINT, TellingOf, Told, begin_of_exchange, unseen
from backstory.ledger.threads.delivery.turn_match import may_be_same

TALK = (
    "I live in Bergen, by the harbour",
    "A fine town by the sea.",
    "My sister moved to Lisbon",
    "I see, to Lisbon.",
    "ok",
    "Anything else?",
    "Which ferry goes to Stavanger?",
    "The one at eight.",
)
NEXT = "And which one comes back?"
LATER = "2026-03-01T12:09:00.000000Z"
MUCH_LATER = "2026-03-01T12:11:00.000000Z"


def hears(conversation: Conversation, told: Sequence[Kept], answer: str, *, adopts: bool = False) -> None:
    """Record a question, and then its answer, as a proxy does."""
    conversation.send(*told, mode=Told(adopts=adopts))
    conversation.send(*told, says(answer, role="assistant"), mode=Told(answered=True, adopts=adopts))


def heard(*talk: str) -> Conversation:
    """A conversation of which a proxy has heard each request."""
    conversation = Conversation()
    for n in range(0, len(talk), 2):
        hears(conversation, chat(*talk[: n + 1]), talk[n + 1])
    return conversation


def test_what_is_told_again_is_recorded_once():
    assert heard(*TALK).everything == list(TALK)


REWRITTEN: dict[str, list[Kept]] = {
    "stripped": chat(*(f"  {text}\n" if n % 2 == 0 else text.rstrip(".") for n, text in enumerate(TALK))),
    "answered by another model": chat(*(text if n % 2 == 0 else f"<b>No: {n}</b>" for n, text in enumerate(TALK))),
    "without answers": [says(text) for text in TALK[::2]],
    "cut at its beginning": chat(*TALK[4:]),
    "summarised": [says("So far we talked about my family"), says("Ok.", role="assistant"), *chat(*TALK[2:])],
    "shortened": chat(*(f"{text[:20]}…" if n % 2 == 0 else text[:3] for n, text in enumerate(TALK))),
    "with context around its questions": [
        says(f"Context: a page\n\nQuestion: {message.content}") if message.role == "user" else message
        for message in chat(*TALK)
    ],
    "with flattened calls": [
        part
        for message in chat(*TALK)
        for part in (
            [says("Calling tools: [where]", role="assistant"), message] if message.role == "assistant" else [message]
        )
    ],
}


@pytest.mark.parametrize("style", REWRITTEN)
def test_a_conversation_is_found_by_the_words_of_the_user_however_it_is_rewritten(style):
    conversation = heard(*TALK)
    told = [*REWRITTEN[style], says(NEXT)]
    [(name, place)] = continued([conversation.thread], told)
    assert (name, place.again, unseen(told, place)) == ("t", False, 0)
    hears(conversation, told, "At nine.")
    assert conversation.everything == [*TALK, NEXT, "At nine."]


@pytest.mark.parametrize(
    "told",
    [
        chat(TALK[0], TALK[1], "My brother moved to Porto", "I see.", NEXT),
        chat("My brother moved to Porto", "I see.", "Who wrote Peer Gynt?", "Ibsen.", *TALK[6:], NEXT),
        chat("ok", "Anything else?", NEXT),
        chat(TALK[6]),
        chat(NEXT),
    ],
)
def test_words_that_contradict_or_say_nothing_join_no_thread(told):
    assert TellingOf(told).place_in(heard(*TALK).thread, now=AT) is None


def test_a_history_that_was_never_heard_is_not_recorded():
    conversation = Conversation()
    told = chat(*TALK, NEXT)
    assert unseen(told, None) == len(TALK)
    hears(conversation, told, "At nine.")
    assert conversation.everything == [NEXT, "At nine."]
    hears(conversation, [*told, says("At nine.", role="assistant"), says("And then?")], "No idea.")
    hears(conversation, chat(*TALK, NEXT, "At nine.", "And then?", "None.", "Never mind"), "Fine.")
    assert conversation.everything == [NEXT, "At nine.", "And then?", "No idea.", "Never mind", "Fine."]


def test_a_history_is_adopted_once():
    conversation = Conversation()
    for _ in range(2):
        hears(conversation, chat(*TALK, NEXT), "At nine.", adopts=True)
    hears(conversation, chat(*TALK, NEXT, "At nine.", "And then?"), "No idea.", adopts=True)
    assert conversation.everything == [*TALK, NEXT, "At nine.", "And then?", "No idea."]


def test_an_exchange_that_passed_the_proxy_by_stays_out():
    conversation = heard(*TALK[:2])
    told = chat(*TALK[:4], NEXT)
    assert unseen(told, TellingOf(told).place_in(conversation.thread)) == 2
    hears(conversation, told, "At nine.")
    hears(conversation, [*told, says("At nine.", role="assistant"), says("And then?")], "No idea.")
    assert conversation.everything == [*TALK[:2], NEXT, "At nine.", "And then?", "No idea."]


def test_a_delivery_that_is_tried_again_doubles_nothing():
    conversation = heard(*TALK)
    told = chat(*TALK[:-1])
    conversation.send(*told, mode=Told())
    conversation.send(*told, says(TALK[-1], role="assistant"), mode=Told(answered=True))
    assert conversation.everything == list(TALK)


def test_a_short_word_that_is_said_again_and_again_stands_each_time():
    conversation = Conversation()
    said: list[str] = []
    for n in range(6):
        hears(conversation, chat(*said, "ok"), f"Step {n} is done.")
        said += ["ok", f"Step {n}"]
    assert conversation.everything == [text for n in range(6) for text in ("ok", f"Step {n} is done.")]


def test_an_answer_given_again_takes_the_place_of_the_one_before():
    conversation = heard(*TALK)
    hears(conversation, chat(*TALK[:-1]), "The one at ten.")
    assert conversation.standing == [*TALK[:-1], "The one at ten."]


def test_a_step_of_an_agent_follows_the_one_before():
    """It answers in steps, between which it sees results that no person said."""
    conversation = Conversation()
    told = chat(TALK[0])
    for n in range(3):
        hears(conversation, told, f"Action: look up {n}")
        told = [*told, says(f"Action: look up {n}", role="assistant")]
    assert conversation.standing == [TALK[0], *(f"Action: look up {n}" for n in range(3))]
    hears(conversation, [*told, says(TALK[2])], TALK[3])
    assert conversation.standing[-2:] == [TALK[2], TALK[3]]


def test_an_answer_that_was_only_heard_by_the_client_is_recorded():
    conversation = Conversation()
    conversation.send(*chat(TALK[0]), mode=Told())
    hears(conversation, chat(*TALK[:3]), TALK[3])
    assert conversation.everything == list(TALK[:4])


def test_a_question_that_a_client_took_back_after_an_error_stays():
    conversation = heard(*TALK[:2])
    conversation.send(*chat(*TALK[:2], "This failed, sorry"), mode=Told())
    hears(conversation, chat(*TALK[:3]), TALK[3])
    assert conversation.everything == [*TALK[:2], "This failed, sorry", *TALK[2:4]]


# A first question again.


def again(first: str, now: str, mine: str | None = None, known: str | None = None) -> bool:
    def asks(hint: str | None) -> list[Kept]:
        return [Kept("user", first, metadata={} if hint is None else {HINT: hint})]

    conversation = Conversation()
    hears(conversation, asks(known), "So it is.")
    place = TellingOf(asks(mine)).place_in(conversation.thread, now=now)
    return place is not None


@pytest.mark.parametrize(
    ("first", "now", "mine", "known", "expected"),
    [
        (TALK[0], LATER, None, None, True),
        (TALK[0], MUCH_LATER, None, None, False),
        ("Hi", LATER, None, None, False),
        ("Hi", MUCH_LATER, "session-id=a", "session-id=a", True),
        ("Hi", LATER, "session-id=a", "session-id=b", False),
        (TALK[0], LATER, "session-id=a", "session-id=b", False),
        (TALK[0], MUCH_LATER, "prompt_cache_key=a", "prompt_cache_key=a", False),
        (TALK[0], LATER, "prompt_cache_key=a", "prompt_cache_key=a", True),
    ],
)
def test_a_first_question_asked_again_is_the_same_one_only_where_that_is_proven(first, now, mine, known, expected):
    assert again(first, now, mine, known) is expected


def test_a_first_question_of_a_thread_that_went_on_begins_another():
    assert TellingOf(chat(TALK[0])).place_in(heard(*TALK).thread, now=AT) is None


def test_a_hint_decides_between_threads_that_are_alike_and_joins_none_that_contradict():
    threads = []
    for name in ("one", "two", "three"):
        conversation = Conversation()
        conversation.send(Kept("user", "Hi", metadata={HINT: f"session-id={name}"}), mode=Told())
        conversation.send(*chat("Hi", "Hello!"), mode=Told(answered=True))
        conversation.thread.name = name
        threads.append(conversation.thread)
    told = [*chat("Hi", "Hello!"), Kept("user", NEXT, metadata={HINT: "session-id=two"})]
    assert [name for name, _ in continued(threads, told)] == ["two"]
    other = [*chat("Good morning", "Hello!"), Kept("user", NEXT, metadata={HINT: "session-id=two"})]
    assert continued(threads, other) == []


def test_of_two_that_begin_alike_the_one_with_the_same_answer_comes_first():
    one, two = heard("Hi", "Good day to you."), heard("Hi", "Ahoy, sailor!")
    one.thread.name, two.thread.name = "one", "two"
    told = chat("Hi", "Good day to you.", NEXT)
    assert [name for name, _ in continued([two.thread, one.thread], told)] == ["one", "two"]


# Words.


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Where do I live?", "Where do I live?", True),
        ("Where do I live?", "Context: x Question: Where do I live?", True),
        ("Where do I live, and since when…", "Where do I live, and since when did I?", True),
        ("ok", "ok, where do I live?", False),
        ("ok", "Context: x Question: ok", True),
        ("I live in Bergen", "I live in Bergenhus", False),
        ("我住在卑尔根", "问题：我住在卑尔根", True),
        ("x" * 9, "x" * 100_000, False),
    ],
)
def test_words_may_be_the_same_with_context_around_them(one, other, same):
    assert may_be_same(one, other) is may_be_same(other, one) is same


@pytest.mark.parametrize(("roles", "begin"), [("u", 0), ("uau", 2), ("uauu", 2), ("uaua", 2), ("", 0), ("a", 0)])
def test_the_newest_exchange_begins_with_the_last_words_of_the_user(roles, begin):
    assert begin_of_exchange([says("x", role={"u": "user", "a": "assistant"}[one]) for one in roles]) == begin
