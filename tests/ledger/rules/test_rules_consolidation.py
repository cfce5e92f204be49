"""Merging of facts (row D14): many of one kind become one, and the sources stay in the ledger."""

from __future__ import annotations

import msgspec
import pytest
from story import Story, added, given, merged, new, news, refusals, reinforcement, removal, removed, stale

from backstory.ledger.core.commands import EditFact, Revert, candidates_of
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import Edit, Fact, FactAdded, FactRemoved
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.review import fragmented, is_stale

ON = Policy(consolidation_enabled=True)


def eight(policy: Policy = ON, count: int = 8, category: str = "preference", **more: object) -> Story:
    """A memory with so many facts of one category: fact_2_0, fact_2_1 …"""
    facts = [new(f"Likes dish {n}", place=f"newFacts/{n}", category=category, **more) for n in range(count)]
    return given(policy, *facts)


def ids(*numbers: int) -> list[str]:
    return [f"fact_2_{n}" for n in numbers]


def the_merged(story: Story) -> Fact:
    (fact,) = (fact for fact in story.memory.facts.values() if fact.consolidated_from)
    return fact


# What is merged.


def test_facts_are_merged_into_one_and_each_source_goes_by_an_event_of_its_own() -> None:
    story = eight()
    asked = merged(ids(1, 4, 6), "Likes three dishes", scope="user", category="tastes")
    events = story.learn(asked)
    fact = the_merged(story)
    assert [type(e).__name__ for e in events] == ["UpdateProposed", *["FactRemoved"] * 3, "FactAdded"]
    assert [(e.fact.id, e.reason, e.detail, e.place) for e in events if isinstance(e, FactRemoved)] == [
        (source, "consolidated", fact.id, None) for source in ids(1, 4, 6)
    ]
    assert (fact.content, fact.category, fact.consolidated_from) == (
        "Likes three dishes",
        "preference",
        ("fact_2_1", "fact_2_4", "fact_2_6"),
    )
    assert len(story.memory.facts) == 6
    assert candidates_of(events) == (asked,)


def test_two_sources_are_enough_and_eight_are_the_most() -> None:
    assert refusals(eight().learn(merged(ids(0, 1), "two"))) == {}
    assert refusals(eight(count=9).learn(merged(ids(*range(8)), "eight"))) == {}


@pytest.mark.parametrize(
    ("sources", "rule"),
    [
        ([], "sources"),
        (ids(0), "sources"),
        (ids(0, 0), "sources"),
        (ids(0, 1, 1), "sources"),
        (ids(*range(9)), "sources"),
        ([*ids(0), "fact_9_9"], "unknown_fact"),
        ([*ids(0), ""], "unknown_fact"),
    ],
)
def test_sources_too_few_too_many_named_twice_or_unknown_are_refused(sources: list[str], rule: str) -> None:
    story = eight(count=9)
    before = story.memory.facts
    assert refusals(story.learn(merged(sources, "one"))) == {"factsToConsolidate/0": rule}
    assert story.memory.facts == before


@pytest.mark.parametrize(("count", "rule"), [(7, "sources"), (8, None)])
def test_only_a_category_of_eight_and_more_is_up_for_merging(count: int, rule: str | None) -> None:
    story = eight(count=count)
    assert list(fragmented(story.memory)) == ([] if rule else ["preference"])
    assert refusals(story.learn(merged(ids(0, 1), "two"))) == ({"factsToConsolidate/0": rule} if rule else {})


def test_how_many_a_category_needs_and_a_group_may_have_is_the_policys_to_say() -> None:
    policy = Policy(consolidation_enabled=True, consolidation_min_facts=3, consolidation_max_sources=2)
    story = eight(policy, count=3)
    assert refusals(story.learn(merged(ids(0, 1, 2), "three"), merged(ids(0, 1), "two", 1))) == {
        "factsToConsolidate/0": "sources"
    }


