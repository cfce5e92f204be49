"""Rules of an undo, decided without a store: what goes back, what later commits have superseded, what conflicts."""

from __future__ import annotations

import msgspec
import pytest
from story import Story, added, given, news, policies, reinforcement, removal, removed, rewritten, summary

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    EditFact,
    RemoveFact,
    Revert,
    RollBack,
    Summarize,
)
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import (
    Edit,
    Erased,
    FactRevised,
    NewFact,
    Redacted,
    Section,
    SummaryUpdated,
    TurnRange,
)
from backstory.ledger.core.policy import Policy, PolicyValue
from backstory.ledger.rules.undo import Undo, plan_revert, plan_rollback

TEN = Policy(max_facts=10, fact_confidence_threshold=0)


def planned(story: Story, seq: int) -> Undo:
    return plan_revert(story.memory, command(story, seq))


def command(story: Story, seq: int, *, force: bool = False) -> Revert:
    return Revert(at=story.now(), target=seq, events=story.log[seq - 1], force=force)


def change(story: Story, **values: PolicyValue) -> int:
    """Change the policy by hand; returns the seq."""
    policy = msgspec.structs.replace(story.memory.policy, **values)
    story.do(ChangePolicy(at="", policy=policy), "policy")
    return story.memory.seq


def edit(story: Story, fact_id: str, content: str) -> int:
    story.do(EditFact(at="", edit=Edit(place="facts/0", id=fact_id, content=content)), "manual")
    return story.memory.seq


def sum_up(story: Story, first: int, last: int, *, level: int = 1) -> int:
    command = Summarize(at="", thread="t", level=level, turns=TurnRange(first, last), basis=story.memory.seq, text="so")
    story.do(command, "summary")
    return story.memory.seq


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


# A change of the policy


def test_a_lowered_cap_that_is_reverted_brings_back_what_it_evicted_and_the_cap():
    story = given(Policy(max_facts=20), *news(*(f"fact {n}" for n in range(14))))
    seq = change(story, max_facts=10)
    assert len(story.memory.facts) == 10
    plan = planned(story, seq)
    assert (plan.superseded, plan.conflicts) == ((), ())
    story.do(command(story, seq), "revert")
    assert (len(story.memory.facts), story.memory.policy.max_facts) == (14, 20)


def test_a_raised_cap_is_not_reverted_over_the_facts_that_have_used_it():
    story = given(Policy(max_facts=10), *news(*(f"old {n}" for n in range(10))))
    seq = change(story, max_facts=20)
    story.learn(*news(*((f"new {n}", 0.8) for n in range(4))))
    assert kinds(planned(story, seq).conflicts) == ["cap"] * 4
    with pytest.raises(ConflictError, match=r"fact_4_0 has no place under the policy: .* and 3 more"):
        story.do(command(story, seq), "revert")
    assert (len(story.memory.facts), story.memory.policy.max_facts) == (14, 20)


def test_a_forced_revert_of_a_raised_cap_evicts_the_lowest_and_is_undone_as_one():
    story = given(Policy(max_facts=10), *news(*(f"old {n}" for n in range(10))))
    seq = change(story, max_facts=20)
    story.learn(*news(*((f"new {n}", 0.8) for n in range(4))))
    before = story.memory
    events = story.do(command(story, seq, force=True), "revert")
    assert removed(events) == {f"new {n}": "cap" for n in range(4)}
    assert (len(story.memory.facts), story.memory.policy.max_facts) == (10, 10)
    story.do(command(story, story.memory.seq), "revert")
    assert (story.memory.facts, story.memory.policy) == (before.facts, before.policy)


def test_a_raised_threshold_that_is_reverted_brings_back_what_was_below_it():
    story = given(TEN, *news(("sure", 0.9), ("unsure", 0.4)))
    seq = change(story, fact_confidence_threshold=0.7)
    assert story.texts() == ["sure"]
    events = story.do(command(story, seq), "revert")
    assert (added(events), policies(events)) == (["unsure"], [TEN])
    assert story.texts() == ["sure", "unsure"]


def test_a_revert_of_another_commit_leaves_the_policy_as_it_is():
    story = given(TEN, *news("a"))
    change(story, max_facts=20)
    events = story.do(command(story, 2), "revert")
    assert (policies(events), story.memory.policy.max_facts) == ([], 20)


def test_the_first_policy_has_none_before_it_and_stays():
    story = given(TEN)
    plan = planned(story, 1)
    assert (plan.events, plan.superseded, plan.conflicts) == ((), (), ())


def test_duplicates_are_found_by_the_key_of_the_policy_that_comes_back():
    story = given(TEN, *news(("Likes tea", 0.5), *(f"fact {n}" for n in range(9))))
    seq = change(story, max_facts=9, dedup_key="exact")
    story.do(RemoveFact(at="", fact_id="fact_2_1"), "manual")
    story.learn(*news(("likes tea", 0.3)))
    assert [(note.kind, note.fact) for note in planned(story, seq).conflicts] == [("duplicate", "fact_2_0")]


