"""Late words: what was said before the words that a fact rests on takes nothing away, whenever it is learned from."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from story import Story, day, given, longer, merged, new, news, refusals, reinforcement, removal, stale

from backstory.ledger.core.commands import EditFact, RemoveFact
from backstory.ledger.core.events import Candidate, Edit, FactRemoved, Spoken, UpdateProposed
from backstory.ledger.core.memory import MOST_MARKS
from backstory.ledger.core.policy import Policy

OLD, THEN, LATER = Spoken(day(-900)), Spoken(day(-30)), Spoken(day(-10))
MERGING = Policy(
    consolidation_enabled=True,
    consolidation_min_facts=2,
    staleness_age_days=1,
    staleness_min_candidates=1,
)


def learned(*contents: str, said: Spoken | None = THEN, policy: Policy | None = None) -> Story:
    story = given(policy)
    story.learn(*news(*contents), answered=said)
    return story


def ids(story: Story) -> list[str]:
    return [fact.id for fact in story.memory.in_order()]


def test_a_fact_knows_the_time_of_the_turns_it_cites_and_otherwise_of_those_of_its_update() -> None:
    story = given()
    cited = {"u1": OLD, "u2": Spoken(THEN.at, "assistant"), "u3": LATER}
    story.learn(
        new("cites", evidence=("u1", "u2", "nowhere")),
        new("cites nothing", place="newFacts/1"),
        new("cites none that is known", evidence=("nowhere",), place="newFacts/2"),
        new("cites the assistant", evidence=("u2",), place="newFacts/3"),
        answered=LATER,
        cited=cited,
    )
    said = [fact.said for fact in story.memory.in_order()]
    assert said == [THEN, LATER, LATER, Spoken(THEN.at, "assistant")]


def test_a_clock_that_is_fast_makes_no_fact_later_than_its_commit() -> None:
    story = given()
    story.learn(new("Lives in Oslo"), answered=Spoken("2099-01-01T00:00:00.000000Z"))
    (fact,) = story.memory.in_order()
    assert fact.said == Spoken(story.memory.at)
    assert refusals(story.learn(removal(fact.id), answered=Spoken("2099-01-01T00:00:00.000000Z"))) == {}


def changes(story: Story) -> dict[str, tuple[Candidate, ...]]:
    first, second = ids(story)
    return {
        "removal": (removal(first),),
        "review": (stale(first),),
        "extension": (longer(first, 300),),
        "confirmation": (reinforcement(first),),
        "merger": (merged([first, second], "Lives in Oslo and drinks tea"),),
    }


@pytest.mark.parametrize("kind", ["removal", "review", "extension", "confirmation", "merger"])
@pytest.mark.parametrize("said", [OLD, THEN, LATER, None], ids=["older", "same", "newer", "old commit"])
def test_only_words_that_are_older_change_nothing(kind: str, said: Spoken | None) -> None:
    story = learned("Lives in Oslo", "Drinks tea", policy=MERGING)
    story.wait(40)
    (candidate,) = changes(story)[kind]
    refused = refusals(story.learn(candidate, answered=said))
    assert refused == ({candidate.place: "older_evidence"} if said is OLD else {})


def test_the_words_of_a_fact_of_which_they_are_not_known_are_as_old_as_the_fact() -> None:
    story = learned("Lives in Oslo", said=None)
    (fact,) = story.memory.in_order()
    assert fact.said is None
    assert refusals(story.learn(removal(fact.id), answered=LATER)) == {"factsToRemove/0": "older_evidence"}
    assert refusals(story.learn(removal(fact.id), answered=Spoken(fact.created_at))) == {}


def test_what_was_to_replace_the_fact_is_refused_with_its_removal() -> None:
    story = learned("Lives in Bergen")
    (fact,) = ids(story)
    asked = (*news("Lives in Oslo", "Likes tea"), removal(fact, replacement=0))
    assert refusals(story.learn(*asked, answered=OLD)) == {
        "newFacts/0": "removal_refused",
        "factsToRemove/0": "older_evidence",
    }
    assert story.texts() == ["Lives in Bergen", "Likes tea"]
    assert refusals(story.learn(*news("Lives in Oslo"), removal(fact, replacement=0), answered=LATER)) == {}


def test_older_words_do_not_add_what_newer_ones_took_away() -> None:
    story = learned("Lives in Oslo")
    story.learn(removal(*ids(story)), answered=LATER)
    assert refusals(story.learn(new("lives in  Oslo."), answered=OLD)) == {"newFacts/0": "older_evidence"}
    assert refusals(story.learn(new("Lives in Oslo"), answered=LATER)) == {}


def test_what_a_tool_or_an_old_commit_removed_leaves_no_time() -> None:
    story = learned("Lives in Oslo", "Drinks tea")
    first, second = ids(story)
    story.do(RemoveFact(at="", fact_id=first, by_model=True), "manual")
    story.learn(removal(second))
    assert story.memory.taken == {}
    assert refusals(story.learn(*news("Lives in Oslo", "Drinks tea"), answered=OLD)) == {}


def test_only_the_newest_texts_that_were_taken_away_are_kept() -> None:
    story = learned("Lives in Oslo")
    (fact,) = story.memory.in_order()
    for n in range(MOST_MARKS + 5):
        gone = msgspec.structs.replace(fact, content=f"Fact {n}")
        story.take([FactRemoved(gone, "model", said_at=day(n))], "extraction")
    assert len(story.memory.taken) == MOST_MARKS
    assert next(iter(story.memory.taken.items())) == ("fact 5", day(5))


def test_a_removal_of_a_fact_that_came_back_by_an_undo_makes_the_time_of_its_text_no_earlier() -> None:
    story = learned("Lives in Oslo")
    (fact,) = story.memory.in_order()
    for said in (LATER, THEN):
        story.take([FactRemoved(fact, "model", said_at=said.at)], "extraction")
    assert story.memory.taken == {"lives in oslo": LATER.at}


def test_a_fact_rests_also_on_the_words_that_repeat_or_confirm_it() -> None:
    story = learned("Lives in Oslo", "Drinks tea")
    before = story.memory
    (first, second) = ids(story)
    asked = (new("lives in oslo"), reinforcement(second))
    events = story.learn(*asked, answered=LATER)
    assert refusals(events) == {"newFacts/0": "duplicate"}
    assert isinstance(events[0], UpdateProposed)
    assert events[0].repeated == {first: LATER}
    assert {fact.said for fact in story.memory.facts.values()} == {LATER}
    assert story.memory.facts[first] == msgspec.structs.replace(before.facts[first], said=LATER)
    assert set(refusals(story.learn(removal(first), removal(second, 1), answered=THEN)).values()) == {"older_evidence"}


def test_words_that_are_older_repeat_nothing_and_alone_change_no_document() -> None:
    story = learned("Lives in Oslo")
    changed = story.memory.changed_at
    events = story.learn(new("Lives in Oslo"), answered=OLD)
    assert isinstance(events[0], UpdateProposed)
    assert events[0].repeated == {}
    story.learn(new("Lives in Oslo"), answered=LATER)
    assert story.memory.changed_at == changed


def test_a_users_words_that_repeat_what_the_assistant_said_make_it_the_users() -> None:
    story = learned("Lives in Oslo", said=Spoken(THEN.at, "assistant"))
    story.learn(new("Lives in Oslo"), answered=OLD)
    assert [fact.said for fact in story.memory.facts.values()] == [THEN]


def test_what_a_person_entered_stays_as_it_is_whoever_repeats_it() -> None:
    story = given()
    fact = story.hand("Lives in Oslo")
    story.learn(new("Lives in Oslo"), answered=Spoken(day(40)))
    assert story.memory.facts[fact.id] == fact


@pytest.mark.parametrize("by_model", [True, False])
def test_what_is_edited_has_the_time_of_the_edit(by_model: bool) -> None:
    story = learned("Lives in Oslo", said=Spoken(OLD.at, "assistant"))
    (fact_id,) = ids(story)
    edit = EditFact(at="", edit=Edit(place="facts/0", id=fact_id, content="Lives in Bergen"), by_model=by_model)
    story.do(edit, "manual")
    assert story.memory.facts[fact_id].said == Spoken(story.memory.at, "assistant" if by_model else "user")


def test_a_merged_fact_rests_on_the_newest_words_of_its_sources() -> None:
    story = learned("Lives in Oslo", policy=MERGING, said=Spoken(OLD.at, "assistant"))
    story.learn(new("Drinks tea"), answered=THEN)
    story.learn(merged(ids(story), "Lives in Oslo and drinks tea"), answered=LATER)
    assert [fact.said for fact in story.memory.facts.values()] == [THEN]


# Any order of backfill.

KEYS = ("Lives in Oslo", "Drinks tea", "Plays chess")


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[int, list[str], list[str]]]:
    """Conversations in the order in which they are learned from: when each was, what it adds, and what it removes."""
    days = draw(st.lists(st.integers(0, 9), unique=True, min_size=2, max_size=6))
    says = st.lists(st.sampled_from(["adds", "removes", "nothing"]), min_size=len(KEYS), max_size=len(KEYS))
    talks = []
    for each in days:
        by_key = dict(zip(KEYS, draw(says), strict=True))
        talks.append((each, *([key for key in KEYS if by_key[key] == what] for what in ("adds", "removes"))))
    return talks


def live(story: Story) -> dict[str, str]:
    return {fact.content: fact.id for fact in story.memory.facts.values()}


@drawn(conversations())
def test_the_newest_word_on_a_text_wins_in_any_order(talks: list[tuple[int, list[str], list[str]]]) -> None:
    """All but a removal that comes before all that it would remove: it finds nothing, and leaves nothing."""
    story = given()
    unfound: set[tuple[int, str]] = set()
    for when, adds, removes in talks:
        held = live(story)
        unfound |= {(when, key) for key in removes if key not in held}
        gone = [removal(held[key], n) for n, key in enumerate(k for k in removes if k in held)]
        story.learn(*news(*adds), *gone, answered=Spoken(day(when - 100)))
    for key in KEYS:
        words = {when: key in adds for when, adds, removes in talks if key in (*adds, *removes)}
        newest = max(words, default=None)
        if newest is not None and (newest, key) not in unfound:
            assert (key in live(story)) == words[newest]


@drawn(st.permutations(range(5)), st.lists(st.sampled_from(["Oslo", "Bergen", "Rome"]), min_size=5, max_size=5))
def test_of_facts_that_replace_each_other_the_newest_stays_in_any_order(order: list[int], towns: list[str]) -> None:
    story = given()
    for when in order:
        town = f"Lives in {towns[when]}"
        old = [fact_id for content, fact_id in live(story).items() if content != town]
        story.learn(new(town), *(removal(one, n, 0) for n, one in enumerate(old)), answered=Spoken(day(when - 100)))
    assert story.texts() == [f"Lives in {towns[-1]}"]
