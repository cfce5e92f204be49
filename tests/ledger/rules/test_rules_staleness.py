"""The review of old facts (row D13): what outlived its lifetime is shown, and nothing else can be touched by it."""

from __future__ import annotations

import msgspec
import pytest
from story import Story, added, day, given, longer, new, news, refusals, reinforcement, removal, removed, stale

from backstory.ledger.core.commands import EditFact, Revert, candidates_of
from backstory.ledger.core.events import Edit, Extension, FactAdded, FactRemoved, FactRevised, UpdateProposed
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.review import is_stale, lifetime, stale_facts

ONE = Policy(staleness_min_candidates=1)


def aged(days: float = 91, policy: Policy = ONE, *facts: object) -> Story:
    """Six facts that nobody confirmed for so many days; the fourth is a correction."""
    story = given(policy, *(facts or news(*(f"fact {n}" for n in range(6)))))  # type: ignore[arg-type]
    story.wait(days)
    return story


def due(story: Story) -> list[str]:
    return [fact.content for fact in stale_facts(story.memory, story.now())]


# Who is up for review.


@pytest.mark.parametrize(
    ("own", "policy", "days", "expected"),
    [
        (None, ONE, 89, False),
        (None, ONE, 91, True),
        (None, Policy(staleness_min_candidates=1, staleness_age_days=30), 31, True),
        (None, Policy(staleness_min_candidates=1, staleness_age_days=365), 364, False),
        (7, ONE, 6, False),
        (7, ONE, 8, True),
        (365, ONE, 364, False),
        (365, ONE, 366, True),
    ],
)
def test_a_fact_is_due_when_it_is_older_than_its_own_lifetime_or_else_the_policys(
    own: int | None, policy: Policy, days: float, expected: bool
) -> None:
    story = aged(days, policy, new("Ada runs", expected_valid_days=own))
    assert (due(story) == ["Ada runs"]) is expected


def test_a_fact_is_due_only_after_the_last_day_of_its_lifetime() -> None:
    fact = given(None, new("Ada runs", expected_valid_days=7)).memory.facts["fact_2_0"]
    fact = msgspec.structs.replace(fact, created_at=day(0))
    assert not is_stale(fact, ONE, day(7))
    assert is_stale(fact, ONE, day(7.001))


def test_a_confirmation_starts_the_lifetime_anew() -> None:
    story = aged(80)
    story.learn(reinforcement("fact_2_0"))
    story.wait(20)
    assert due(story) == [f"fact {n}" for n in range(1, 6)]
    story.wait(80)
    assert due(story) == [f"fact {n}" for n in range(6)]


@pytest.mark.parametrize(("least", "shown"), [(3, 3), (4, 0)])
def test_fewer_than_the_least_are_not_reviewed_at_all(least: int, shown: int) -> None:
    story = aged(91, Policy(staleness_min_candidates=least), *news("a", "b", "c"))
    assert len(due(story)) == shown
    events = story.learn(stale("fact_2_0"))
    assert refusals(events) == ({} if shown else {"staleFactsToRemove/0": "not_due"})


def test_a_review_of_fewer_than_the_least_is_none_also_where_the_model_was_asked() -> None:
    story = aged(91, Policy(staleness_min_candidates=3))
    events = story.learn(stale("fact_2_0"), longer("fact_2_1", 9), stale=("fact_2_0", "fact_2_1"))
    assert refusals(events) == {"staleFactsToRemove/0": "not_due", "staleFactsToExtend/0": "not_due"}


def test_corrections_and_what_a_person_entered_are_never_due() -> None:
    story = aged(0, ONE, new("Say metres, not feet", category="correction"), new("Ada runs", place="newFacts/1"))
    story.hand("Mine")
    story.wait(5_000)
    assert due(story) == ["Ada runs"]
    events = story.learn(
        stale("fact_2_0"), longer("fact_2_0", 9), stale("fact_3_0", 1), longer("fact_3_0", 9, 1), stale("fact_2_1", 2)
    )
    assert refusals(events) == {
        "staleFactsToRemove/0": "not_due",
        "staleFactsToExtend/0": "not_due",
        "staleFactsToRemove/1": "by_hand",
        "staleFactsToExtend/1": "by_hand",
    }
    assert removed(events) == {"Ada runs": "stale"}


def test_which_categories_are_protected_is_the_policys_to_say() -> None:
    policy = Policy(staleness_min_candidates=1, staleness_protected_categories=("goal",))
    facts = [new("Say metres", category="correction"), new("Run a marathon", place="newFacts/1", category="goal")]
    assert due(aged(91, policy, *facts)) == ["Say metres"]


# What a review may remove.


