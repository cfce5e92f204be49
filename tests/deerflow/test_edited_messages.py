"""Messages that a person edits in DeerFlow's chat before memory has learned from them."""

from __future__ import annotations

import json

import pytest
from fakes import PATIENCE
from hosts import ChatModel, contents, learned, learning
from langchain_core.messages import AIMessage, HumanMessage

from backstory.deerflow import BackstoryMemoryManager


def said(*words: str) -> list[object]:
    """Messages with their ids: `h1 I like tea.` is a person's, `a1 Noted.` an agent's."""
    parts = [word.partition(" ") for word in words]
    return [(HumanMessage if key[0] == "h" else AIMessage)(text, id=key) for key, _, text in parts]


FIRST = ("h1 I live in Bern.", "a1 A fine town.")
WRONG = ("h2 My sister is called Ann.", "a2 I will remember Ann.")
RIGHT = ("h3 My brother is called Tom.", "a3 I will remember Tom.")


def add(manager: BackstoryMemoryManager, *words: str, thread: str = "t1") -> None:
    manager.add(thread, said(*words), user_id="ada")


def standing(manager: BackstoryMemoryManager) -> list[str]:
    manager._hosting._fail_safe.flush(PATIENCE)
    return [turn.id for turn in manager._hosting.home.memory("ada").transcript("t1")]


@pytest.fixture
def manager(host) -> BackstoryMemoryManager:
    """A manager under which everything stays pending until it is flushed."""
    return host.manager(ChatModel(), debounce_seconds=300)


def test_the_withdrawn_form_of_a_pending_message_is_not_learned(host):
    model = ChatModel()
    manager = host.manager(model, debounce_seconds=300)
    add(manager, *FIRST, *WRONG)
    add(manager, *FIRST, *RIGHT)
    learned(manager)
    asked = "".join(str(call.messages) for call in model.asked)
    assert "Tom" in asked
    assert "Ann" not in asked
    assert "Bern" in asked


def test_the_edit_says_that_it_was_one_and_can_be_restored(manager):
    add(manager, *FIRST, *WRONG)
    add(manager, *FIRST, *RIGHT)
    memory = manager._hosting.home.memory("ada")
    assert [(turn.id, turn.reason, turn.proven) for turn in memory.superseded("t1")] == [
        ("h2", "edited", True),
        ("a2", "edited", True),
    ]
    memory.restore("t1", ["h2"])
    assert "h2" in standing(manager)
    assert memory.verify().ok


def test_another_answer_to_the_same_question_replaces_the_pending_one(manager):
    add(manager, *FIRST, *WRONG)
    add(manager, *FIRST, WRONG[0], "a9 Who is Ann?")
    assert standing(manager) == ["h1", "a1", "h2", "a9"]


def test_a_question_edited_under_its_own_id_takes_its_answer_along(manager):
    add(manager, *FIRST, *WRONG)
    add(manager, *FIRST, "h2 My brother is called Tom.", "a3 I will remember Tom.")
    assert standing(manager) == ["h1", "a1", "h2", "a3"]


def test_all_that_followed_the_edited_message_is_withdrawn(manager):
    add(manager, *FIRST, *WRONG)
    add(manager, *FIRST, *WRONG, "h4 She is 40.", "a4 Noted.")
    add(manager, *FIRST, *RIGHT)
    assert standing(manager) == ["h1", "a1", "h3", "a3"]


def test_the_first_form_stands_again_where_the_person_goes_back_to_it(manager):
    add(manager, *FIRST, *WRONG)
    add(manager, *FIRST, *RIGHT)
    add(manager, *FIRST, *WRONG)
    assert standing(manager) == ["h1", "a1", "h2", "a2"]


def test_what_was_learned_already_stands(host):
    manager = host.manager(ChatModel(learning("Has a sister")))
    add(manager, *FIRST, *WRONG)
    assert learned(manager) == ["Has a sister"]
    add(manager, *FIRST, *RIGHT)
    assert standing(manager) == ["h1", "a1", "h2", "a2", "h3", "a3"]


@pytest.mark.parametrize(
    ("then", "stand"),
    [
        (FIRST, ["h1", "a1", "h2", "a2"]),
        (WRONG, ["h1", "a1", "h2", "a2"]),
        ((*WRONG, *RIGHT), ["h1", "a1", "h2", "a2", "h3", "a3"]),
        ((FIRST[0], *RIGHT, *WRONG), ["h1", "a1", "h2", "a2", "h3", "a3"]),
        (RIGHT, ["h1", "a1", "h2", "a2", "h3", "a3"]),
        ((FIRST[0], *WRONG, *RIGHT), ["h1", "a1", "h2", "a2", "h3", "a3"]),
        ((FIRST[0], "a1 A fine town. And"), ["h1", "h2", "a2", "a1"]),
        (("h9 I live in Rome.", "a9 Ah."), ["h1", "a1", "h2", "a2", "h9", "a9"]),
    ],
    ids=["head", "window", "goes on", "beside", "only new", "gap", "grown answer", "first edited"],
)
def test_a_part_of_the_conversation_withdraws_nothing(manager, then, stand):
    add(manager, *FIRST, *WRONG)
    add(manager, *then)
    assert standing(manager) == stand


def test_what_a_summary_drops_withdraws_nothing(manager):
    add(manager, *FIRST, *WRONG)
    manager.add_nowait("t1", said(*FIRST, *RIGHT), user_id="ada")
    assert {"h2", "a2"} <= {turn.id for turn in manager._hosting.home.memory("ada").transcript("t1")}


def test_messages_without_ids_withdraw_nothing(manager):
    manager.add("t1", [HumanMessage("I live in Bern."), AIMessage("A fine town.")], user_id="ada")
    manager.add("t1", [HumanMessage("I live in Bern."), AIMessage("No.", id="a2")], user_id="ada")
    assert "A fine town." in [turn.content for turn in manager._hosting.home.memory("ada").transcript("t1")]


def test_of_another_thread_nothing_is_withdrawn(manager):
    add(manager, *FIRST, *WRONG)
    add(manager, *FIRST, *RIGHT, thread="t2")
    assert standing(manager) == ["h1", "a1", "h2", "a2"]


def test_a_delivery_that_waited_for_the_disk_withdraws_too(host, monkeypatch):
    manager = host.manager(ChatModel(), debounce_seconds=300)
    add(manager, *FIRST, *WRONG)
    store = manager._hosting.home.store
    append = store.append
    monkeypatch.setattr(store, "append", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
    add(manager, *FIRST, *RIGHT)
    monkeypatch.setattr(store, "append", append)
    assert standing(manager) == ["h1", "a1", "h3", "a3"]


def test_a_fact_from_words_that_were_withdrawn_while_the_model_was_asked_is_marked(host):
    answer = {"content": "Has a sister", "category": "context", "confidence": 0.9, "evidence": ["h2"]}
    manager: BackstoryMemoryManager

    def edit_meanwhile() -> str:
        if len(model.asked) == 1:
            add(manager, *FIRST, *RIGHT)
            return json.dumps({"newFacts": [answer]})
        return learning()

    model = ChatModel(edit_meanwhile)
    manager = host.manager(model, debounce_seconds=300)
    add(manager, *FIRST, *WRONG)
    assert manager.shutdown_flush(PATIENCE)
    (fact,) = manager._hosting.home.memory("ada").facts()
    why = manager._hosting.home.memory("ada").why(fact.id)
    assert contents(manager) == ["Has a sister"]
    assert {one.turn: one.withdrawn for one in why.evidence}["h2"] is True
