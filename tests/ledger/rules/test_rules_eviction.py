"""Eviction (row D15): who gives way when memory is full, by `confidence` and by `hybrid`, worked out by hand."""

from __future__ import annotations

import msgspec
import pytest
from histories import History
from hypothesis import given as drawn
from hypothesis import strategies as st
from story import added, at, day, extract, given, new, news, refusals, reinforcement, removal, removed

from backstory.ledger.core.commands import AddFact, ChangePolicy
from backstory.ledger.core.events import Access, Fact, FactRemoved
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.ranking import Ranking
from backstory.projections.what_if.counterfactual import decide_again

HYBRID = Policy(fact_eviction_policy="hybrid", eviction_correction_reserved_max=0)


def fact(name: str, confidence: float = 0.8, *, born: float = 0, **more: object) -> Fact:
    return Fact(
        id=name,
        content=name,
        category=str(more.pop("category", "context")),
        confidence=confidence,
        created_at=day(born),
        source="t1",
        seq=int(more.pop("seq", 2)),  # type: ignore[call-overload]
        place=int(more.pop("place", 0)),  # type: ignore[call-overload]
        **more,  # type: ignore[arg-type]
    )


def order(facts: list[Fact], policy: Policy = HYBRID, today: float = 90, **heat: Access) -> str:
    """Names of facts, the first to go first."""
    ranking = Ranking(msgspec.structs.replace(policy, max_facts=1), day(today), heat)
    return "".join(fact.id for fact in [*ranking.overflow(facts), max(facts, key=ranking.key)])


# The formula.


@pytest.mark.parametrize(
    ("confirmed", "heat", "used", "expected"),
    [
        # Never confirmed: a creation counts half, and ninety days on half of that: .65 * .8 + .25 * .25
        (None, 0.0, 90, 0.52 + 0.0625),
        # Confirmed today: .25 * 1
        (90.0, 0.0, 90, 0.52 + 0.25),
        # Confirmed ninety days ago: .25 * .5
        (0.0, 0.0, 90, 0.52 + 0.125),
        # Used eight times today: as warm as can be, .10 * 1
        (None, 8.0, 90, 0.52 + 0.0625 + 0.1),
        # Used eight times thirty days ago: a heat of 4, log(5) / log(9) = .7324868
        (None, 8.0, 60, 0.52 + 0.0625 + 0.07324868),
        # Used once today: log(2) / log(9) = .3154649
        (None, 1.0, 90, 0.52 + 0.0625 + 0.03154649),
        # More than eight uses make it no warmer.
        (None, 800.0, 90, 0.52 + 0.0625 + 0.1),
        (90.0, 8.0, 90, 0.52 + 0.25 + 0.1),
    ],
)
def test_a_score_is_what_the_formula_gives_by_hand(
    confirmed: float | None, heat: float, used: float, expected: float
) -> None:
    one = fact("a", 0.8, confirmed_at=None if confirmed is None else day(confirmed))
    ranking = Ranking(HYBRID, day(90), {"a": Access(heat, day(used))})
    assert ranking.key(one)[1] == pytest.approx(expected, abs=1e-7)


def test_weights_and_half_lives_are_the_policys() -> None:
    policy = msgspec.structs.replace(
        HYBRID,
        eviction_confidence_weight=0.2,
        eviction_confirmation_weight=0.5,
        eviction_access_weight=0.3,
        eviction_confirmation_half_life_days=10,
        eviction_access_half_life_days=5,
    )
    one = fact("a", 0.5, confirmed_at=day(70))
    ranking = Ranking(policy, day(90), {"a": Access(8.0, day(90))})
    assert ranking.key(one)[1] == pytest.approx(0.2 * 0.5 + 0.5 * 0.25 + 0.3, abs=1e-9)


def test_a_moment_to_come_counts_as_now() -> None:
    ranking = Ranking(HYBRID, day(0), {"a": Access(8.0, day(5))})
    assert ranking.key(fact("a", 1.0, confirmed_at=day(9)))[1] == pytest.approx(1.0)


# The order.


def test_confidence_ranks_by_confidence_alone() -> None:
    facts = [fact("a", 0.9), fact("b", 0.7, confirmed_at=day(90)), fact("c", 0.8)]
    assert order(facts, Policy(), b=Access(8, day(90))) == "bca"


def test_hybrid_lets_what_is_confirmed_or_used_outlive_what_is_merely_certain() -> None:
    # By hand .6475 for a, .7050 for b, .6825 for c.
    facts = [fact("a", 0.9), fact("b", 0.7, confirmed_at=day(90)), fact("c", 0.8)]
    assert order(facts, c=Access(8, day(90))) == "acb"
    # Nine months on b's confirmation has cooled to an eighth and c's use to nothing: only certainty is left.
    assert order(facts, today=360, c=Access(8, day(90))) == "bca"


