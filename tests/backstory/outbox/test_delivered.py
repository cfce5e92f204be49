"""A host that hands over the whole conversation each time: what is left out of a delivery changes nothing."""

from __future__ import annotations

import itertools

import pytest
from fakes import open_home
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from sizes import examples

from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.changes import LogState
from backstory.memory import MemoryHandle
from backstory.outbox.delivered import Delivered

ADA = Scope("ada")
UPLOAD = "<uploaded_files>\n- a.pdf\n</uploaded_files>"
WORDS = ("I build trains.", "Noted.", "", " ", UPLOAD, f"{UPLOAD} Read it.", "<memory>\nold\n</memory>", "a < b")
CALL = {"name": "search", "args": {}, "id": "call"}
EXTRAS = ({}, {"hide_from_ui": True}, {"lc_source": "summarization"}, {"refusal": None})


def question(words: str, n: int, **extra: object) -> HumanMessage:
    return HumanMessage(words, id=f"h{n}", additional_kwargs=extra)


@st.composite
def turns(draw: st.DrawFn, n: int) -> list[BaseMessage]:
    """A question and its answer, or messages that are kept only in part."""
    plain = [question(f"Question {n}", n), AIMessage(f"Answer {n}", id=f"a{n}")]
    asked, answer = draw(st.sampled_from(WORDS)), draw(st.sampled_from(WORDS))
    odd = [
        question(asked, n, **draw(st.sampled_from(EXTRAS))),
        AIMessage(answer, id=f"c{n}", tool_calls=[CALL]),
        ToolMessage(answer, id=f"t{n}", tool_call_id="call"),
        SystemMessage(answer, id=f"s{n}"),
        HumanMessage([{"type": "text", "text": asked}], id=f"b{n}"),
        AIMessage(answer or "Well.", id=f"a{n}"),
    ]
    return plain if draw(st.booleans()) else [one for one in odd if draw(st.booleans())]


@st.composite
def deliveries(draw: st.DrawFn) -> list[tuple[list[BaseMessage], bool]]:
    """What a conversation is at each hand-over, and whether that one is recorded."""
    numbers = itertools.count()
    conversation = [one for _ in range(draw(st.integers(0, 6))) for one in draw(turns(next(numbers)))]
    sent = [(conversation, True)]
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(conversation)))
        match draw(st.sampled_from(("more", "edited", "cut", "inserted", "again"))):
            case "more":
                conversation = [*conversation, *draw(turns(next(numbers)))]
            case "edited" if at < len(conversation):
                edited = conversation[at].model_copy(update={"content": draw(st.sampled_from(WORDS))})
                conversation = [*conversation[:at], edited, *conversation[at + 1 :]]
            case "cut":
                conversation = [*conversation[:at], *draw(turns(next(numbers)))]
            case "inserted":
                conversation = [*conversation[:at], *draw(turns(next(numbers))), *conversation[at:]]
            case _:
                pass
        sent.append((conversation, draw(st.integers(0, 5)) > 0))
    return sent


def standing(memory: MemoryHandle) -> list[tuple[str, str, str]]:
    if not memory.threads():
        return []
    return [(turn.id, turn.role, turn.content) for turn in memory.transcript("t")]


@settings(max_examples=examples(), deadline=None)
@given(sent=deliveries())
def test_the_rest_of_a_conversation_is_recorded_as_the_whole_is(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[list[BaseMessage], bool]]
) -> None:
    delivered = Delivered()
    folder = tmp_path_factory.mktemp("home")
    with open_home(folder / "whole") as whole, open_home(folder / "rest") as rest:
        for conversation, recorded in sent:
            start, digests = delivered.start(ADA, "t", conversation)
            if not recorded:
                continue
            whole.memory("ada").record("t", conversation)
            rest.memory("ada").record("t", conversation[start:])
            delivered.note(ADA, "t", digests)
            assert standing(rest.memory("ada")) == standing(whole.memory("ada"))


def talk(turns: int) -> list[BaseMessage]:
    return [one for n in range(turns) for one in (question(f"Question {n}", n), AIMessage(f"Answer {n}", id=f"a{n}"))]


def test_a_conversation_is_delivered_from_the_last_question_on_that_is_known():
    delivered = Delivered()
    for turns, expected in ((3, 0), (4, 4), (5, 6)):
        start, digests = delivered.start(ADA, "t", talk(turns))
        assert start == expected
        delivered.note(ADA, "t", digests)
    assert delivered.start(ADA, "u", talk(5))[0] == delivered.start(Scope("bob"), "t", talk(5))[0] == 0
    delivered.forget()
    assert delivered.start(ADA, "t", talk(5))[0] == 0


@pytest.mark.parametrize("given", [None, 5, "text", [], [object()], ({"role": "user", "content": "a"},)])
def test_what_is_no_list_of_langchain_messages_is_delivered_whole(given):
    delivered = Delivered()
    for _ in range(2):
        start, digests = delivered.start(ADA, "t", given)
        delivered.note(ADA, "t", digests)
        assert start == 0


@pytest.mark.parametrize(
    ("index", "changed", "start"),
    [
        (0, question("Another question", 0), 0),
        (2, question("Another question", 1), 0),
        (3, AIMessage("Another answer", id="a1"), 2),
        (3, AIMessage("Answer 1", id="another"), 2),
        (3, AIMessage("Answer 1", id="a1", tool_calls=[CALL]), 2),
        (5, AIMessage("Answer 2", id="a2", additional_kwargs={"hide_from_ui": True}), 4),
        (6, question("Question 3", 3, hide_from_ui=True), 4),
        (7, AIMessage("Answer 3", id="a3", name="scout"), 6),
    ],
)
def test_what_has_changed_is_delivered_with_the_question_before_it(index, changed, start):
    delivered = Delivered()
    delivered.note(ADA, "t", delivered.start(ADA, "t", talk(4))[1])
    again = [*talk(4)[:index], changed, *talk(4)[index + 1 :]]
    assert delivered.start(ADA, "t", again)[0] == start


@pytest.mark.parametrize(
    "odd", [question(UPLOAD, 3), question(" ", 3), question("Hidden", 3, hide_from_ui=True), question("a < b", 3)]
)
def test_a_delivery_begins_with_a_question_in_plain_words(odd):
    delivered = Delivered()
    conversation = [*talk(3), odd, AIMessage("Answer 3", id="a3")]
    delivered.note(ADA, "t", delivered.start(ADA, "t", conversation)[1])
    assert delivered.start(ADA, "t", conversation)[0] == 4


@pytest.mark.parametrize(
    ("before", "now", "start"),
    [
        (None, None, 6),
        (LogState("7", 100), LogState("7", 100), 6),
        (LogState("7", 100), LogState("7", 900), 6),
        (LogState("7", 100), LogState("8", 900), 0),
        (LogState("7", 100), LogState("7", 99), 0),
        (LogState("7", 100), None, 0),
        (None, LogState("7", 100), 0),
    ],
)
def test_a_conversation_is_delivered_whole_to_a_log_that_may_have_lost_turns(before, now, start):
    delivered = Delivered()
    delivered.note(ADA, "t", delivered.start(ADA, "t", talk(4), before)[1])
    assert delivered.start(ADA, "t", talk(5), now)[0] == start
