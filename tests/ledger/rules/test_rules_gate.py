"""The gate (row D11): only what holds for the user, lastingly, and is so rather than told to be done is remembered."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from story import (
    Story,
    added,
    given,
    longer,
    merged,
    new,
    news,
    refusals,
    reinforcement,
    removal,
    removed,
    rewritten,
    stale,
    summary,
)

from backstory.ledger.core.commands import candidates_of
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    FactAdded,
    FactRemoved,
    LedgerEvent,
    SummaryUpdated,
)
from backstory.ledger.core.policy import Policy

OPEN = Policy(consolidation_enabled=True, consolidation_min_facts=2, staleness_min_candidates=1)
FITTING = {"scope": "user", "durability": "durable", "authority": "descriptive"}
UNFIT = [
    ("scope", "task"),
    ("scope", "session"),
    ("scope", "agent"),
    ("scope", "用户"),
    ("durability", "temporary"),
    ("durability", "not durable"),
    ("authority", "prescriptive"),
    ("authority", "instruction"),
]


def labelled(candidate: Candidate, labels: dict[str, str]) -> Candidate:
    return msgspec.structs.replace(candidate, **labels)


def old_story(policy: Policy = OPEN) -> Story:
    """Facts fact_2_0 to fact_2_5, old enough to be reviewed and enough to be merged."""
    story = given(policy, *news("Ada runs", "Ada swims", "Ada rows", "Ada sails", "Ada skis", "Ada climbs"))
    story.wait(100)
    return story


KINDS: dict[str, Callable[[], Candidate]] = {
    "newFacts/0": lambda: new("Ada lives in Oslo"),
    "factsToRemove/0": lambda: removal("fact_2_0"),
    "user.workContext": lambda: summary("user.workContext", "Writes Rust."),
    "factsToReinforce/0": lambda: reinforcement("fact_2_1"),
    "staleFactsToRemove/0": lambda: stale("fact_2_2"),
    "staleFactsToExtend/0": lambda: longer("fact_2_3", 30),
    "factsToConsolidate/0": lambda: merged(["fact_2_4", "fact_2_5"], "Ada is out in all weathers"),
}


def proposed(labels: dict[str, str]) -> list[Candidate]:
    return [labelled(make(), labels) for make in KINDS.values()]


def rebuilt(events: tuple[LedgerEvent, ...]) -> list[Candidate]:
    return sorted(candidates_of(events), key=lambda candidate: candidate.place)


@pytest.mark.parametrize(("name", "label"), UNFIT)
def test_a_candidate_of_any_kind_with_a_label_that_does_not_fit_is_refused_by_the_gate(name: str, label: str) -> None:
    story = old_story()
    before = story.memory.facts
    candidates = proposed({**FITTING, name: label})
    events = story.learn(*candidates)
    assert refusals(events) == dict.fromkeys(KINDS, "gate")
    assert (story.memory.facts, story.memory.sections) == (before, {})
    assert all(label in e.detail for e in events if isinstance(e, CandidateRejected))
    assert rebuilt(events) == sorted(candidates, key=lambda candidate: candidate.place)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        FITTING,
        {"scope": "user"},
        {"durability": "durable"},
        {"authority": "descriptive"},
        {"scope": " User\n", "durability": "DURABLE", "authority": "Descriptive "},
    ],
)
def test_what_has_no_labels_or_fitting_ones_in_any_case_and_space_passes(labels: dict[str, str]) -> None:
    story = old_story()
    candidates = proposed(labels)
    events = story.learn(*candidates)
    assert refusals(events) == {}
    assert story.texts() == ["Ada swims", "Ada sails", "Ada lives in Oslo", "Ada is out in all weathers"]
    assert rebuilt(events) == sorted(candidates, key=lambda candidate: candidate.place)


@pytest.mark.parametrize(("name", "label"), UNFIT)
def test_without_the_gate_every_label_passes_and_is_kept(name: str, label: str) -> None:
    story = old_story(msgspec.structs.replace(OPEN, gate_enabled=False))
    candidates = proposed({name: label})
    events = story.learn(*candidates)
    assert refusals(events) == {}
    assert rebuilt(events) == sorted(candidates, key=lambda candidate: candidate.place)
    told = [e.labels for e in events if isinstance(e, FactRemoved | SummaryUpdated) and e.place]
    assert told == [{name: label}] * 3


def test_one_candidate_that_does_not_fit_takes_no_neighbour_along() -> None:
    story = given()
    events = story.learn(
        new("Wants tabs in this file", scope="task"),
        new("Prefers tabs", place="newFacts/1", scope="user"),
        labelled(summary("user.topOfMind", "Do it by five."), {"authority": "prescriptive"}),
        summary("user.workContext", "Writes Go."),
    )
    assert refusals(events) == {"newFacts/0": "gate", "user.topOfMind": "gate"}
    assert added(events) == ["Prefers tabs"]
    assert rewritten(events) == {"user.workContext": "Writes Go."}


# A removal and its replacement are one change.


def test_where_the_replacement_is_gated_the_fact_stays() -> None:
    story = given(None, *news("Lives in Oslo"))
    events = story.learn(new("Pretends to live in Bergen", scope="task"), removal("fact_2_0", replacement=0))
    assert refusals(events) == {"newFacts/0": "gate", "factsToRemove/0": "replacement_refused"}
    assert story.texts() == ["Lives in Oslo"]


def test_where_the_removal_is_gated_its_replacement_stays_out() -> None:
    story = given(None, *news("Lives in Oslo"))
    gated = labelled(removal("fact_2_0", replacement=1), {"durability": "session"})
    events = story.learn(*news("Likes tea", "Lives in Bergen"), gated)
    assert refusals(events) == {"factsToRemove/0": "gate", "newFacts/1": "removal_refused"}
    assert story.texts() == ["Lives in Oslo", "Likes tea"]


def test_two_removals_with_one_replacement_fall_together_when_one_is_gated() -> None:
    story = given(None, *news("Lives in Oslo", "Lives in Norway"))
    gated = labelled(removal("fact_2_0", 0, replacement=0), {"scope": "task"})
    events = story.learn(new("Lives in Malmö"), gated, removal("fact_2_1", 1, replacement=0))
    assert refusals(events) == {
        "factsToRemove/0": "gate",
        "newFacts/0": "removal_refused",
        "factsToRemove/1": "replacement_refused",
    }
    assert story.texts() == ["Lives in Oslo", "Lives in Norway"]


def test_a_removal_that_passes_goes_with_the_replacement_that_passes() -> None:
    story = given(None, *news("Lives in Oslo"))
    events = story.learn(
        labelled(new("Lives in Bergen"), FITTING), labelled(removal("fact_2_0", replacement=0), FITTING)
    )
    assert refusals(events) == {}
    assert removed(events) == {"Lives in Oslo": "model"}
    assert story.texts() == ["Lives in Bergen"]


# By hand.


def test_the_gate_is_for_models_and_nobody_asks_a_person_for_labels() -> None:
    story = given()
    story.hand("Mine")
    (event,) = (e for e in story.log[-1] if isinstance(e, FactAdded))
    assert event.fact.content == "Mine"
