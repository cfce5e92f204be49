"""Rules of an undo, decided without a store: what goes back, what later commits have superseded, what conflicts."""

from __future__ import annotations

import msgspec
import pytest
from story import Story, given, news, removal, summary

from backstory.ledger.core.commands import AddFact, ChangePolicy, EditFact, RemoveFact, Revert
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import Edit, NewFact
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.undo import Undo, plan_revert

TEN = Policy(max_facts=10, fact_confidence_threshold=0)


def planned(story: Story, seq: int) -> Undo:
    return plan_revert(story.memory, command(story, seq))


def command(story: Story, seq: int, *, force: bool = False) -> Revert:
    return Revert(at=story.now(), target=seq, events=story.log[seq - 1], force=force)


def kinds(notes: object) -> list[str]:
    return [note.kind for note in notes]  # type: ignore[attr-defined]


def test_a_policy_that_has_changed_again_stays():
    story = given(TEN)
    story.do(ChangePolicy(at="", policy=msgspec.structs.replace(TEN, max_facts=20)), "policy")
    story.do(ChangePolicy(at="", policy=msgspec.structs.replace(TEN, max_facts=30)), "policy")
    plan = planned(story, 2)
    assert (plan.events, kinds(plan.superseded)) == ((), ["policy"])
    story.do(command(story, 3), "revert")
    assert story.memory.policy.max_facts == 20


def test_a_section_that_was_rewritten_since_stays_and_one_that_was_not_goes_back():
    story = given(TEN)
    story.learn(summary("user.workContext", "builds trains"), summary("user.topOfMind", "tea"))
    story.learn(summary("user.workContext", "builds ships"))
    plan = planned(story, 2)
    assert [(note.kind, note.section) for note in plan.superseded] == [("rewritten", "user.workContext")]
    story.do(command(story, 2), "revert")
    assert {name: one.summary for name, one in story.memory.sections.items() if one.summary} == {
        "user.workContext": "builds ships"
    }


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_evicted_facts_return_as_far_as_there_is_room_and_the_least_certain_stays_out_first(room):
    kept = [(f"kept {n}", 0.8) for n in range(7)]
    story = given(TEN, *news(*kept, ("low 1", 0.1), ("low 2", 0.2), ("low 3", 0.3)))
    story.learn(*news(("new 1", 0.9), ("new 2", 0.9), ("new 3", 0.9)))
    assert not any(text.startswith("low") for text in story.texts())
    for n in range(3 - room):
        by_hand = NewFact(place="facts/0", content=f"by hand {n}", confidence=0.9)
        story.do(RemoveFact(at="", fact_id=f"fact_3_{n}"), "manual")
        story.do(AddFact(at="", fact=by_hand), "manual")
    plan = planned(story, 3)
    assert plan.conflicts == ()
    assert kinds(plan.superseded).count("room") == 3 - room
    story.do(command(story, 3), "revert")
    assert [text for text in story.texts() if text.startswith("low")] == ["low 1", "low 2", "low 3"][3 - room :]


def test_a_single_conflict_blocks_an_undo_and_force_goes_over_it():
    story = given(TEN, *news("a"))
    story.do(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="b")), "manual")
    assert kinds(planned(story, 2).conflicts) == ["revised"]
    with pytest.raises(ConflictError, match="commit 2 cannot be reverted as it is: fact_2_0 was changed since"):
        story.do(command(story, 2), "revert")
    assert story.texts() == ["b"]
    story.do(command(story, 2, force=True), "revert")
    assert story.texts() == []


def test_two_conflicts_are_counted():
    story = given(TEN, *news("a", "b"))
    story.learn(removal("fact_2_0"), removal("fact_2_1", 1))
    story.learn(*news("A", "B"))
    with pytest.raises(ConflictError, match=r"fact_2_\d fact_4_\d says this now and 1 more"):
        story.do(command(story, 3), "revert")
