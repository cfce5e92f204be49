"""Rules about when facts hold: stated times, facts that end, facts that are over, and what an undo does about them."""

from __future__ import annotations

import msgspec
import pytest
from story import Story, given, news

from backstory.ledger.core.commands import (
    AddFact,
    Command,
    EditFact,
    Expire,
    RemoveFact,
    Revert,
    RollBack,
    candidates_of,
)
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    Removal,
)
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.decide import decide

ANY = Policy(max_facts=10, fact_confidence_threshold=0)


def fact(content: str, place: int = 0, **stated: str) -> NewFact:
    return NewFact(place=f"newFacts/{place}", content=content, confidence=0.9, **stated)  # type: ignore[arg-type]


def ending(fact_id: str, place: int = 0, **stated: object) -> Removal:
    return Removal(place=f"factsToEnd/{place}", id=fact_id, ended=True, **stated)  # type: ignore[arg-type]


def do_then(story: Story, command: Command, kind: str) -> None:
    """Decide a command at its own time."""
    story.take(decide(story.memory, command), kind)


def contents(story: Story) -> list[str]:
    return [fact.content for fact in story.memory.in_order()]


def refused(story: Story) -> list[tuple[str, str]]:
    return [(e.candidate.place, e.rule) for e in story.log[-1] if isinstance(e, CandidateRejected)]


def last(story: Story) -> list[str]:
    """What the last commit did to facts, in order."""
    said = []
    for event in story.log[-1]:
        match event:
            case FactAdded():
                said.append(f"+{event.fact.content}")
            case FactRemoved():
                said.append(f"-{event.fact.content} ({event.reason})")
            case FactRevised():
                said.append(f"~{event.after.content} ({event.change})")
            case _:
                pass
    return said


def test_a_fact_states_when_it_holds() -> None:
    story = given(ANY, fact("Lives in Oslo", valid_from="2024", valid_until="2031-05", expires_at="2032-01-31"))
    (one,) = story.memory.facts.values()
    assert (one.valid_from, one.valid_until, one.expires_at) == ("2024", "2031-05", "2032-01-31")


@pytest.mark.parametrize(
    ("stated", "rule"),
    [
        ({"valid_from": "2030", "valid_until": "2029"}, "malformed"),
        ({"valid_from": "2030-02", "valid_until": "2030-01-31"}, "malformed"),
        ({"expires_at": "2020"}, "expired"),
    ],
)
def test_what_cannot_be_is_refused(stated: dict[str, str], rule: str) -> None:
    story = given(ANY, fact("Lives in Oslo", **stated))
    assert (contents(story), refused(story)) == ([], [("newFacts/0", rule)])


def test_a_year_may_begin_and_end_a_fact() -> None:
    assert contents(given(ANY, fact("Ran a marathon", valid_from="2031", valid_until="2031"))) == ["Ran a marathon"]


def test_what_is_over_when_it_is_told_is_added_and_ends() -> None:
    story = given(ANY, fact("Lived in Oslo", valid_from="2011", valid_until="2014"))
    assert contents(story) == []
    assert last(story) == ["+Lived in Oslo", "-Lived in Oslo (ended)"]
    assert candidates_of(story.log[-1]) == (fact("Lived in Oslo", valid_from="2011", valid_until="2014"),)


def test_what_is_over_repeats_no_live_fact_and_needs_no_room() -> None:
    full = Policy(max_facts=2, fact_confidence_threshold=0)
    story = given(full, *news("Lives in Oslo", "Has a dog"))
    again = [fact("Lives in Oslo", n, valid_from=f, valid_until=u) for n, (f, u) in enumerate([("2001", "2002")] * 2)]
    story.learn(*again, fact("Lives in Oslo", 2, valid_from="2005", valid_until="2007"))
    assert contents(story) == ["Lives in Oslo", "Has a dog"]
    assert last(story) == ["+Lives in Oslo", "-Lives in Oslo (ended)"] * 2
    assert refused(story) == [("newFacts/1", "duplicate")]


def test_a_fact_that_ends_leaves_memory_as_true_until_then() -> None:
    story = given(ANY, fact("Lives in Oslo", valid_from="2024"))
    story.learn(fact("Lives in Bergen"), ending("fact_2_0", valid_until="2025", reason="moved", replacement=0))
    assert contents(story) == ["Lives in Bergen"]
    (gone,) = (event for event in story.log[-1] if isinstance(event, FactRemoved))
    assert (gone.reason, gone.valid_until, gone.note) == ("ended", "2025", "moved")
    assert ending("fact_2_0", valid_until="2025", reason="moved", replacement=0) in candidates_of(story.log[-1])


def test_an_end_stands_or_falls_with_what_replaces_the_fact() -> None:
    story = given(ANY, *news("Lives in Oslo", "Has a dog"))
    story.learn(fact("has a dog"), ending("fact_2_0", replacement=0))
    assert contents(story) == ["Lives in Oslo", "Has a dog"]
    assert ("factsToEnd/0", "replacement_refused") in refused(story)


def test_a_fact_that_will_end_stays_and_says_so() -> None:
    story = given(ANY, *news("Has a visa"))
    story.learn(ending("fact_2_0", valid_until="2097-06", reason="it runs out"), fact("has a visa"))
    assert last(story) == ["~Has a visa (ending)"]
    assert refused(story) == [("newFacts/0", "duplicate")]
    assert story.memory.facts["fact_2_0"].valid_until == "2097-06"
    assert ending("fact_2_0", valid_until="2097-06", reason="it runs out") in candidates_of(story.log[-1])