@pytest.mark.parametrize("policy", [Policy(), HYBRID])
def test_ties_keep_the_newer_then_the_later_born(policy: Policy) -> None:
    assert order([fact("a", born=1), fact("b", born=0)], policy) == "ba"
    facts = [fact("a", seq=3, place=1), fact("b", seq=3, place=0), fact("c", seq=2, place=9)]
    assert order(facts, policy) == "cba"


facts_of_any_kind = st.lists(
    st.builds(
        fact,
        st.just("x"),
        st.sampled_from([0.7, 0.9]),
        born=st.sampled_from([0, 30]),
        confirmed_at=st.sampled_from([None, day(60)]),
        by_hand=st.booleans(),
        category=st.sampled_from(["context", "correction"]),
        confirmations=st.just(0),
    ),
    max_size=12,
).map(
    lambda facts: [msgspec.structs.replace(fact, id=f"f{n}", content=f"f{n}", place=n) for n, fact in enumerate(facts)]
)
ranked_policies = st.builds(
    Policy,
    max_facts=st.integers(1, 8),
    fact_eviction_policy=st.sampled_from(["confidence", "hybrid"]),
    eviction_correction_reserved_fraction=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    eviction_correction_reserved_max=st.integers(0, 10),
)
heats = st.dictionaries(st.sampled_from(["f0", "f1", "f2"]), st.builds(Access, st.floats(0, 20), st.just(day(80))))


@drawn(facts_of_any_kind, ranked_policies, heats, st.randoms())
def test_who_gives_way_depends_on_no_order_and_is_no_more_than_needed(
    facts: list[Fact], policy: Policy, heat: dict[str, Access], chance: object
) -> None:
    ranking = Ranking(policy, day(90), heat)
    keys = [ranking.key(fact) for fact in facts]
    assert len(keys) == len(set(keys))
    gone = ranking.overflow(facts)
    shuffled = list(facts)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ranking.overflow(shuffled) == gone
    by_hand = sum(fact.by_hand for fact in facts)
    assert not any(fact.by_hand for fact in gone)
    assert len(facts) - len(gone) == min(len(facts), max(policy.max_facts, by_hand))


# Places kept for corrections.


@pytest.mark.parametrize(
    ("fraction", "most", "cap", "kept"),
    [
        (0.1, 10, 10, 1),
        (0.1, 10, 11, 2),
        (0.1, 10, 3, 1),
        (0.5, 10, 8, 4),
        (0.5, 3, 8, 3),
        (0.1, 0, 10, 0),
        (0, 9, 9, 0),
    ],
)
def test_the_best_corrections_keep_a_tenth_of_the_places_or_ten(
    fraction: float, most: int, cap: int, kept: int
) -> None:
    policy = msgspec.structs.replace(
        HYBRID,
        max_facts=cap,
        eviction_correction_reserved_fraction=fraction,
        eviction_correction_reserved_max=most,
    )
    corrections = [fact(f"c{n}", 0.70 + n / 1000, category="correction", place=n) for n in range(cap)]
    others = [fact(f"o{n}", 0.9, place=100 + n) for n in range(cap)]
    gone = {fact.id for fact in Ranking(policy, day(90), {}).overflow([*corrections, *others])}
    stay = [fact.id for fact in corrections if fact.id not in gone]
    assert stay == [f"c{n}" for n in range(cap - kept, cap)]
    assert len(gone) == cap


def test_corrections_beyond_their_places_compete_like_any_fact() -> None:
    policy = msgspec.structs.replace(HYBRID, max_facts=3, eviction_correction_reserved_max=1)
    facts = [fact("a", 0.75, category="correction"), fact("b", 0.95, category="correction"), fact("c", 0.9)]
    facts.append(fact("d", 0.8))
    assert [gone.id for gone in Ranking(policy, day(90), {}).overflow(facts)] == ["a"]


def test_confidence_keeps_no_places_for_corrections() -> None:
    facts = [fact("a", 0.7, category="correction"), fact("b", 0.9)]
    assert [gone.id for gone in Ranking(Policy(max_facts=1), day(90), {}).overflow(facts)] == ["a"]


def test_a_persons_facts_come_before_the_corrections_places() -> None:
    policy = msgspec.structs.replace(
        HYBRID, max_facts=2, eviction_correction_reserved_fraction=1, eviction_correction_reserved_max=2
    )
    facts = [fact("a", 0.9, category="correction"), fact("b", 0.8, category="correction")]
    facts += [fact("mine", 0.1, by_hand=True), fact("mine too", 0.1, by_hand=True)]
    assert [gone.id for gone in Ranking(policy, day(90), {}).overflow(facts)] == ["b", "a"]


