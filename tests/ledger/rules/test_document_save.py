"""What a host changed in a document that it was given: how the difference is told, and what becomes of it."""

from __future__ import annotations

import pytest
from story import Story, at, given, new, news, refusals, removal, removed, summary

from backstory.ledger.core.commands import ImportDocument, SaveDocument, candidates_of
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import (
    Candidate,
    Edit,
    FactAdded,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    NewFact,
    NewSummary,
    Removal,
    Unread,
)
from backstory.ledger.core.policy import Policy
from backstory.ledger.importing import changes_since, read_document
from backstory.ledger.rules.decide import decide
from backstory.projections.what_if.counterfactual import decide_again

ROOMY = Policy(max_facts=100, fact_confidence_threshold=0, dedup_key="exact")


def saved(story: Story, *candidates: Candidate) -> tuple[LedgerEvent, ...]:
    return story.do(SaveDocument(at="", candidates=candidates), "import")


def fact(content: str, index: int = 0, **more: object) -> NewFact:
    return new(content, place=f"facts/{index}", **more)


# Deciding.


def test_what_is_not_spoken_of_stays():
    story = given(ROOMY, *news("a", "b"), summary("user.workContext", "builds"))
    events = saved(story, fact("c", id="fact_ab12"), removal("fact_2_0"), summary("user.topOfMind", "rows"))
    assert story.texts() == ["b", "c"]
    assert {name: one.summary for name, one in story.memory.sections.items()} == {
        "user.workContext": "builds",
        "user.topOfMind": "rows",
    }
    assert [type(event).__name__ for event in events] == ["FactRemoved", "SummaryUpdated", "FactAdded"]


def test_a_fact_that_is_restated_keeps_its_birth_and_what_the_document_does_not_state():
    story = given(ROOMY, new("a", evidence=("t1",), place="newFacts/0"))
    told = fact("A!", id="fact_2_0", confidence=0.3, at=at(-5), source="t9", category="goal", source_error="said b")
    (event,) = saved(story, told)
    assert isinstance(event, FactRevised)
    after = story.memory.facts["fact_2_0"]
    assert (after.content, after.confidence, after.category, after.source_error) == ("A!", 0.3, "goal", "said b")
    assert (after.created_at, after.source) == (at(-5), "t9")
    assert (after.seq, after.place, after.evidence) == (2, 0, ("t1",))
    bare = fact("A?", id="fact_2_0")
    saved(story, bare)
    assert (story.memory.facts["fact_2_0"].created_at, story.memory.facts["fact_2_0"].source) == (at(-5), "t9")


def test_a_persons_fact_stays_a_persons():
    story = given(ROOMY)
    mine = story.hand("mine")
    saved(story, fact("theirs", id=mine.id))
    assert story.memory.facts[mine.id].by_hand


def test_what_says_nothing_new_or_is_gone_already_is_refused_as_such():
    story = given(ROOMY, *news("a"), summary("user.workContext", "builds"))
    live = story.memory.facts["fact_2_0"]
    same = fact("a", id="fact_2_0", at=live.created_at, source=live.source)
    asked = (same, summary("user.workContext", "builds"), removal("fact_9_9"))
    assert refusals(saved(story, *asked)) == {
        "facts/0": "unchanged",
        "user.workContext": "unchanged",
        "factsToRemove/0": "unknown_fact",
    }
    assert story.texts() == ["a"]


def test_a_fact_is_removed_once_and_one_that_comes_back_under_its_id_is_a_new_one():
    story = given(ROOMY, *news("a", "b"))
    events = saved(story, removal("fact_2_0", 0), removal("fact_2_0", 1), fact("a again", id="fact_2_0"))
    assert refusals(events) == {"factsToRemove/1": "repeated"}
    assert removed(events) == {"a": "import"}
    assert [event.fact.id for event in events if isinstance(event, FactAdded)] == ["fact_2_0"]
    assert story.texts() == ["b", "a again"]


@pytest.mark.parametrize(
    ("stated", "kept"),
    [
        ("fact_0a1b2c3d", True),
        ("fact_12345678", True),
        ("anything", True),
        ("fact_1_0", True),
        ("fact_99_0", True),
        ("fact_3_0", True),
        ("fact_3_7", True),
        ("fact_3_0_2", False),
        ("fact_99_0_2", False),
        ("", False),
    ],
)
def test_an_id_is_kept_unless_a_later_commit_could_give_it(stated, kept):
    story = given(ROOMY, *news("a"))
    saved(story, fact("b", 7, id=stated))
    assert story.memory.in_order()[1].id == (stated if kept else "fact_3_7")