def test_no_fact_ends_before_it_began() -> None:
    story = given(ANY, fact("Lives in Oslo", valid_from="2024"))
    story.learn(ending("fact_2_0", valid_until="2023-12"))
    assert (contents(story), refused(story)) == (["Lives in Oslo"], [("factsToEnd/0", "malformed")])


def test_no_model_ends_what_a_person_entered() -> None:
    story = given(ANY)
    story.do(AddFact(at="", fact=NewFact(place="facts/0", content="Lives in Oslo", confidence=0.9)), "manual")
    story.learn(ending("fact_2_0", valid_until="2097"))
    assert refused(story) == [("factsToEnd/0", "by_hand")]


def test_facts_that_hold_at_different_times_are_not_merged() -> None:
    merging = msgspec.structs.replace(ANY, consolidation_enabled=True, consolidation_min_facts=2)
    facts = (fact("Rents in Oslo", 0, valid_until="2097"), fact("Has a flat", 1), fact("Rents a flat", 2))
    story = given(merging, *facts)

    def merged(*sources: str) -> Candidate:
        return Consolidation(place="factsToConsolidate/0", sources=sources, content="Rents a flat in Oslo")

    story.learn(merged("fact_2_0", "fact_2_1"))
    assert refused(story) == [("factsToConsolidate/0", "sources")]
    story.learn(merged("fact_2_1", "fact_2_2"))
    assert contents(story) == ["Rents in Oslo", "Rents a flat in Oslo"]


def test_what_has_lapsed_expires_or_ends() -> None:
    story = given(
        ANY,
        fact("The code word is heron", 0, expires_at="2097-03"),
        fact("Has a visa", 1, valid_until="2097-02-28"),
        fact("Has a dog", 2),
        fact("Has a lease", 3, valid_until="2097-02", expires_at="2097-02"),
        fact("Has a permit", 4, valid_until="2097-02", expires_at="2097-03"),
    )
    do_then(story, Expire(at="2097-02-28T23:59:59.999999Z"), "expiry")
    assert last(story) == []
    do_then(story, Expire(at="2097-03-01T00:00:00.000000Z"), "expiry")
    assert last(story) == ["-Has a visa (ended)", "-Has a lease (expired)", "-Has a permit (ended)"]
    assert story.memory.next_lapse() == "2097-04-01T00:00:00.000000Z"


def reverted(story: Story, seq: int, at: str) -> list[str]:
    do_then(story, Revert(at=at, target=seq, events=story.log[seq - 1]), "revert")
    return contents(story)


def test_a_revert_brings_back_what_ended_but_not_what_is_over() -> None:
    story = given(ANY, fact("Lives in Oslo"), fact("Has a visa", 1, valid_until="2096"))
    story.learn(ending("fact_2_0", valid_until="2025"), ending("fact_2_1", 1, valid_until="2025"))
    assert contents(story) == []
    assert reverted(story, 3, "2097-01-01T00:00:00.000000Z") == ["Lives in Oslo"]


def test_a_revert_of_an_expiry_brings_back_nothing() -> None:
    story = given(ANY, fact("The code word is heron", expires_at="2096"))
    do_then(story, Expire(at="2097-01-01T00:00:00.000000Z"), "expiry")
    assert reverted(story, 3, "2097-01-02T00:00:00.000000Z") == []


def test_a_revert_does_not_change_a_fact_back_to_a_time_that_is_over() -> None:
    story = given(ANY, fact("Has a visa", valid_until="2096"))
    edit = Edit(place="facts/0", id="fact_2_0", valid_until="2099")
    do_then(story, EditFact(at="2095-01-01T00:00:00.000000Z", edit=edit), "manual")
    reverted(story, 3, "2097-01-01T00:00:00.000000Z")
    assert story.memory.facts["fact_2_0"].valid_until == "2099"


def test_a_revert_of_what_was_told_as_past_takes_it_back_as_wrong() -> None:
    story = given(ANY, fact("Lived in Oslo", valid_until="2014"))
    assert reverted(story, 2, story.now()) == []
    assert last(story) == ["+Lived in Oslo", "-Lived in Oslo (revert)"]


def test_a_rollback_leaves_out_what_is_over() -> None:
    story = given(ANY, fact("Has a visa", valid_until="2096"), fact("Has a dog", 1))
    then = tuple(story.memory.facts.values())
    story.do(RemoveFact(at="", fact_id="fact_2_0"), "manual")
    do_then(story, RollBack(at="2097-01-01T00:00:00.000000Z", to=2, facts=then, sections={}), "rollback")
    assert contents(story) == ["Has a dog"]


def test_an_edit_states_a_time_and_takes_it_back() -> None:
    story = given(ANY, *news("Has a visa"))
    for stated, held in (("2096-05", "2096-05"), ("", None)):
        edit = Edit(place="facts/0", id="fact_2_0", valid_until=stated)
        story.do(EditFact(at="", edit=edit), "manual")
        assert story.memory.facts["fact_2_0"].valid_until == held
        assert candidates_of(story.log[-1]) == (edit,)
    story.do(EditFact(at="", edit=Edit(place="facts/0", id="fact_2_0", valid_until="")), "manual")
    assert refused(story) == [("facts/0", "unchanged")]


def test_a_person_ends_a_fact_and_leaves_a_mark() -> None:
    story = given(ANY, *news("Lives in Oslo", "Has a dog"))
    story.do(RemoveFact(at="", fact_id="fact_2_0", ended=True, valid_until="2025", transcript=4), "manual")
    story.do(RemoveFact(at="", fact_id="fact_2_1", ended=True, valid_until="2097", transcript=4), "manual")
    assert contents(story) == ["Has a dog"]
    assert story.memory.facts["fact_2_1"].by_hand
    assert list(story.memory.marks) == ["lives in oslo"]
