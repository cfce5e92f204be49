"""Confirmations (row D12): they freshen a fact, change nothing else, and stand in no undo's way."""

from __future__ import annotations

import msgspec
import pytest
from story import at, extract, given, merged, new, news, refusals, reinforcement, removal, stale

from backstory.ledger.core.commands import EditFact, Revert, candidates_of
from backstory.ledger.core.events import CandidateRejected, Edit, FactRevised, Reinforcement
from backstory.ledger.core.memory import Fold
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.decide import decide
from backstory.ledger.rules.review import is_stale


def test_a_confirmation_counts_and_is_dated_and_changes_nothing_else() -> None:
    story = given(None, *news("Ada runs"))
    before = story.memory.facts["fact_2_0"]
    labels = {"scope": "user", "durability": "durable", "authority": "descriptive"}
    asked = msgspec.structs.replace(reinforcement("fact_2_0"), **labels)
    told, event = story.learn(asked)
    assert isinstance(event, FactRevised)
    assert (event.before, event.change, event.place) == (before, "confirmed", "factsToReinforce/0")
    assert event.after == msgspec.structs.replace(before, confirmations=1, confirmed_at=at(2))
    assert candidates_of((told, event)) == (asked,)
    story.learn(reinforcement("fact_2_0"))
    assert (story.memory.facts["fact_2_0"].confirmations, story.memory.facts["fact_2_0"].confirmed_at) == (2, at(3))


def test_one_update_confirms_a_fact_once() -> None:
    story = given(None, *news("Ada runs"))
    assert refusals(story.learn(reinforcement("fact_2_0"), reinforcement("fact_2_0", 1))) == {
        "factsToReinforce/1": "repeated"
    }
    assert story.memory.facts["fact_2_0"].confirmations == 1


def test_confirmations_are_bounded() -> None:
    story = given(None, *news("Ada runs"))
    fact = msgspec.structs.replace(story.memory.facts["fact_2_0"], confirmations=1_000)
    memory = msgspec.structs.replace(story.memory, facts={fact.id: fact})
    (event,) = decide(memory, msgspec.structs.replace(extract(reinforcement(fact.id), basis=2), at=at(9)))[1:]
    assert isinstance(event, FactRevised)
    assert (event.after.confirmations, event.after.confirmed_at) == (1_000, at(9))
    assert candidates_of((event,)) == (reinforcement(fact.id),)


def test_a_confirmed_fact_is_left_alone_for_a_whole_lifetime_more() -> None:
    story = given(None, *news("Ada runs"))
    story.wait(80)
    story.learn(reinforcement("fact_2_0"))
    fact = story.memory.facts["fact_2_0"]
    story.wait(20)
    assert not is_stale(fact, story.memory.policy, story.now())
    story.wait(71)
    assert is_stale(fact, story.memory.policy, story.now())


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (reinforcement("fact_9_9"), "unknown_fact"),
        (reinforcement("fact_3_0"), "by_hand"),
        (reinforcement("fact_2_1"), "unknown_fact"),
    ],
)
def test_a_fact_unknown_unseen_or_a_persons_is_not_confirmed(asked: Reinforcement, rule: str) -> None:
    story = given(None, *news("Ada runs", "Ada swims"))
    story.hand("Mine")
    before = story.memory.facts
    assert refusals(story.learn(asked, shown=("fact_2_0", "fact_3_0"))) == {"factsToReinforce/0": rule}
    assert story.memory.facts == before


def test_what_leaves_memory_in_the_same_update_is_not_confirmed() -> None:
    policy = Policy(max_facts=5, consolidation_enabled=True, consolidation_min_facts=2, staleness_min_candidates=1)
    story = given(policy, *news(("a", 0.7), "b", "c", "d", "e"))
    story.wait(100)
    asked = [reinforcement(f"fact_2_{n}", n) for n in range(5)]
    news_ = [new(f"new {n}", 1.0, place=f"newFacts/{n}") for n in range(4)]
    events = story.learn(
        *news_, removal("fact_2_1"), stale("fact_2_2"), merged(["fact_2_3", "fact_2_4"], "d and e"), *asked
    )
    assert refusals(events) == {f"factsToReinforce/{n}": "gone" for n in range(5)}
    assert story.texts() == ["new 0", "new 1", "new 2", "new 3", "d and e"]


def test_a_confirmation_never_blocks_a_revert_and_goes_with_the_fact() -> None:
    story = given(None, *news("Ada runs"))
    story.learn(reinforcement("fact_2_0"))
    decided = decide(story.memory, Revert(at=at(9), target=2, events=story.log[1]))
    story.take(decided, "revert")
    assert story.texts() == []


def test_reverting_a_confirmation_takes_that_one_back_whatever_came_since() -> None:
    story = given(None, *news("Ada runs"))
    story.learn(reinforcement("fact_2_0"))
    story.learn(reinforcement("fact_2_0"))
    story.do(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="Ada jogs")), "manual")
    story.do(Revert(at="", target=3, events=story.log[2]), "revert")
    fact = story.memory.facts["fact_2_0"]
    assert (fact.content, fact.confirmations) == ("Ada jogs", 1)


def test_a_confirmation_that_is_discarded_is_recorded_with_its_rule() -> None:
    story = given(None, *news("Ada runs"))
    story.take((), "clear")
    events = story.learn(reinforcement("fact_2_0"), basis=2)
    assert [e.rule for e in events if isinstance(e, CandidateRejected)] == ["basis"]
    assert candidates_of(events) == (reinforcement("fact_2_0"),)
    assert Fold(story.memory).memory() == story.memory