def test_what_is_due_and_no_longer_true_goes_with_the_models_reason() -> None:
    story = aged()
    asked = stale("fact_2_1", reason="she moved", scope="user", durability="durable")
    events = story.learn(asked)
    (event,) = (e for e in events if isinstance(e, FactRemoved))
    assert (event.fact.content, event.reason, event.note, event.place) == (
        "fact 1",
        "stale",
        "she moved",
        "staleFactsToRemove/0",
    )
    assert candidates_of(events) == (asked,)
    story.do(Revert(at="", target=3, events=events), "revert")
    assert len(story.texts()) == 6


@pytest.mark.parametrize("shown", [None, (), ("fact_2_1",)])
def test_a_fact_that_was_not_up_for_review_cannot_be_touched_by_one(shown: tuple[str, ...] | None) -> None:
    story = aged(89 if shown is None else 91)
    before = story.memory.facts
    events = story.learn(stale("fact_2_0"), longer("fact_2_2", 30), stale=shown)
    assert refusals(events) == {"staleFactsToRemove/0": "not_due", "staleFactsToExtend/0": "not_due"}
    assert story.memory.facts == before
    (told,) = (e for e in events if isinstance(e, UpdateProposed))
    assert told.stale == shown


def test_what_was_shown_for_review_and_confirmed_meanwhile_is_not_due_any_more() -> None:
    story = aged()
    basis = story.memory.seq
    story.learn(reinforcement("fact_2_0"))
    events = story.learn(stale("fact_2_0"), stale("fact_2_1", 1), stale=("fact_2_0", "fact_2_1"), basis=basis)
    assert refusals(events) == {"staleFactsToRemove/0": "not_due"}
    assert removed(events) == {"fact 1": "stale"}


def test_what_was_shown_for_review_and_edited_by_a_person_meanwhile_is_theirs() -> None:
    story = aged()
    basis = story.memory.seq
    story.do(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="still so")), "manual")
    events = story.learn(stale("fact_2_0"), stale=("fact_2_0",), basis=basis)
    assert refusals(events) == {"staleFactsToRemove/0": "by_hand"}


def test_a_review_removes_ten_at_most_and_the_lowest_ranked_first() -> None:
    confidences = [0.7 + n / 100 for n in range(12)]
    story = aged(91, ONE, *news(*((f"fact {n}", confidence) for n, confidence in enumerate(confidences))))
    events = story.learn(*(stale(f"fact_2_{n}", 11 - n) for n in range(12)))
    assert refusals(events) == {"staleFactsToRemove/0": "limit", "staleFactsToRemove/1": "limit"}
    assert story.texts() == ["fact 10", "fact 11"]


def test_the_limit_is_the_policys_and_counts_the_reviews_removals_alone() -> None:
    story = aged(91, Policy(staleness_min_candidates=1, staleness_max_removals_per_cycle=1))
    events = story.learn(removal("fact_2_0"), stale("fact_2_1"), stale("fact_2_2", 1), removal("fact_2_3", 1))
    assert refusals(events) == {"staleFactsToRemove/1": "limit"}
    assert story.texts() == ["fact 2", "fact 4", "fact 5"]


def test_one_fact_asked_to_be_removed_in_both_lists_goes_once() -> None:
    events = aged().learn(removal("fact_2_0"), stale("fact_2_0"))
    assert refusals(events) == {"staleFactsToRemove/0": "repeated"}
    assert removed(events) == {"fact 0": "model"}


# What a review may extend.


@pytest.mark.parametrize(
    ("waited", "asked", "ceiling", "expected"),
    [
        (91, 30, 3_650, 121),
        (91.9, 30, 3_650, 121),
        (200, 1, 3_650, 201),
        (91, 90_000, 3_650, 3_650),
        (91, 30, 100, 100),
    ],
)
def test_an_extension_counts_from_today_and_ends_at_the_ceiling(
    waited: float, asked: int, ceiling: int, expected: int
) -> None:
    story = aged(waited, Policy(staleness_min_candidates=1, staleness_max_extension_days=ceiling))
    before = story.memory.facts["fact_2_0"]
    candidate = longer("fact_2_0", asked, reason="still runs", authority="descriptive")
    events = story.learn(candidate)
    (event,) = (e for e in events if isinstance(e, FactRevised))
    assert event.change == "extended"
    assert event.after == msgspec.structs.replace(before, expected_valid_days=expected)
    assert candidates_of(events) == (candidate,)


def test_what_was_extended_is_due_again_when_the_extension_is_over() -> None:
    story = aged(100)
    story.learn(longer("fact_2_0", 30))
    story.wait(29)
    assert "fact 0" not in due(story)
    story.wait(2)
    assert "fact 0" in due(story)


