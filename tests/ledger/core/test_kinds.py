"""Kinds: mypy reads a closed set, and a log may hold words beyond it."""

from __future__ import annotations

import pytest

from backstory.ledger.core import kinds
from backstory.ledger.core.commit import EMPTY, Cause, Draft, decode, seal
from backstory.ledger.core.events import (
    CandidateRejected,
    Event,
    Fact,
    FactRemoved,
    FactRevised,
    PolicyChanged,
    Reinforcement,
    UpdateFailed,
)
from backstory.ledger.core.memory import BARRIERS
from backstory.ledger.core.policy import DEDUP_KEYS, EVICTIONS, EVIDENCE, Policy
from backstory.ledger.rules.decide import RULES
from backstory.testing.lines import AT

FACT = Fact(id="fact_1_0", content="Tea.", category="goal", confidence=0.9, created_at=AT, source="t", seq=1)


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        (kinds.Rule, RULES),
        (kinds.Barrier, BARRIERS),
        (kinds.EvictionRanking, EVICTIONS),
        (kinds.DedupKey, DEDUP_KEYS),
        (kinds.RequiredEvidence, EVIDENCE),
    ],
    ids=["rules", "barriers", "evictions", "dedup keys", "evidence"],
)
def test_a_list_of_words_leaves_none_of_its_set_out(kind: object, listed: object) -> None:
    assert sorted(kinds.words_of(kind)) == sorted(listed)


def test_the_words_of_a_later_program_are_read() -> None:
    cause = Cause(kind="dream", action="sleep")
    events: tuple[Event, ...] = (
        FactRemoved(FACT, "dreamt"),
        FactRevised(FACT, FACT, "dreamt"),
        CandidateRejected(Reinforcement(place="r/0", id="fact_1_0"), "dream", "not real"),
        UpdateFailed("asleep", "no answer"),
        PolicyChanged(None, Policy(dedup_key="dream", fact_eviction_policy="dream"), "dream"),
    )
    draft = Draft(AT, cause, events)
    commit = decode(seal(draft, EMPTY, lambda: "0" * 32))
    assert (commit.cause, commit.events) == (cause, events)
