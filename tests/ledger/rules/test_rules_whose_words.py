"""Whose words: under `evidence: user` a model's fact needs at least one turn of a user behind it."""

from __future__ import annotations

import pytest
from story import day, given, new, news, refusals, removal

from backstory.ledger.core.events import Spoken
from backstory.ledger.core.policy import Policy

USER, ASSISTANT = Spoken(day(-3)), Spoken(day(-2), "assistant")
CITED = {"u": USER, "a": ASSISTANT, "b": ASSISTANT}
USERS = Policy(evidence="user")


@pytest.mark.parametrize(
    ("evidence", "answered", "refused"),
    [
        (("a",), USER, True),
        (("a", "b"), USER, True),
        (("a", "nowhere"), USER, True),
        (("u",), USER, False),
        (("a", "u"), USER, False),
        ((), USER, False),
        (("nowhere",), USER, False),
        ((), ASSISTANT, True),
        ((), None, False),
    ],
)
def test_a_fact_needs_a_turn_of_a_user_behind_it(
    evidence: tuple[str, ...], answered: Spoken | None, *, refused: bool
) -> None:
    cited = {} if answered is None else CITED
    story = given(USERS)
    found = refusals(story.learn(new("Lives in Oslo", evidence=evidence), answered=answered, cited=cited))
    assert found == ({"newFacts/0": "assistant_only"} if refused else {})
    anyone = given()
    assert refusals(anyone.learn(new("Lives in Oslo", evidence=evidence), answered=answered, cited=cited)) == {}


def test_a_removal_whose_replacement_only_an_assistant_said_is_refused_too() -> None:
    story = given(USERS)
    story.learn(*news("Lives in Oslo"), answered=USER)
    (fact,) = story.memory.in_order()
    asked = (new("Lives in Bergen", evidence=("a",)), removal(fact.id, replacement=0))
    assert refusals(story.learn(*asked, answered=USER, cited=CITED)) == {
        "newFacts/0": "assistant_only",
        "factsToRemove/0": "replacement_refused",
    }
    assert story.texts() == ["Lives in Oslo"]


def test_the_facts_of_before_stay_and_rest_on_what_a_user_says_of_them_later() -> None:
    story = given()
    story.learn(new("Lives in Oslo", evidence=("a",)), answered=USER, cited=CITED)
    assert [fact.rests_on.role for fact in story.memory.in_order()] == ["assistant"]
    story.learn(new("Lives in Oslo", evidence=("u",)), answered=USER, cited=CITED)
    assert [fact.rests_on.role for fact in story.memory.in_order()] == ["user"]
