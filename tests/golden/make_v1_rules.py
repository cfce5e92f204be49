"""Writes the golden files of what the rules of learning added to format 1.

`PYTHONPATH=tests python -m golden.make_v1_rules`, from the project's folder.

Version 1 never left this project without them, so they are no version of their own; the files of `make_v1.py`, written
before, lack these fields and are read all the same. One small ledger with labels, reviews, merged facts, heat and a
policy whose every value is stated, with fixed times and salts. Never change these files either.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from golden.make_v1 import ANSWER, HERE, THREAD, at, chain, learned

from backstory.ledger.core.commit import EMPTY, Cause, Draft, unseal
from backstory.ledger.core.events import (
    Access,
    CandidateRejected,
    Consolidation,
    Extension,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    NewSummary,
    PolicyChanged,
    Reinforcement,
    Removal,
    Section,
    SummaryUpdated,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.projections.document.document import render

RULES, RULES_DOCUMENT = HERE / "v1.rules.jsonl", HERE / "v1.rules.memory.json"

LABELS = {"scope": "user", "durability": "durable", "authority": "descriptive"}
FIRST = Policy(dedup_key="normalized")
POLICY = Policy(
    max_facts=3,
    fact_confidence_threshold=0.6,
    fact_eviction_policy="hybrid",
    eviction_confidence_weight=0.5,
    eviction_confirmation_weight=0.3,
    eviction_access_weight=0.2,
    eviction_confirmation_half_life_days=45,
    eviction_access_half_life_days=15,
    eviction_correction_reserved_fraction=0.2,
    eviction_correction_reserved_max=5,
    gate_enabled=False,
    dedup_key="casefold",
    staleness_review_enabled=False,
    staleness_age_days=60,
    staleness_min_candidates=1,
    staleness_max_removals_per_cycle=4,
    staleness_protected_categories=("correction", "goal"),
    staleness_max_lifetime_multiplier=7.5,
    staleness_max_extension_days=700,
    consolidation_enabled=True,
    consolidation_min_facts=2,
    consolidation_max_groups_per_cycle=2,
    consolidation_max_sources=4,
)
TEA = learned(0, "Drinks tea: 茶", 2, evidence=("m1",), confidence=0.8)
OOLONG = learned(1, "Drinks oolong", 2, evidence=("m1", "m2"), source_error="said coffee before")
BUS = learned(2, "Takes the bus", 2, category="behavior", expected_valid_days=60)
BOTH = learned(10_000, "Drinks tea, oolong above all", 3, evidence=("m1", "m2"), consolidated_from=(TEA.id, OOLONG.id))
LONGER = msgspec.structs.replace(BUS, expected_valid_days=160)
CONFIRMED = msgspec.structs.replace(LONGER, confirmations=1, confirmed_at=at(13))
CHESS = learned(0, "Plays chess", 4, confirmations=3, confirmed_at=at(2), consolidated_from=("fact_a", "fact_b"))


def ledger() -> list[Draft]:
    """The commits, before they are sealed."""
    first, then = Section("Drinks tea.", at(12)), Section("Drinks oolong.", at(13))
    return [
        Draft(at(11), Cause(kind="genesis", user="bo"), (PolicyChanged(None, FIRST),)),
        Draft(
            at(12),
            Cause(kind="extraction", thread=THREAD, signals=("correction", "preference")),
            (
                UpdateProposed(1, ANSWER, 431, (), ()),
                SummaryUpdated("user.topOfMind", Section(), first, "user.topOfMind", labels=LABELS),
                FactAdded(TEA, "newFacts/0", {**LABELS}),
                FactAdded(OOLONG, "newFacts/1"),
                FactAdded(BUS, "newFacts/2", {"expected_valid_days": 90_000}),
                CandidateRejected(
                    NewFact(place="newFacts/3", content="Wants this page in green", scope="task"),
                    "gate",
                    "scope is task",
                ),
            ),
        ),
        Draft(
            at(13),
            Cause(kind="extraction", thread=THREAD, heat={TEA.id: Access(2.5, at(9))}),
            (
                UpdateProposed(2, ANSWER, 99, (TEA.id, OOLONG.id, BUS.id), (BUS.id,)),
                SummaryUpdated("user.topOfMind", first, then, "user.topOfMind"),
                FactRevised(BUS, LONGER, "extended", "staleFactsToExtend/0", {"days": 100, "reason": "still does"}),
                FactRevised(LONGER, CONFIRMED, "confirmed", "factsToReinforce/0", {**LABELS}),
                FactRemoved(TEA, "consolidated", detail=BOTH.id),
                FactRemoved(OOLONG, "consolidated", detail=BOTH.id),
                FactAdded(BOTH, "factsToConsolidate/0", {"confidence": None, "category": "drinks", **LABELS}),
                CandidateRejected(
                    Extension(place="staleFactsToExtend/1", id=BUS.id, days=3, reason="again", **LABELS),
                    "repeated",
                    "twice",
                ),
                CandidateRejected(
                    Consolidation(
                        place="factsToConsolidate/1",
                        sources=(BUS.id, "fact_0_0"),
                        content="Takes buses",
                        category="behavior",
                        confidence=0.7,
                        **LABELS,
                    ),
                    "unknown_fact",
                    "none",
                ),
                CandidateRejected(
                    Removal(place="factsToRemove/0", id=BUS.id, replacement=9, authority="prescriptive"), "gate", "no"
                ),
                CandidateRejected(
                    NewSummary(place="user.workContext", summary="Do it in green", durability="now"), "gate", "no"
                ),
                CandidateRejected(Reinforcement(place="factsToReinforce/1", id=BUS.id, scope="task"), "gate", "no"),
            ),
        ),
        Draft(
            at(14),
            Cause(kind="import"),
            (
                FactAdded(CHESS, "facts/0"),
                CandidateRejected(
                    NewFact(
                        place="facts/1",
                        content="plays  chess",
                        confirmations=2,
                        confirmed_at=at(1),
                        consolidated_from=("fact_c",),
                    ),
                    "duplicate",
                    "it",
                ),
            ),
        ),
        Draft(
            at(15),
            Cause(kind="extraction", thread=THREAD),
            (
                UpdateProposed(4, ANSWER, 12, stale=(BUS.id,)),
                FactRemoved(CONFIRMED, "stale", "staleFactsToRemove/0", "walks now", labels=LABELS),
            ),
        ),
        Draft(
            at(16),
            Cause(kind="policy", heat={CHESS.id: Access(8.0, at(15))}),
            (
                FactRemoved(BOTH, "cap", detail="score 0.6500 (confidence 0.9)"),
                PolicyChanged(FIRST, POLICY, "manual"),
            ),
        ),
    ]


def build() -> dict[Path, bytes]:
    """The golden files' bytes, by path."""
    lines = chain(ledger(), "rules")
    fold, head = Fold(Memory()), EMPTY
    moments = []
    for line in lines:
        commit = unseal(line, head, stream="golden", byte=0)
        head = commit.head
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        moments.append(fold.memory())
    # At the moment when most is there to be told.
    return {RULES: b"".join(line + b"\n" for line in lines), RULES_DOCUMENT: render(moments[3])}


if __name__ == "__main__":
    for path, data in build().items():
        path.write_bytes(data)
