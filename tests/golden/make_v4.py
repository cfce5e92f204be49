"""Writes the golden files of format 4: `python tests/golden/make_v4.py` from the project's folder.

Format 4 has tags of turns, and tags and attributes of facts. What was written once is read forever: never change a
file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from golden.make_v1 import ANSWER, HERE, THREAD, at, chain, learned

from backstory.ledger.core.commit import EMPTY, Cause, Draft, unseal
from backstory.ledger.core.events import (
    CandidateRejected,
    FactAdded,
    FactRevised,
    NewFact,
    PolicyChanged,
    Turn,
    TurnRange,
    TurnRecorded,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.projections.document.document import render

TAGS, TAGS_DOCUMENT = HERE / "v4.jsonl", HERE / "v4.memory.json"
TAGS_TRANSCRIPT = HERE / "v4.transcript.jsonl"

SAID = Turn(n=1, id="t1", role="user", content="We deploy on Fridays", at=at(11), tags=("heron",))
DEPLOYS = msgspec.structs.replace(learned(0, "Deploys on Fridays", 2), evidence=("t1",), tags=("heron",))
BOTH = msgspec.structs.replace(DEPLOYS, tags=("heron", "gull"))
BUDGET = msgspec.structs.replace(
    learned(0, "The budget is small", 4),
    source="manual",
    by_hand=True,
    tags=("gull",),
    attributes={"team": "red", "rank": 2, "share": 0.5, "open": True},
)


def transcript() -> list[Draft]:
    turns = TurnRange(1, 1)
    return [Draft(at(11), Cause(kind="record", user="ed", thread=THREAD, turns=turns), (TurnRecorded(SAID),))]


def ledger() -> list[Draft]:
    again = NewFact(place="newFacts/0", content="Deploys on Fridays", tags=("gull",))
    return [
        Draft(at(11), Cause(kind="genesis", user="ed"), (PolicyChanged(None, Policy()),)),
        Draft(
            at(12),
            Cause(kind="extraction", thread=THREAD),
            (UpdateProposed(1, ANSWER, 9), FactAdded(DEPLOYS, "newFacts/0")),
        ),
        Draft(
            at(13),
            Cause(kind="extraction", thread=THREAD),
            (
                UpdateProposed(2, ANSWER, 9),
                FactRevised(DEPLOYS, BOTH, "tagged"),
                CandidateRejected(again, "duplicate", "fact_2_0 already says this"),
            ),
        ),
        Draft(at(14), Cause(kind="manual", action="add"), (FactAdded(BUDGET, "facts/0"),)),
    ]


def build() -> dict[Path, bytes]:
    """The golden files' bytes, by path."""
    lines = chain(ledger(), "tags")
    fold, head = Fold(Memory()), EMPTY
    for line in lines:
        commit = unseal(line, head, stream="golden", byte=0)
        head = commit.head
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return {
        TAGS: b"".join(line + b"\n" for line in lines),
        TAGS_DOCUMENT: render(fold.memory()),
        TAGS_TRANSCRIPT: b"".join(line + b"\n" for line in chain(transcript(), "tags")),
    }


if __name__ == "__main__":
    for path, data in build().items():
        path.write_bytes(data)
