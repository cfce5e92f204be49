"""Rules of an imported document, decided without a store."""

from __future__ import annotations

import msgspec
import pytest
from story import Story, at, given, new, refusals

from backstory.ledger.core.commands import ImportDocument, SaveDocument
from backstory.ledger.core.events import Candidate, NewSummary
from backstory.ledger.core.policy import Policy

ROOMY = Policy(max_facts=100, fact_confidence_threshold=0)
SECTION = "user.workContext"


def imported(story: Story, *candidates: Candidate, replace: bool = False) -> dict[str, str]:
    """Import a document; returns the rules that refused its items, by place."""
    return refusals(story.do(ImportDocument(at="", candidates=candidates, replace=replace), "import"))


@pytest.mark.parametrize(("hours", "refused"), [(-1, True), (0, True), (1, False)])
def test_merging_takes_a_section_only_if_it_was_written_later(hours, refused):
    story = given(ROOMY)
    imported(story, NewSummary(place=SECTION, summary="builds trains", at=at(10)))
    rules = imported(story, NewSummary(place=SECTION, summary="builds ships", at=at(10 + hours)))
    assert rules == ({SECTION: "older"} if refused else {})
    assert story.memory.sections[SECTION].summary == ("builds trains" if refused else "builds ships")


@pytest.mark.parametrize("stated", [0, 2, 5])
def test_a_restated_fact_loses_no_confirmations(stated):
    story = given(ROOMY)
    fact = new("likes tea", place="facts/0", id="tea", confirmations=3, confirmed_at=at(2))
    imported(story, fact)
    again = msgspec.structs.replace(fact, content="likes green tea", confirmations=stated)
    assert imported(story, again, replace=True) == {}
    live = story.memory.facts["tea"]
    assert (live.content, live.confirmations) == ("likes green tea", max(3, stated))


@pytest.mark.parametrize("save", [False, True])
def test_a_refused_fact_takes_its_id_so_that_the_others_have_the_same_under_another_policy(save: bool) -> None:
    candidates = (
        new("Likes tea", 0.5, place="facts/0", id="fact_x"),
        new("Likes jam", 0.9, place="facts/1", id="fact_x"),
    )
    given_ids = []
    for threshold in (0.3, 0.7):
        story = given(Policy(fact_confidence_threshold=threshold))
        command = SaveDocument(at="", candidates=candidates)
        story.do(command if save else ImportDocument(at="", candidates=candidates, replace=True), "import")
        given_ids.append({fact.content: fact.id for fact in story.memory.in_order()})
    assert given_ids == [{"Likes tea": "fact_x", "Likes jam": "fact_2_1"}, {"Likes jam": "fact_2_1"}]