# Facts


def test_what_an_update_added_leaves_and_what_it_removed_returns():
    story = given(TEN, *news("tea", "rain"))
    story.learn(removal("fact_2_0"), *news("coffee"))
    events = story.do(command(story, 3), "revert")
    assert (removed(events), added(events)) == ({"coffee": "revert"}, ["tea"])
    assert story.texts() == ["tea", "rain"]


def test_a_fact_that_has_left_since_is_gone_and_one_that_is_back_stays():
    story = given(TEN, *news("tea"))
    story.learn(removal("fact_2_0"))
    assert [(note.kind, note.fact) for note in planned(story, 2).superseded] == [("gone", "fact_2_0")]
    story.do(command(story, 3), "revert")
    plan = planned(story, 3)
    assert ([(note.kind, note.fact) for note in plan.superseded], plan.events) == ([("back", "fact_2_0")], ())


def test_an_edit_goes_back_to_the_text_before_it():
    story = given(TEN, *news("tea"))
    seq = edit(story, "fact_2_0", "coffee")
    (event,) = story.do(command(story, seq), "revert")
    assert isinstance(event, FactRevised)
    assert (event.before.content, event.after.content, event.change) == ("coffee", "tea", "restored")
    assert story.texts() == ["tea"]


def test_an_edit_of_a_fact_that_has_left_since_is_gone():
    story = given(TEN, *news("tea"))
    seq = edit(story, "fact_2_0", "coffee")
    story.do(RemoveFact(at="", fact_id="fact_2_0"), "manual")
    plan = planned(story, seq)
    assert (plan.events, [(note.kind, note.fact) for note in plan.superseded]) == ((), [("gone", "fact_2_0")])


def test_an_edit_that_was_edited_again_conflicts_and_force_brings_the_first_text_back():
    story = given(TEN, *news("tea"))
    seq = edit(story, "fact_2_0", "coffee")
    edit(story, "fact_2_0", "water")
    assert [(note.kind, note.fact) for note in planned(story, seq).conflicts] == [("revised", "fact_2_0")]
    story.do(command(story, seq, force=True), "revert")
    assert story.texts() == ["tea"]


def test_a_confirmation_since_blocks_neither_what_it_confirms_nor_an_edit_before_it():
    story = given(TEN, *news("tea", "rain"))
    story.learn(removal("fact_2_1"), *news("sun"))
    story.learn(reinforcement("fact_3_0"))
    assert planned(story, 3).conflicts == ()
    story.do(command(story, 3), "revert")
    assert story.texts() == ["tea", "rain"]


def test_a_confirmation_survives_the_revert_of_an_edit_before_it():
    story = given(TEN, *news("tea"))
    seq = edit(story, "fact_2_0", "coffee")
    confirmed = msgspec.structs.replace(story.memory.facts["fact_2_0"], confirmations=1, confirmed_at=story.now())
    story.take([FactRevised(story.memory.facts["fact_2_0"], confirmed, "confirmed")], "extraction")
    assert planned(story, seq).conflicts == ()
    story.do(command(story, seq), "revert")
    fact = story.memory.facts["fact_2_0"]
    assert (fact.content, fact.confirmations, fact.confirmed_at) == ("tea", 1, confirmed.confirmed_at)


def test_what_one_commit_changed_twice_goes_back_step_by_step():
    story = given(TEN, *news("tea"))
    first = story.memory.facts["fact_2_0"]
    second = msgspec.structs.replace(first, content="coffee")
    third = msgspec.structs.replace(second, content="water")
    story.take([FactRevised(first, second, "edited"), FactRevised(second, third, "edited")], "manual")
    assert planned(story, 3).conflicts == ()
    story.do(command(story, 3), "revert")
    assert story.memory.facts == {"fact_2_0": first}


# Duplicates


def test_an_edit_stays_where_another_fact_has_its_old_text_now():
    story = given(TEN, *news("tea"))
    seq = edit(story, "fact_2_0", "coffee")
    story.learn(*news("Tea"))
    assert [(note.kind, note.fact, note.detail) for note in planned(story, seq).conflicts] == [
        ("duplicate", "fact_2_0", "fact_4_0 says this now")
    ]
    with pytest.raises(ConflictError, match="fact_2_0 fact_4_0 says this now"):
        story.do(command(story, seq), "revert")
    assert story.do(command(story, seq, force=True), "revert") == ()
    assert story.texts() == ["coffee", "Tea"]


def test_a_removed_fact_stays_out_where_another_has_its_text_now():
    story = given(TEN, *news("tea", "rain"))
    story.learn(removal("fact_2_0"), removal("fact_2_1", 1))
    story.learn(*news("Tea"))
    assert [(note.kind, note.fact) for note in planned(story, 3).conflicts] == [("duplicate", "fact_2_0")]
    story.do(command(story, 3, force=True), "revert")
    assert story.texts() == ["rain", "Tea"]


