"""Hypothesis strategies: few texts and few ids, so that collisions are the rule and not the exception."""

from __future__ import annotations

from hypothesis import strategies as st

from ledger.events import DOCUMENT_SECTIONS, Candidate, NewFact, NewSummary, Reinforcement, Removal, Unread
from ledger.memory import Memory
from ledger.policy import CATEGORIES, Policy

WORDS = (
    "Ada runs",
    "ada  RUNS.",
    "Ada lives in Oslo",
    "Ada lives in Bergen",
    "喜欢 Rust",
    "喜欢　Rust。",
    "x",
    "y",
    "z",
    "w",
)

contents = st.sampled_from(WORDS) | st.text(max_size=12).map(str.strip)
confidences = st.sampled_from([0.0, 0.5, 0.69, 0.7, 0.9, 0.9, 0.9, 1.0]) | st.floats(0, 1)
policies = st.builds(
    Policy,
    max_facts=st.integers(1, 6),
    fact_confidence_threshold=st.sampled_from([0.0, 0.5, 0.7, 0.95]),
)


def new_facts(place: str) -> st.SearchStrategy[NewFact]:
    return st.builds(
        NewFact,
        place=st.just(place),
        content=contents,
        category=st.sampled_from([*CATEGORIES, "hobby"]),
        confidence=confidences,
        evidence=st.lists(st.sampled_from(["t1", "t2", "nowhere"]), max_size=2).map(tuple),
        scope=st.sampled_from([None, "user", "task"]),
        expected_valid_days=st.none() | st.integers(1, 4000),
    )


@st.composite
def proposals(draw: st.DrawFn, memory: Memory) -> tuple[Candidate, ...]:
    """A model's answer to a memory: much of it refers to facts that are there, some to ones that never were."""
    ids = st.sampled_from([*memory.facts, "fact_0_0"])
    facts = [draw(new_facts(f"newFacts/{i}")) for i in range(draw(st.integers(0, 5)))]
    removals = [
        Removal(
            place=f"factsToRemove/{i}",
            id=draw(ids),
            reason=draw(st.sampled_from([None, "moved"])),
            replacement=draw(st.none() | st.integers(0, 5)),
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    confirmed = [Reinforcement(place=f"factsToReinforce/{i}", id=draw(ids)) for i in range(draw(st.integers(0, 2)))]
    sections = [
        NewSummary(place=name, summary=draw(contents))
        for name in draw(st.lists(st.sampled_from(DOCUMENT_SECTIONS[:3]), unique=True, max_size=2))
    ]
    broken = [Unread(place=f"newFacts/{len(facts)}", text="7", detail="no object")] if draw(st.booleans()) else []
    return (*sections, *facts, *broken, *removals, *confirmed)


@st.composite
def documents(draw: st.DrawFn, memory: Memory) -> tuple[Candidate, ...]:
    """A document to import: some of it is what is there, some of it says where it came from."""
    facts = []
    for i in range(draw(st.integers(0, 5))):
        fact = draw(new_facts(f"facts/{i}"))
        facts.append(
            NewFact(
                place=fact.place,
                content=fact.content,
                category=fact.category,
                confidence=fact.confidence,
                expected_valid_days=fact.expected_valid_days,
                id=draw(st.none() | st.sampled_from([*memory.facts, "fact_ab", "fact_900_0"])),
                at=draw(st.sampled_from([None, "2025-01-01T00:00:00.000000Z"])),
                source=draw(st.sampled_from([None, "t9", "manual"])),
                by_hand=draw(st.booleans()),
            )
        )
    sections = [
        NewSummary(place=name, summary=draw(contents), at=draw(st.sampled_from([None, "2030-01-01T00:00:00.000000Z"])))
        for name in draw(st.lists(st.sampled_from(DOCUMENT_SECTIONS[:3]), unique=True, max_size=2))
    ]
    return (*sections, *facts)
