"""Writes the golden files of format 3: `python tests/golden/make_v3.py` from the project's folder.

Format 3 has facts that state when they hold, facts that ended, and facts that expired. What was written once is read
forever: never change a file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from golden.make_v1 import ANSWER, HERE, THREAD, at, chain, learned

from backstory.ledger.core.commit import EMPTY, Cause, Draft, unseal
from backstory.ledger.core.events import (
    CandidateRejected,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    PolicyChanged,
    Removal,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.projections.document.document import render

TIMES, TIMES_DOCUMENT = HERE / "v3.jsonl", HERE / "v3.memory.json"

OSLO = msgspec.structs.replace(learned(0, "Lives in Oslo", 2), valid_from="2019")
VISA = msgspec.structs.replace(learned(1, "Has a visa", 2), valid_until="2026-03-12T10:15")
CODE = msgspec.structs.replace(learned(2, "The code word is heron", 2), expires_at="2026-03-12T12:15+02:00")
PARIS = msgspec.structs.replace(learned(3, "Lived in Paris", 2), valid_from="2011-09", valid_until="2012")
BERGEN = learned(0, "Lives in Bergen", 3)
LEASE = msgspec.structs.replace(BERGEN, valid_until="2027-01-31+01:00")


def ledger() -> list[Draft]:
    added = (FactAdded(fact, f"newFacts/{fact.place}") for fact in (OSLO, VISA, CODE, PARIS))
    late = NewFact(place="newFacts/1", content="The code word was gull", expires_at="2026-03-11")
    return [
        Draft(at(11), Cause(kind="genesis", user="di"), (PolicyChanged(None, Policy()),)),
        Draft(
            at(12),
            Cause(kind="extraction", thread=THREAD),
            (UpdateProposed(1, ANSWER, 9), *added, FactRemoved(PARIS, "ended")),
        ),
        Draft(
            at(13),
            Cause(kind="extraction", thread=THREAD),
            (
                UpdateProposed(2, ANSWER, 9),
                FactRemoved(OSLO, "ended", "factsToEnd/0", "moved", 0, valid_until="2026-02"),
                FactAdded(BERGEN, "newFacts/0"),
                CandidateRejected(late, "expired", "too late"),
                CandidateRejected(
                    Removal(place="factsToEnd/1", id="fact_9_9", ended=True, valid_until="2025"), "unknown_fact", "none"
                ),
            ),
        ),
        Draft(
            at(14),
            Cause(kind="extraction", thread=THREAD),
            (
                UpdateProposed(3, ANSWER, 9),
                FactRevised(BERGEN, LEASE, "ending", "factsToEnd/0", {"reason": "the lease ends"}),
            ),
        ),
        Draft(at(15), Cause(kind="expiry"), (FactRemoved(VISA, "ended"), FactRemoved(CODE, "expired"))),
        Draft(
            at(16),
            Cause(kind="manual", action="remove", fact=LEASE.id),
            (FactRemoved(LEASE, "ended"),),
        ),
        Draft(at(17), Cause(kind="revert", target=6), (FactAdded(LEASE),)),
    ]


def build() -> dict[Path, bytes]:
    """The golden files' bytes, by path."""
    lines = chain(ledger(), "times")
    fold, head = Fold(Memory()), EMPTY
    for line in lines:
        commit = unseal(line, head, stream="golden", byte=0)
        head = commit.head
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return {TIMES: b"".join(line + b"\n" for line in lines), TIMES_DOCUMENT: render(fold.memory())}


if __name__ == "__main__":
    for path, data in build().items():
        path.write_bytes(data)