def test_an_id_that_two_facts_state_is_the_firsts():
    story = given(ROOMY, *news("a"))
    saved(story, fact("b", 0, id="x"), fact("c", 1, id="x"), fact("d", 2, id="fact_2_0"), fact("e", 3, id="fact_2_0"))
    assert {one.id: one.content for one in story.memory.facts.values()} == {
        "fact_2_0": "d",
        "x": "b",
        "fact_3_1": "c",
        "fact_3_3": "e",
    }


def test_words_are_free_once_who_said_them_goes_or_says_something_else():
    story = given(ROOMY, *news("a", "b", "c"))
    events = saved(
        story, fact("b", 0, id="fact_2_0"), fact("a", 1, id="fact_2_1"), fact("c", 2, id="x"), removal("fact_2_2")
    )
    assert refusals(events) == {}
    assert story.texts() == ["b", "a", "c"]


def test_a_chain_of_facts_falls_back_as_a_whole_where_its_last_may_not_move():
    story = given(ROOMY, *news("a", "b", "c", "d"))
    chain = (
        fact("b", 0, id="fact_2_0"),
        fact("c", 1, id="fact_2_1"),
        fact("d", 2, id="fact_2_2"),
        fact("a", 3, id="new"),
    )
    assert refusals(saved(story, *chain)) == dict.fromkeys(("facts/0", "facts/1", "facts/2", "facts/3"), "duplicate")
    assert story.texts() == ["a", "b", "c", "d"]


def test_there_is_no_more_room_than_the_policy_gives_and_nobody_is_evicted_for_a_newcomer():
    story = given(Policy(max_facts=3, fact_confidence_threshold=0), *news(("a", 0.1), ("b", 0.9)))
    events = saved(story, fact("c", 0, confidence=0.5), fact("d", 1, confidence=0.8), fact("e", 2, confidence=0.6))
    assert refusals(events) == {"facts/0": "cap", "facts/2": "cap"}
    assert story.texts() == ["a", "b", "d"]
    events = saved(story, fact("f", 0), removal("fact_2_0"), fact("d!", 1, id="fact_3_1"))
    assert refusals(events) == {}
    assert story.texts() == ["b", "d!", "f"]


def test_what_is_no_fact_and_what_the_policy_does_not_take_is_refused():
    story = given(Policy())
    odd = Edit(place="facts/3", id="x", content="y")
    events = saved(
        story, fact("", 0), fact("low", 1, confidence=0.2), Unread(place="facts/2", text="1", detail="no object"), odd
    )
    assert refusals(events) == {
        "facts/0": "empty",
        "facts/1": "threshold",
        "facts/2": "malformed",
        "facts/3": "malformed",
    }


def test_a_save_is_decided_again_as_a_save_from_what_it_led_to():
    story = given(ROOMY, *news("a", "b", "c"))
    asked = (
        summary("user.workContext", "builds"),
        fact("A", 0, id="fact_2_0", category="hobby"),
        fact("d", 1, id="fact_77_0", confirmations=2, consolidated_from=("x",)),
        fact("b", 2, id="twin"),
        Removal(place="factsToRemove/0", id="fact_2_2", reason="old"),
    )
    before = story.memory
    events = saved(story, *asked)
    rebuilt = candidates_of(events, stated=True)
    assert [one.place for one in rebuilt] == [one.place for one in asked]
    assert [one.category for one in rebuilt if isinstance(one, NewFact)] == ["hobby", "context", "context"]
    assert decide(before, SaveDocument(at=story.memory.at, candidates=rebuilt)) == events
    commits = [
        Commit(seq, at(seq - 1), Cause(kind=kind, thread="t1", action="save" if seq == 3 else None), told, "", "")
        for seq, (kind, told) in enumerate(zip(story.kinds, story.log, strict=True), 1)
    ]
    assert decide_again(commits, {}).facts == story.memory.facts
    assert [one.content for one in decide_again(commits, {"max_facts": 1}).in_order()] == ["b"]


def test_an_import_with_a_basis_is_for_that_memory_and_no_other():
    story = given(ROOMY, *news("a"))
    command = ImportDocument(at=at(9), candidates=(fact("b"),), basis=story.memory.seq)
    assert [type(event) for event in decide(story.memory, command)] == [FactAdded]
    story.hand("c")
    with pytest.raises(ConflictError, match="after commit 2, and the last is 3"):
        decide(story.memory, command)