# A memory that is full, or has another threshold now


def test_a_removed_fact_does_not_push_another_out_of_a_full_memory():
    story = given(TEN, *news(*((f"fact {n}", 0.5 + n / 100) for n in range(10))))
    story.learn(removal("fact_2_9"))
    story.learn(*news(("another", 0.9)))
    assert [(note.kind, note.fact) for note in planned(story, 3).conflicts] == [("cap", "fact_2_0")]
    events = story.do(command(story, 3, force=True), "revert")
    assert (removed(events), added(events)) == ({"fact 0": "cap"}, ["fact 9"])


def test_a_fact_below_the_threshold_of_today_conflicts_and_force_leaves_it_out():
    story = given(TEN, *news(("sure", 0.9), ("unsure", 0.4)))
    story.learn(removal("fact_2_0"), removal("fact_2_1", 1))
    change(story, fact_confidence_threshold=0.7)
    assert [(note.kind, note.fact) for note in planned(story, 3).conflicts] == [("threshold", "fact_2_1")]
    story.do(command(story, 3, force=True), "revert")
    assert story.texts() == ["sure"]


# Sections


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


def test_a_summary_stays_out_where_another_covers_its_turns_now():
    story = given(TEN)
    sum_up(story, 1, 4)
    sum_up(story, 5, 8)
    story.do(Clear(at=""), "clear")
    sum_up(story, 3, 4)
    plan = planned(story, 4)
    assert [(note.kind, note.section) for note in plan.superseded] == [("rewritten", "thread/1/1-4/t")]
    assert rewritten(plan.events) == {"thread/1/5-8/t": "so"}
    story.do(command(story, 4), "revert")
    assert {name for name, one in story.memory.sections.items() if one.summary} == {"thread/1/3-4/t", "thread/1/5-8/t"}


# Erased content


def test_an_erasure_is_not_undone():
    story = given(TEN)
    restated = SummaryUpdated("user.topOfMind", Section(), Section("trains"))
    story.take([Redacted("ledger", 2, 0, what="fact"), restated], "redaction")
    plan = planned(story, 2)
    assert (plan.events, kinds(plan.superseded), plan.conflicts) == ((), ["erased"], ())


def test_erased_pieces_of_a_commit_are_named_once_and_the_rest_is_undone():
    story = given(TEN, *news("tea", "rain"))
    plan = plan_revert(
        story.memory, Revert(at=story.now(), target=2, events=(Erased("0"), Erased("0"), *story.log[1][-1:]))
    )
    assert kinds(plan.superseded) == ["erased"]
    assert removed(plan.events) == {"rain": "revert"}


@pytest.mark.parametrize("kind", ["redaction", "removal"])
def test_an_undo_is_refused_that_was_planned_before_content_went(kind):
    story = given(TEN, *news("tea"))
    seen = story.memory.seq
    if kind == "redaction":
        story.take([Redacted("ledger", 2, 0, what="fact")], "redaction")
    else:
        seen += 1
    revert = Revert(at=story.now(), target=2, events=story.log[1], seen=seen)
    back = RollBack(at=story.now(), to=1, facts=(), sections={}, seen=seen)
    for plan in (lambda: plan_revert(story.memory, revert), lambda: plan_rollback(story.memory, back)):
        with pytest.raises(ConflictError, match="while the undo was planned; nothing was written, try again"):
            plan()


# Rollback


def test_a_rollback_restores_facts_and_sections_and_leaves_the_policy():
    story = given(TEN, *news("tea", "rain"))
    story.learn(summary("user.topOfMind", "trains"))
    then = story.memory
    story.learn(removal("fact_2_0"), *news("coffee"), summary("user.topOfMind", "ships"))
    change(story, max_facts=20)
    story.do(RollBack(at="", to=3, facts=tuple(then.facts.values()), sections=dict(then.sections)), "rollback")
    assert (story.texts(), story.memory.section("user.topOfMind").summary) == (["tea", "rain"], "trains")
    assert story.memory.policy.max_facts == 20


def test_a_rollback_lists_what_the_policy_of_today_does_not_let_back_in():
    story = given(TEN, *news(*(f"fact {n}" for n in range(9)), ("unsure", 0.4)))
    then = story.memory
    change(story, fact_confidence_threshold=0.7, max_facts=8)
    plan = plan_rollback(story.memory, RollBack(at=story.now(), to=2, facts=tuple(then.facts.values()), sections={}))
    assert [(note.kind, note.fact) for note in plan.superseded] == [("threshold", "fact_2_9"), ("cap", "fact_2_0")]
    assert (plan.events, plan.conflicts) == ((), ())


# Evicted facts


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