def test_an_extension_may_go_beyond_what_a_new_fact_may_ask_for() -> None:
    policy = Policy(staleness_min_candidates=1, staleness_max_lifetime_multiplier=1)
    story = aged(91, policy)
    story.learn(longer("fact_2_0", 3_000))
    assert story.memory.facts["fact_2_0"].expected_valid_days == 3_091


def test_an_extended_fact_that_was_confirmed_counts_from_the_confirmation() -> None:
    story = aged(50)
    story.learn(reinforcement("fact_2_0"))
    story.wait(100)
    story.learn(longer("fact_2_0", 30))
    assert story.memory.facts["fact_2_0"].expected_valid_days == 130


def test_what_the_same_update_wants_removed_is_not_extended_even_where_the_limit_spares_it() -> None:
    story = aged(91, Policy(staleness_min_candidates=1, staleness_max_removals_per_cycle=1))
    events = story.learn(
        stale("fact_2_0"), stale("fact_2_1", 1), longer("fact_2_0", 30), longer("fact_2_1", 30, 1), removal("fact_9_9")
    )
    assert refusals(events) == {
        "factsToRemove/0": "unknown_fact",
        "staleFactsToRemove/1": "limit",
        "staleFactsToExtend/0": "gone",
        "staleFactsToExtend/1": "gone",
    }


def test_a_fact_is_extended_once_an_update() -> None:
    events = aged().learn(longer("fact_2_0", 30), longer("fact_2_0", 60, 1))
    assert refusals(events) == {"staleFactsToExtend/1": "repeated"}


def test_an_update_may_confirm_and_extend_a_fact_and_each_can_be_told_again() -> None:
    story = aged()
    asked = (reinforcement("fact_2_0"), longer("fact_2_0", 30))
    events = story.learn(*asked)
    assert candidates_of(events) == asked
    fact = story.memory.facts["fact_2_0"]
    assert (fact.confirmations, fact.expected_valid_days) == (1, 30)
    story.do(Revert(at="", target=3, events=events), "revert")
    fact = story.memory.facts["fact_2_0"]
    assert (fact.confirmations, fact.confirmed_at, fact.expected_valid_days) == (0, None, None)


def test_reverting_an_extension_gives_the_former_lifetime_back() -> None:
    story = aged()
    before = story.memory.facts
    events = story.learn(longer("fact_2_0", 30))
    story.do(Revert(at="", target=3, events=events), "revert")
    assert story.memory.facts == before


# Creation, and none of it.


@pytest.mark.parametrize(
    ("asked", "policy", "expected"),
    [
        (30, Policy(), 30),
        (1_800, Policy(), 1_800),
        (1_801, Policy(), 1_800),
        (90_000, Policy(), 1_800),
        (90_000, Policy(staleness_age_days=30), 600),
        (90_000, Policy(staleness_max_lifetime_multiplier=1.5), 135),
        (None, Policy(), None),
    ],
)
def test_a_new_fact_lives_twenty_times_the_usual_at_most_and_the_proposal_keeps_its_word(
    asked: int | None, policy: Policy, expected: int | None
) -> None:
    story = given(policy)
    candidate = new("Ada runs", expected_valid_days=asked)
    events = story.learn(candidate)
    (event,) = (e for e in events if isinstance(e, FactAdded))
    assert event.fact.expected_valid_days == expected
    assert lifetime(event.fact, policy) == (expected or policy.staleness_age_days)
    assert candidates_of(events) == (candidate,)


def test_with_the_review_switched_off_nothing_is_due_and_nothing_is_touched() -> None:
    policy = Policy(staleness_review_enabled=False, staleness_min_candidates=1)
    story = aged(5_000, policy)
    assert due(story) == []
    events = story.learn(stale("fact_2_0"), longer("fact_2_1", 9), stale=("fact_2_0", "fact_2_1"))
    assert refusals(events) == {"staleFactsToRemove/0": "disabled", "staleFactsToExtend/0": "disabled"}


def test_a_review_makes_room_before_the_cap_is_looked_at() -> None:
    story = aged(91, Policy(staleness_min_candidates=1, max_facts=6))
    events = story.learn(stale("fact_2_5"), new("fact 6", 0.7))
    assert removed(events) == {"fact 5": "stale"}
    assert added(events) == ["fact 6"]


def test_the_kind_of_an_extension_is_its_own_in_the_log() -> None:
    assert msgspec.to_builtins(Extension(place="staleFactsToExtend/0", id="a", days=3)) == {
        "kind": "extension",
        "place": "staleFactsToExtend/0",
        "id": "a",
        "days": 3,
    }
