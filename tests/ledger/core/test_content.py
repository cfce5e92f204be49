"""Content of events: every text that a model, a person or a host wrote is found, so that erasure can reach it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from backstory.ledger.core.events import (
    CandidateRejected,
    Consolidation,
    Edit,
    Event,
    Extension,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Section,
    SummaryShared,
    SummaryUpdated,
    Turn,
    TurnRecorded,
    Unread,
    UpdateFailed,
)
from backstory.ledger.erasure.content import fact_texts_in, texts_beside_fact, texts_of

AT = "2026-03-01T10:00:00.000000Z"
LABELS = {"scope": "word scope", "durability": "word durability", "authority": "word authority"}


def fact(n: int) -> Fact:
    return Fact(
        id=f"fact_{n}_0",
        content=f"word content {n}",
        category="context",
        confidence=0.9,
        created_at=AT,
        source="t",
        seq=n,
        source_error=f"word error {n}",
    )


EVENTS: tuple[Event, ...] = (
    FactAdded(fact(1), "newFacts/0", {"content": "word proposed", "category": "word category"}),
    FactRevised(fact(1), fact(2), "edited", "facts/0", {"content": "word proposed"}),
    FactRemoved(fact(1), "model", note="word note", labels=LABELS),
    SummaryUpdated("user.workContext", Section("word before"), Section("word after"), None, "word proposed", LABELS),
    SummaryShared("user.workContext", "word text", 1, AT, None, "word proposed", LABELS),
    UpdateFailed("reply", "word detail"),
    *(
        CandidateRejected(candidate, "gate", "")
        for candidate in (
            NewFact(
                place="newFacts/0",
                content="word content",
                category="word category",
                source_error="word error",
                **LABELS,
            ),
            Removal(place="factsToRemove/0", id="word id", reason="word reason", **LABELS),
            Extension(place="staleFactsToExtend/0", id="word id", days=1, reason="word reason", **LABELS),
            Reinforcement(place="factsToReinforce/0", id="word id", **LABELS),
            NewSummary(place="user.workContext", summary="word summary", **LABELS),
            Consolidation(
                place="factsToConsolidate/0",
                sources=("word id", "word other"),
                content="word content",
                category="word category",
                **LABELS,
            ),
            Edit(place="facts/0", id="fact_1_0", content="word content", category="word category"),
            Unread(place="facts/0", text="word text", detail="word detail"),
        )
    ),
    TurnRecorded(
        Turn(
            n=1,
            id="t1",
            role="user",
            content="word said",
            at=AT,
            name="word name",
            metadata={"word key": ["word value"]},
        )
    ),
)


def words(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from words(key)
            yield from words(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from words(each)
    elif isinstance(value, str) and value.startswith("word"):
        yield value


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(getattr(event, "candidate", event)).__name__)
def test_every_text_of_an_event_is_content(event: Event) -> None:
    content = " ".join((*fact_texts_in(event), *texts_beside_fact(event)))
    missing = [word for word in words(msgspec.to_builtins(event)) if word not in content]
    assert not missing


@pytest.mark.parametrize("blank", ["\\n", "\\r", "\\t", "\\u000a"])
def test_an_escaped_blank_in_a_quotation_is_a_blank(blank: str) -> None:
    told = list(texts_of(UpdateFailed("reply", f'no JSON: "Lives in{blank}Oslo"')))
    assert any("Lives in Oslo" in " ".join(text.split()) for text in told)
