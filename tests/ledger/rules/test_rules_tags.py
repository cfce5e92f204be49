"""Rules about tags and attributes: what facts get from turns, from each other and by hand, and what an undo does."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from story import Story, given, new

from backstory.ledger.core.commands import AddFact, EditFact, Revert, RollBack, candidates_of
from backstory.ledger.core.events import CandidateRejected, Consolidation, Edit, FactAdded, FactRevised, NewFact
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.undo import plan_revert
from backstory.ledger.text.tags import MAX_TAGS, joined_attributes, joined_tags

POLICY = Policy(max_facts=20, fact_confidence_threshold=0, consolidation_enabled=True, consolidation_min_facts=2)


def tags(story: Story) -> dict[str, tuple[str, ...]]:
    return {fact.content: fact.tags for fact in story.memory.in_order()}


def revert(story: Story, seq: int, **more: object) -> Revert:
    return Revert(at=story.now(), target=seq, events=story.log[seq - 1], **more)  # type: ignore[arg-type]


def test_a_fact_has_the_tags_of_its_candidate() -> None:
    story = given(POLICY, new("Drinks tea", tags=("heron",)))
    assert tags(story) == {"Drinks tea": ("heron",)}


def test_a_candidate_that_repeats_a_fact_gives_it_its_tags() -> None:
    story = given(POLICY, new("Drinks tea", tags=("heron",)))
    events = story.learn(new("drinks  tea", tags=("gull", "heron")))
    assert tags(story) == {"Drinks tea": ("heron", "gull")}
    assert [event.change for event in events if isinstance(event, FactRevised)] == ["tagged"]
    assert [event.rule for event in events if isinstance(event, CandidateRejected)] == ["duplicate"]
    (asked,) = candidates_of(events)
    assert isinstance(asked, NewFact)
    assert asked.tags == ("gull", "heron")


def test_a_candidate_that_brings_no_new_tag_changes_nothing() -> None:
    story = given(POLICY, new("Drinks tea", tags=("heron",)))
    events = story.learn(new("Drinks tea", tags=("heron",)))
    assert not [event for event in events if isinstance(event, FactRevised)]


def test_of_two_that_say_the_same_at_once_the_one_that_is_kept_has_the_tags_of_both() -> None:
    story = given(
        POLICY,
        new("Drinks tea", 0.8, tags=("heron",)),
        new("Drinks tea!", 0.9, place="newFacts/1", tags=("gull",)),
    )
    assert tags(story) == {"Drinks tea!": ("gull", "heron")}


def test_no_model_tags_what_a_person_entered() -> None:
    story = given(POLICY)
    story.hand("Drinks tea")
    story.learn(new("Drinks tea", tags=("heron",)))
    assert tags(story) == {"Drinks tea": ()}


def test_a_fact_that_leaves_in_the_same_update_is_not_tagged() -> None:
    story = given(msgspec.structs.replace(POLICY, max_facts=1), new("Drinks tea", 0.7))
    events = story.learn(new("Drinks tea", 0.7, tags=("heron",)), new("Has a cat", 0.9, place="newFacts/1"))
    assert tags(story) == {"Has a cat": ()}
    assert not [event for event in events if isinstance(event, FactRevised)]


def test_a_merged_fact_has_the_tags_of_its_sources_and_the_attributes_that_they_agree_on() -> None:
    story = given(POLICY, new("Drinks tea", tags=("heron",)), new("Drinks oolong", place="newFacts/1", tags=("gull",)))
    for fact in story.memory.in_order():
        attributes = {"team": "red", "rank": fact.place, fact.content: True}
        edit = Edit(place="facts/0", id=fact.id, attributes=attributes)
        story.do(EditFact(at="", edit=edit, by_model=True), "manual")
    sources = tuple(fact.id for fact in story.memory.in_order())
    story.learn(Consolidation(place="factsToConsolidate/0", sources=sources, content="Drinks tea, oolong above all"))
    (one,) = story.memory.in_order()
    assert one.tags == ("heron", "gull")
    assert one.attributes == {"team": "red", "Drinks tea": True, "Drinks oolong": True}


def test_an_edit_states_all_tags_anew_and_leaves_them_where_it_states_none() -> None:
    story = given(POLICY)
    story.do(AddFact(at="", fact=new("Drinks tea", place="facts/0", tags=("heron",), attributes={"n": 1})), "manual")
    (fact,) = story.memory.in_order()

    def edit(**changed: object) -> tuple[tuple[str, ...], dict[str, object]]:
        asked = Edit(place="facts/0", id=fact.id, **changed)  # type: ignore[arg-type]
        events = story.do(EditFact(at="", edit=asked), "manual")
        assert candidates_of(events) == (asked,)
        (now,) = story.memory.in_order()
        return now.tags, dict(now.attributes)

    assert edit(content="Drinks green tea") == (("heron",), {"n": 1})
    assert edit(tags=("gull",), content="Drinks green tea") == (("gull",), {"n": 1})
    assert edit(tags=(), attributes={"n": 2}) == ((), {"n": 2})
    assert edit(attributes={}, category="goal") == ((), {})


def test_a_revert_takes_the_tags_of_its_commit_alone() -> None:
    story = given(POLICY, new("Drinks tea", tags=("heron",)))
    story.learn(new("Drinks tea", tags=("gull",)))
    story.learn(new("Drinks tea", tags=("wren",)))
    story.do(revert(story, 3), "revert")
    assert tags(story) == {"Drinks tea": ("heron", "wren")}
    story.do(revert(story, 5), "revert")
    assert tags(story) == {"Drinks tea": ("heron", "gull", "wren")}


def test_tags_that_a_repetition_brought_never_block_an_undo_and_those_of_a_person_do() -> None:
    story = given(POLICY, new("Drinks tea", tags=("heron",)))
    story.learn(new("Drinks tea", tags=("gull",)))
    assert plan_revert(story.memory, revert(story, 2)).conflicts == ()
    fact = story.hand("Has a cat")
    story.do(EditFact(at="", edit=Edit(place="facts/0", id=fact.id, tags=("wren",))), "manual")
    assert [note.kind for note in plan_revert(story.memory, revert(story, 4)).conflicts] == ["revised"]


def test_a_fact_that_was_edited_since_loses_the_tags_alone() -> None:
    story = given(POLICY, new("Drinks tea", tags=("heron",)))
    story.learn(new("Drinks tea", tags=("gull",)))
    edit = Edit(place="facts/0", id="fact_2_0", content="Drinks green tea")
    story.do(EditFact(at="", edit=edit), "manual")
    undo = plan_revert(story.memory, revert(story, 3))
    assert undo.conflicts == ()
    story.take(undo.events, "revert")
    assert tags(story) == {"Drinks green tea": ("heron",)}


def test_a_fact_that_comes_back_has_the_tags_it_had() -> None:
    story = given(POLICY, new("Drinks tea", tags=("heron",)))
    then = story.memory
    story.learn(new("Drinks tea", tags=("gull",)))
    rollback = RollBack(at=story.now(), to=2, facts=tuple(then.facts.values()), sections=then.sections)
    story.do(rollback, "rollback")
    assert tags(story) == {"Drinks tea": ("heron",)}


names = st.lists(st.sampled_from("abcdefgh"), max_size=5).map(tuple)


@drawn(st.lists(st.tuples(st.sampled_from(["Drinks tea", "Has a cat", "Plays chess"]), names), max_size=12))
def test_a_fact_has_the_tags_of_all_that_ever_said_it(said: list[tuple[str, tuple[str, ...]]]) -> None:
    story, wanted = given(POLICY), dict[str, set[str]]()
    for content, named in said:
        story.learn(new(content, tags=named))
        wanted.setdefault(content, set()).update(named)
    assert {content: set(held) for content, held in tags(story).items()} == wanted
    replayed = Memory()
    again = Story(memory=replayed)
    for events, kind in zip(story.log, story.kinds, strict=True):
        again.take(events, kind)
    assert again.memory.facts == story.memory.facts


@drawn(st.lists(st.lists(st.integers(0, 40).map(str), max_size=30), max_size=4))
def test_tags_are_joined_each_once_and_up_to_a_bound(several: list[list[str]]) -> None:
    joined = joined_tags(*several)
    everything = [tag for tags in several for tag in tags]
    assert len(joined) == len(set(joined)) == min(MAX_TAGS, len(set(everything)))
    assert set(joined) <= set(everything)


@pytest.mark.parametrize(
    ("several", "joined"),
    [
        ([{"a": 1}, {"b": "x"}], {"a": 1, "b": "x"}),
        ([{"a": 1}, {"a": 1}], {"a": 1}),
        ([{"a": 1}, {"a": 2}, {"a": 1}], {}),
    ],
)
def test_attributes_are_joined_where_they_agree(
    several: list[dict[str, str | int | float | bool]], joined: dict[str, object]
) -> None:
    assert joined_attributes(several) == joined


def test_a_fact_learned_in_an_update_is_kept_as_it_was_proposed() -> None:
    story = given(POLICY)
    events = story.learn(new("Drinks tea", tags=("heron",)))
    (added,) = [event for event in events if isinstance(event, FactAdded)]
    assert added.proposed == {}
