"""Rules of an imported document, decided without a store."""

from __future__ import annotations

import msgspec
import pytest
from story import Story, at, given, new, refusals

from backstory.ledger.core.commands import ImportDocument
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