# As decided, and as told.


def test_each_eviction_is_an_event_that_says_what_it_was_ranked_by() -> None:
    story = given(msgspec.structs.replace(HYBRID, max_facts=2), *news(("a", 0.9), ("b", 0.8)))
    events = story.learn(new("c", 0.85), heat={"fact_2_0": Access(8, at(2))})
    (gone,) = (e for e in events if isinstance(e, FactRemoved))
    # .65 * .8 + .25 * .5 of an hour's age
    assert (gone.fact.content, gone.reason, gone.place) == ("b", "cap", None)
    assert gone.detail == (
        "score 0.6450 (confidence 0.8, confirmation 0.4998, access 0.0000), created 2026-01-01T01:00:00.000000Z"
    )
    assert added(events) == ["c"]


def test_by_confidence_an_eviction_says_confidence_and_birth() -> None:
    story = given(Policy(max_facts=1), *news(("a", 0.8)))
    (gone,) = (e for e in story.learn(new("b")) if isinstance(e, FactRemoved))
    assert gone.detail == "confidence 0.8, created 2026-01-01T01:00:00.000000Z"


def test_it_is_decided_on_the_heat_that_came_with_the_command() -> None:
    policy = msgspec.structs.replace(HYBRID, max_facts=2)
    warm = {"fact_2_0": Access(8, at(2))}
    assert removed(given(policy, *news("a", "b")).learn(new("c"))) == {"a": "cap"}
    assert removed(given(policy, *news("a", "b")).learn(new("c"), heat=warm)) == {"b": "cap"}
    story = given(policy, *news("a", "b"))
    assert removed(story.do(AddFact(at="", fact=new("mine", place="facts/0"), heat=warm), "manual")) == {"b": "cap"}
    story = given(policy, *news("a", "b"))
    smaller = ChangePolicy(at="", policy=msgspec.structs.replace(policy, max_facts=1), heat=warm)
    assert removed(story.do(smaller, "policy")) == {"b": "cap"}


def test_what_was_recorded_of_use_decides_the_same_when_it_is_decided_again() -> None:
    history = History()
    history.ask(ChangePolicy(at="", policy=msgspec.structs.replace(HYBRID, max_facts=2), source="config"), "genesis")
    history.ask(extract(*news("a", "b"), basis=1), "extraction", thread="t1")
    history.ask(extract(new("c"), basis=2, heat={"fact_2_0": Access(8, at(2))}), "extraction", thread="t1")
    assert history.texts() == ["a", "c"]
    assert decide_again(history.commits, {}).facts == history.memory.facts


def test_a_newcomer_is_ranked_like_the_others_and_refused_where_it_would_not_survive() -> None:
    story = given(msgspec.structs.replace(HYBRID, max_facts=2), *news(("a", 0.9), ("b", 0.9)))
    story.learn(reinforcement("fact_2_0"), reinforcement("fact_2_1", 1))
    events = story.learn(new("c", 0.95))
    assert refusals(events) == {"newFacts/0": "cap"}
    assert story.texts() == ["a", "b"]


def test_a_confirmation_in_the_update_that_fills_memory_comes_too_late_for_its_ranking() -> None:
    story = given(msgspec.structs.replace(HYBRID, max_facts=2), *news(("a", 0.8), ("b", 0.9)))
    events = story.learn(new("c", 0.9), reinforcement("fact_2_0"))
    assert removed(events) == {"a": "cap"}
    assert refusals(events) == {"factsToReinforce/0": "gone"}


@pytest.mark.parametrize("policy", ["confidence", "hybrid"])
def test_what_a_person_entered_is_never_evicted_however_cold(policy: str) -> None:
    story = given(Policy(max_facts=2, fact_eviction_policy=policy))
    story.hand("mine", 0.05)
    story.wait(3_000)
    story.learn(*news(("a", 1.0), ("b", 1.0)))
    assert story.texts() == ["mine", "b"]


@pytest.mark.parametrize("policy", ["confidence", "hybrid"])
def test_at_the_cap_replacing_one_fact_evicts_nobody_else(policy: str) -> None:
    story = given(Policy(max_facts=3, fact_eviction_policy=policy), *news("lives in Oslo", "b", "c"))
    story.learn(*(reinforcement(f"fact_2_{n}", n) for n in range(3)))
    events = story.learn(new("lives in Bergen", 0.7), removal("fact_2_0", replacement=0))
    assert removed(events) == {"lives in Oslo": "model"}
    assert story.texts() == ["b", "c", "lives in Bergen"]


def test_an_empty_memory_ranks_nobody() -> None:
    assert Ranking(HYBRID, day(1), {}).overflow(Memory().facts.values()) == []