def test_the_reason_of_a_removal_is_told():
    story = given(ROOMY, *news("a"))
    (event,) = saved(story, Removal(place="factsToRemove/0", id="fact_2_0", reason="moved"))
    assert isinstance(event, FactRemoved)
    assert (event.place, event.note) == ("factsToRemove/0", "moved")


# The difference.


def document(*facts: object, **sections: str) -> dict[str, object]:
    return {"user": {name: {"summary": text} for name, text in sections.items()}, "facts": list(facts)}


def stated(fact_id: str | None, content: str, **more: object) -> dict[str, object]:
    told = {"id": fact_id, "content": content, "confidence": 0.9, **more}
    return {name: value for name, value in told.items() if value is not None}


def told(before: dict[str, object], after: object, **more: object) -> list[tuple[str, str]]:
    changes = changes_since(read_document(before), after, **more)  # type: ignore[arg-type]
    named = {NewFact: "content", Removal: "id", NewSummary: "summary", Unread: "place"}
    return [(type(one).__name__, getattr(one, named[type(one)])) for one in changes]


A, B = stated("a", "Ada runs"), stated("b", "Ada rows")


def test_only_what_differs_is_told():
    before = document(A, B, workContext="builds", topOfMind="rests")
    after = document(B | {"confidence": 0.5}, stated("c", "Ada rests"), workContext="bakes", topOfMind="rests")
    assert told(before, after) == [
        ("NewSummary", "bakes"),
        ("NewFact", "Ada rows"),
        ("NewFact", "Ada rests"),
        ("Removal", "a"),
    ]
    assert told(before, before) == []
    assert told(before, after, removable={"b"})[-1] == ("NewFact", "Ada rests")


@pytest.mark.parametrize(
    ("field", "value", "differs"),
    [
        ("category", "goal", True),
        ("category", "hobby", True),
        ("category", "Context", False),
        ("sourceError", "x", True),
        ("expectedValidDays", 9, True),
        ("createdAt", "2020-01-01T00:00:00Z", True),
        ("createdAt", "", False),
        ("source", "t2", True),
        ("source", "unknown", False),
        ("byHand", True, True),
        ("confirmationCount", 2, True),
        ("lastConfirmedAt", "2020-01-01T00:00:00Z", True),
        ("consolidatedFrom", ["x", "y"], True),
        ("consolidatedFrom", [], False),
        ("anything", 1, False),
        ("content", "  Ada runs ", False),
    ],
)
def test_a_field_is_a_change_where_it_states_something_else(field, value, differs):
    before = document(A | {"category": "context", "createdAt": "2026-01-01T00:00:00Z", "source": "t1"})
    facts = before["facts"]
    assert isinstance(facts, list)
    assert bool(told(before, document(facts[0] | {field: value}))) is differs


@pytest.mark.parametrize("field", ["byHand", "confirmationCount", "lastConfirmedAt", "consolidatedFrom"])
def test_what_is_known_of_a_fact_is_not_taken_away_by_leaving_it_out(field):
    full = A | {
        "byHand": True,
        "confirmationCount": 2,
        "lastConfirmedAt": "2026-01-01T00:00:00Z",
        "consolidatedFrom": ["x"],
    }
    assert told(document(full), document({name: value for name, value in full.items() if name != field})) == []


def test_a_fact_without_an_id_is_the_one_of_the_same_words_that_no_other_names():
    bare = stated(None, "Ada runs")
    assert told(document(A, B), document(bare, B)) == []
    assert told(document(A, B), document(A, bare, B)) == [("NewFact", "Ada runs")]
    assert told(document(A, B), document(bare, bare, B)) == [("NewFact", "Ada runs")]


def test_a_fact_that_is_there_twice_is_told_so_that_its_refusal_is_recorded():
    assert told(document(A, B), document(A, A, B)) == [("NewFact", "Ada runs")]


def test_what_is_named_and_cannot_be_read_is_not_removed():
    assert told(document(A, B), document({"id": "a"}, B)) == [("Unread", "facts/0")]
    long = "x" * 600
    assert told(document(stated(long, "Ada runs")), document({"id": long})) == [("Unread", "facts/0")]


def test_sections_that_are_left_out_stay_and_those_that_are_emptied_go():
    before = document(workContext="builds", topOfMind="rests")
    assert told(before, document(workContext="")) == [("NewSummary", "")]
    assert told(before, {"facts": []}) == []
