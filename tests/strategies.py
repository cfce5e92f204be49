"""Hypothesis strategies: few texts and few ids, so that collisions are the rule and not the exception."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    Access,
    Candidate,
    Consolidation,
    Extension,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Spoken,
    Unread,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import DEDUP_KEYS, EVICTIONS, EVIDENCE, Policy
from backstory.ledger.rules.review import fragmented, stale_facts

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
categories = st.sampled_from(["preference", "preference", "context", "correction", "hobby"])
policies = st.builds(
    Policy,
    max_facts=st.integers(1, 8),
    fact_confidence_threshold=st.sampled_from([0.0, 0.5, 0.7, 0.7, 0.95]),
    fact_eviction_policy=st.sampled_from(EVICTIONS),
    eviction_correction_reserved_fraction=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    eviction_correction_reserved_max=st.integers(0, 3),
    gate_enabled=st.booleans(),
    dedup_key=st.sampled_from(DEDUP_KEYS),
    staleness_review_enabled=st.sampled_from([True, True, False]),
    staleness_age_days=st.sampled_from([1, 90]),
    staleness_min_candidates=st.sampled_from([1, 1, 2]),
    staleness_max_removals_per_cycle=st.integers(1, 2),
    staleness_protected_categories=st.sampled_from([("correction",), (), ("correction", "preference")]),
    staleness_max_lifetime_multiplier=st.sampled_from([1.0, 20.0]),
    staleness_max_extension_days=st.sampled_from([30, 3650]),
    consolidation_enabled=st.sampled_from([True, True, False]),
    consolidation_min_facts=st.integers(2, 3),
    consolidation_max_groups_per_cycle=st.integers(1, 2),
    consolidation_max_sources=st.integers(2, 3),
    evidence=st.sampled_from(EVIDENCE),
    free_categories=st.sampled_from([True, True, False]),
)
waits = st.sampled_from([0, 0, 2, 2, 100])
"""Days until the next thing happens: often so many that facts are up for review."""

spoken = st.builds(
    Spoken,
    at=st.sampled_from([f"{day}T00:00:00.000000Z" for day in ("2025-05-01", "2026-01-02", "2026-03-01", "2030-01-01")]),
    role=st.sampled_from(["user", "assistant"]),
)
"""When turns were said: before the first commit of a story, during it, and by a clock that is fast."""
words = st.just({}) | st.fixed_dictionaries(
    {"answered": spoken, "cited": st.dictionaries(st.sampled_from(["t1", "t2"]), spoken)}
)
"""What an update knows of its turns; nothing in one of an earlier version."""

# What is drawn in every step of a history is built here, once: `st.builds` reads the type hints of its class each time.
_LABELS = {
    "scope": st.sampled_from([*[None] * 6, "user", " User ", "task"]),
    "durability": st.sampled_from([*[None] * 6, "durable", "DURABLE", "session"]),
    "authority": st.sampled_from([*[None] * 6, "descriptive", "prescriptive"]),
}
_labels = st.fixed_dictionaries(_LABELS)
tags = st.sampled_from([(), (), (), ("heron",), ("gull",), ("heron", "gull")])
edited_tags = st.none() | tags
_attributes = st.sampled_from([{}, {}, {}, {"team": "red"}, {"team": "blue", "rank": 2}])
_reasons = st.sampled_from([None, "moved"])
_few = {most: st.integers(0, most) for most in range(6)}
_sections = st.lists(st.sampled_from(DOCUMENT_SECTIONS[:3]), unique=True, max_size=2)
_broken = st.booleans()
_new_facts = st.builds(
    NewFact,
    place=st.just(""),
    content=contents,
    category=categories,
    confidence=confidences,
    evidence=st.lists(st.sampled_from(["t1", "t2", "nowhere"]), max_size=2).map(tuple),
    expected_valid_days=st.none() | st.integers(1, 4000),
    source_error=st.none() | contents,
    tags=tags,
    **_LABELS,
)
_days = st.integers(1, 5000)
_categories, _confidences, _replacements = (
    st.none() | categories,
    st.none() | confidences,
    st.none() | st.integers(0, 5),
)
_uses = st.floats(0, 20)
_stated = st.fixed_dictionaries(
    {
        "at": st.sampled_from([None, "2025-01-01T00:00:00.000000Z"]),
        "source": st.sampled_from([None, "t9", "manual"]),
        "by_hand": st.booleans(),
        "confirmations": st.sampled_from([0, 0, 3]),
        "confirmed_at": st.sampled_from([None, "2025-06-01T00:00:00.000000Z"]),
        "consolidated_from": st.sampled_from([(), (), ("fact_x", "fact_y")]),
        "tags": tags,
        "attributes": _attributes,
    }
)
_section_times = st.sampled_from([None, "2030-01-01T00:00:00.000000Z"])


def many_facts() -> st.SearchStrategy[tuple[NewFact, ...]]:
    """Facts that most policies take in, most of them of one kind: something to review, to merge and to evict from."""
    facts = st.tuples(st.permutations(WORDS), st.lists(categories, min_size=5, max_size=7))
    return facts.map(
        lambda drawn: tuple(
            NewFact(place=f"newFacts/{i}", content=content, category=category, confidence=0.9 + i / 100)
            for i, (content, category) in enumerate(zip(*drawn, strict=False))
        )
    )


def new_facts(place: str) -> st.SearchStrategy[NewFact]:
    return _new_facts.map(lambda fact: msgspec.structs.replace(fact, place=place))


@st.composite
def proposals(draw: st.DrawFn, memory: Memory, now: str = "") -> tuple[Candidate, ...]:
    """A model's answer to a memory: much of it refers to facts that are there, some to ones that never were.

    Where `now` is given, reviews are mostly of what is due then.
    """
    ids = st.sampled_from([*memory.facts] * 4 + ["fact_0_0"])
    stale = [fact.id for fact in stale_facts(memory, now)] if now else []
    due = st.sampled_from([*stale * 8, *memory.facts, "fact_0_0"])
    facts = [draw(new_facts(f"newFacts/{i}")) for i in range(draw(_few[5]))]

    def listed(name: str, most: int, kind: type, **fields: st.SearchStrategy[object]) -> list[Candidate]:
        return [
            kind(place=f"{name}/{i}", **{field: draw(what) for field, what in fields.items()}, **draw(_labels))
            for i in range(draw(_few[most]))
        ]

    removals = listed("factsToRemove", 3, Removal, id=ids, reason=_reasons, replacement=_replacements)
    confirmed = listed("factsToReinforce", 2, Reinforcement, id=ids)
    reviewed = listed("staleFactsToRemove", 3, Removal, id=due, reason=_reasons)
    longer = listed("staleFactsToExtend", 3, Extension, id=due, days=_days, reason=_reasons)
    merged = listed(
        "factsToConsolidate",
        3,
        Consolidation,
        sources=sources_in(memory),
        content=contents,
        category=_categories,
        confidence=_confidences,
    )
    sections = [NewSummary(place=name, summary=draw(contents), **draw(_labels)) for name in draw(_sections)]
    broken = [Unread(place=f"newFacts/{len(facts)}", text="7", detail="no object")] if draw(_broken) else []
    return (*sections, *facts, *broken, *removals, *confirmed, *reviewed, *longer, *merged)


def sources_in(memory: Memory) -> st.SearchStrategy[tuple[str, ...]]:
    """Facts to merge: often of one category, as a model was asked; now and then any, or none, or one twice."""
    anything = st.lists(st.sampled_from([*memory.facts, "fact_0_0"]), max_size=4)
    most = memory.policy.consolidation_max_sources
    kinds = [[fact.id for fact in facts] for facts in fragmented(memory).values()]
    fitting = [st.permutations(ids).map(lambda some: some[:most]) for ids in kinds]
    return st.one_of(*fitting, *fitting, *fitting, anything).map(tuple)


def heats(memory: Memory) -> st.SearchStrategy[dict[str, Access]]:
    """What was used of late, as it is told where it counts."""
    if memory.policy.fact_eviction_policy != "hybrid" or not memory.facts:
        return st.just({})
    return st.dictionaries(
        st.sampled_from(sorted(memory.facts)), _uses.map(lambda heat: Access(heat, memory.at)), max_size=3
    )


def _stated_ids(memory: Memory) -> list[str]:
    """Ids of live facts, of facts that are gone or never were, and of commits before, at and after the next one."""
    seq = memory.seq
    ahead = [f"fact_{n}_{place}" for n in (max(1, seq - 1), seq + 1, seq + 2) for place in (0, 1, "0_2", "1_2")]
    return [*memory.facts, "fact_ab", "fact_900_0", *ahead, "f" * 513]


@st.composite
def documents(draw: st.DrawFn, memory: Memory) -> tuple[Candidate, ...]:
    """A document to import: some of it is what is there, some of it says where it came from."""
    facts = []
    ids = st.none() | st.sampled_from(_stated_ids(memory))
    for i in range(draw(_few[5])):
        fact = draw(_new_facts)
        facts.append(
            NewFact(
                place=f"facts/{i}",
                content=fact.content,
                category=fact.category,
                confidence=fact.confidence,
                expected_valid_days=fact.expected_valid_days,
                id=draw(ids),
                **draw(_stated),
            )
        )
    sections = [NewSummary(place=name, summary=draw(contents), at=draw(_section_times)) for name in draw(_sections)]
    return (*sections, *facts)