def test_sources_of_two_categories_are_not_merged() -> None:
    other = [new(f"Knows {n}", place=f"newFacts/{n}", category="knowledge") for n in range(8)]
    story = eight()
    story.learn(*other)
    assert list(fragmented(story.memory)) == ["knowledge", "preference"]
    assert refusals(story.learn(merged(["fact_2_0", "fact_3_0"], "both"))) == {"factsToConsolidate/0": "sources"}


def test_corrections_are_not_merged_and_a_persons_facts_neither_count_nor_serve() -> None:
    assert refusals(eight(category="correction").learn(merged(ids(0, 1), "two"))) == {"factsToConsolidate/0": "sources"}
    story = eight()
    story.do(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", content="Mine")), "manual")
    assert refusals(story.learn(merged(ids(1, 2), "two"))) == {"factsToConsolidate/0": "sources"}
    story.learn(new("Likes dish 9", category="preference"))
    assert refusals(story.learn(merged(ids(0, 1), "two"))) == {"factsToConsolidate/0": "by_hand"}
    assert refusals(story.learn(merged(ids(1, 2), "two"))) == {}


def test_what_the_model_was_not_shown_it_cannot_merge() -> None:
    events = eight().learn(merged(ids(0, 1), "two"), merged(ids(2, 3), "more", 1), shown=tuple(ids(0, 2, 3)))
    assert refusals(events) == {"factsToConsolidate/0": "unknown_fact"}


def test_three_groups_an_update_at_most_and_a_refused_one_takes_nobodys_turn() -> None:
    story = eight(count=12)
    events = story.learn(
        merged(ids(0, 99), "unknown", 0),
        *(merged(ids(2 * n, 2 * n + 1), f"group {n}", n) for n in range(1, 6)),
    )
    assert refusals(events) == {
        "factsToConsolidate/0": "unknown_fact",
        "factsToConsolidate/4": "limit",
        "factsToConsolidate/5": "limit",
    }
    assert added(events) == ["group 1", "group 2", "group 3"]


def test_a_fact_is_merged_once_an_update() -> None:
    events = eight().learn(merged(ids(0, 1), "first"), merged(ids(1, 2), "second", 1), merged(ids(2, 3), "third", 2))
    assert refusals(events) == {"factsToConsolidate/1": "repeated"}
    assert added(events) == ["first", "third"]


def test_a_fact_that_the_same_update_removes_is_no_source() -> None:
    policy = msgspec.structs.replace(ON, staleness_min_candidates=1)
    story = eight(policy)
    story.wait(100)
    events = story.learn(
        removal("fact_2_0"), stale("fact_2_2"), merged(ids(0, 1), "first"), merged(ids(2, 3), "second", 1)
    )
    assert refusals(events) == {"factsToConsolidate/0": "repeated", "factsToConsolidate/1": "repeated"}
    assert removed(events) == {"Likes dish 0": "model", "Likes dish 2": "stale"}


def test_a_source_cannot_be_confirmed_by_the_update_that_merges_it() -> None:
    events = eight().learn(merged(ids(0, 1), "two"), reinforcement("fact_2_0"), reinforcement("fact_2_5", 1))
    assert refusals(events) == {"factsToReinforce/0": "gone"}


@pytest.mark.parametrize("content", ["", "User uploaded a file called menu.pdf", "用户上传了文件。"])
def test_what_says_nothing_or_only_tells_of_an_upload_is_no_merged_fact(content: str) -> None:
    story = eight()
    rule = "upload" if content else "empty"
    assert refusals(story.learn(merged(ids(0, 1), content))) == {"factsToConsolidate/0": rule}
    assert len(story.memory.facts) == 8


def test_where_merging_is_not_enabled_it_is_refused_and_nothing_is_up_for_it() -> None:
    story = eight(Policy())
    assert fragmented(story.memory) == {}
    assert refusals(story.learn(merged(ids(0, 1), "two"))) == {"factsToConsolidate/0": "disabled"}


# What the merged fact is.


@pytest.mark.parametrize(
    ("stated", "expected"), [(None, 0.9), (0.95, 0.9), (1.0, 0.9), (0.9, 0.9), (0.8, 0.8), (0.7, 0.7)]
)
def test_a_merged_fact_is_as_certain_as_it_says_and_as_the_best_of_its_sources_at_most(
    stated: float | None, expected: float
) -> None:
    facts = [new(f"Likes {n}", 0.9 if n == 1 else 0.7, place=f"newFacts/{n}") for n in range(8)]
    story = given(ON, *facts)
    asked = merged(ids(0, 1), "two", confidence=stated)
    events = story.learn(asked)
    assert the_merged(story).confidence == expected
    assert candidates_of(events) == (asked,)


def test_a_merged_fact_under_the_threshold_is_refused_and_its_sources_stay() -> None:
    story = eight()
    assert refusals(story.learn(merged(ids(0, 1), "two", confidence=0.69))) == {"factsToConsolidate/0": "threshold"}
    assert len(story.memory.facts) == 8


def test_a_merged_fact_carries_evidence_errors_and_confirmations_of_its_sources() -> None:
    facts = [
        new(f"Likes {n}", place=f"newFacts/{n}", evidence=(f"m{n}", "m0"), source_error=error)
        for n, error in enumerate(["said tea", "said tea", "said milk", None, None, None, None, None])
    ]
    story = given(ON, *facts)
    story.learn(reinforcement("fact_2_1"))
    story.learn(reinforcement("fact_2_1"))
    story.learn(merged(ids(0, 1, 2), "three"))
    fact = the_merged(story)
    assert (fact.evidence, fact.source_error, fact.confirmations, fact.by_hand) == (
        ("m0", "m1", "m2"),
        "said tea\nsaid milk",
        2,
        False,
    )


@pytest.mark.parametrize(
    ("lifetimes", "waited", "due_in"),
    [
        ((30, 300), 10, 20),
        ((300, None), 10, 80),
        ((None, None), 10, 80),
        ((30, 300), 29.5, 0.5),
        ((30, 300), 100, 0),
    ],
)
def test_a_merged_fact_is_up_for_review_when_the_first_of_its_sources_is_and_a_day_early_at_most(
    lifetimes: tuple[int | None, int | None], waited: float, due_in: float
) -> None:
    facts = [
        new(f"Likes {n}", place=f"newFacts/{n}", expected_valid_days=days)
        for n, days in enumerate([*lifetimes, *[None] * 6])
    ]
    story = given(ON, *facts)
    story.wait(waited)
    story.learn(merged(ids(0, 1), "two"))
    fact = the_merged(story)
    story.wait(max(0.0, due_in - 1.1))
    assert is_stale(fact, ON, story.now()) is (due_in == 0)
    story.wait(1.2)
    assert is_stale(fact, ON, story.now())


def test_the_clock_of_a_merged_fact_is_that_of_its_youngest_source() -> None:
    story = eight(count=8, expected_valid_days=40)
    story.wait(20)
    story.learn(new("Likes dish 8", category="preference", expected_valid_days=300))
    youngest = story.memory.facts["fact_3_0"]
    story.wait(5)
    story.learn(merged(["fact_2_0", "fact_3_0"], "two"))
    fact = the_merged(story)
    assert fact.created_at == youngest.created_at
    # The older one had twenty days left, less the hour between two commits, when the younger was born.
    assert fact.expected_valid_days == 19


def test_a_lifetime_that_comes_of_merging_is_bounded_like_any_other() -> None:
    policy = Policy(consolidation_enabled=True, staleness_max_lifetime_multiplier=1)
    story = eight(policy, expected_valid_days=80)
    for number in (0, 1):
        fact = story.memory.facts[f"fact_2_{number}"]
        long = msgspec.structs.replace(fact, expected_valid_days=3_000)
        story.memory = msgspec.structs.replace(story.memory, facts={**story.memory.facts, fact.id: long})
    story.learn(merged(ids(0, 1), "two"))
    assert the_merged(story).expected_valid_days == 90


# Duplicates and the cap.


@pytest.mark.parametrize("content", ["Likes dish 7", " likes DISH 7. "])
def test_a_merged_fact_that_says_what_a_live_fact_says_leaves_the_sources_alone(content: str) -> None:
    story = eight()
    before = story.memory.facts
    assert refusals(story.learn(merged(ids(0, 1), content))) == {"factsToConsolidate/0": "duplicate"}
    assert story.memory.facts == before


def test_a_merged_fact_may_say_what_one_of_its_sources_says() -> None:
    story = eight()
    events = story.learn(merged(ids(0, 1), "Likes dish 0"))
    assert refusals(events) == {}
    assert the_merged(story).content == "Likes dish 0"


def test_of_a_new_and_a_merged_fact_that_say_the_same_one_enters_and_sources_stay_or_go_with_theirs() -> None:
    story = eight()
    events = story.learn(new("Likes all dishes", 0.95), merged(ids(0, 1), "likes all dishes"))
    assert refusals(events) == {"factsToConsolidate/0": "duplicate"}
    assert len(story.memory.facts) == 9
    story = eight()
    events = story.learn(new("Likes all dishes", 0.8), merged(ids(0, 1), "likes all dishes"))
    assert refusals(events) == {"newFacts/0": "duplicate"}
    assert len(story.memory.facts) == 7


def test_at_the_cap_merging_makes_room_and_evicts_nobody() -> None:
    story = eight(Policy(consolidation_enabled=True, max_facts=8))
    events = story.learn(new("Likes tea", 0.7), merged(ids(0, 1), "two"))
    assert refusals(events) == {}
    assert set(removed(events).values()) == {"consolidated"}
    assert len(story.memory.facts) == 8


def test_a_merged_fact_that_would_not_survive_the_cap_is_refused_and_its_sources_stay_to_be_ranked() -> None:
    policy = Policy(consolidation_enabled=True, max_facts=8)
    facts = [new(f"Likes {n}", 0.7 if n < 2 else 0.9, place=f"newFacts/{n}") for n in range(8)]
    story = given(policy, *facts)
    events = story.learn(*news(*((f"Knows {n}", 0.95) for n in range(2))), merged(ids(0, 1), "two", confidence=0.7))
    assert refusals(events) == {"factsToConsolidate/0": "cap"}
    assert removed(events) == {"Likes 0": "cap", "Likes 1": "cap"}
    assert len(story.memory.facts) == 8


# Nothing is lost.


def test_reverting_brings_the_sources_back_and_reverting_that_merges_them_again() -> None:
    story = eight()
    before = story.memory.facts
    events = story.learn(merged(ids(0, 1, 2), "three"), new("Likes tea", place="newFacts/0"))
    after = story.memory.facts
    undone = story.do(Revert(at="", target=3, events=events), "revert")
    assert story.memory.facts == before
    story.do(Revert(at="", target=4, events=undone), "revert")
    assert story.memory.facts == after


def test_reverting_a_merging_whose_fact_was_edited_since_is_a_conflict_and_so_is_want_of_room() -> None:
    story = eight(Policy(consolidation_enabled=True, max_facts=8))
    events = story.learn(merged(ids(0, 1, 2), "three"))
    story.learn(*news("Likes tea", "Likes milk"))
    with pytest.raises(ConflictError):
        story.do(Revert(at="", target=3, events=events), "revert")
    forced = story.do(Revert(at="", target=3, events=events, force=True), "revert")
    assert len(story.memory.facts) == 8
    assert {e.fact.id for e in forced if isinstance(e, FactAdded)} <= set(ids(0, 1, 2))


def test_a_merged_fact_can_be_merged_again_and_each_step_be_told() -> None:
    story = eight(count=9)
    story.learn(merged(ids(0, 1), "first"))
    first = the_merged(story)
    story.learn(merged([first.id, "fact_2_2"], "second"))
    second = the_merged(story)
    assert (first.id, second.id) == ("fact_3_10000", "fact_4_10000")
    assert second.consolidated_from == (first.id, "fact_2_2")
