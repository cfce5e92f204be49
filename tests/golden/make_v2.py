"""Writes the golden files of format 2: `python tests/golden/make_v2.py` from the project's folder.

Format 2 has marks: of what a person took away, and of what was erased. What was written once is read forever: never
change a file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from golden.make_v1 import ANSWER, HERE, at, chain, learned

from backstory.ledger.core.commands import withheld
from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, erase, unseal
from backstory.ledger.core.events import (
    CandidateRejected,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    PolicyChanged,
    Redacted,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.projections.document.document import render

MARKS, MARKS_DOCUMENT = HERE / "v2.jsonl", HERE / "v2.memory.json"

OSLO = learned(0, "Lives in Oslo.", 2)
CAT = learned(1, "Has a cat", 2)
TEA = learned(2, "Drinks tea", 2)
TWO_CATS = msgspec.structs.replace(CAT, content="Has two cats", by_hand=True)
SEEN = Head(4, "ef" * 32)


def ledger() -> list[Draft]:
    return [
        Draft(at(11), Cause(kind="genesis", user="cy"), (PolicyChanged(None, Policy(said_again_share=0.5)),)),
        Draft(
            at(12),
            Cause(kind="extraction", thread="t"),
            (UpdateProposed(1, ANSWER, 9), *(FactAdded(fact, f"newFacts/{fact.place}") for fact in (OSLO, CAT, TEA))),
        ),
        Draft(
            at(13),
            Cause(kind="manual", action="edit", fact=CAT.id, transcript=SEEN),
            (FactRevised(CAT, TWO_CATS, "edited", "facts/0", marked_after=4),),
        ),
        Draft(
            at(14),
            Cause(kind="manual", action="remove", fact=OSLO.id, transcript=SEEN),
            (FactRemoved(OSLO, "hand", marked_after=4),),
        ),
        Draft(
            at(15),
            Cause(kind="extraction", thread="t"),
            (
                UpdateProposed(4, "", 9, said_again={"newFacts/0": 0.25}),
                CandidateRejected(NewFact(place="newFacts/0", content="lives in Oslo"), "removed_by_hand", "commit 4"),
                CandidateRejected(withheld("newFacts/1"), "erased", "it is gone"),
            ),
        ),
        Draft(
            at(16),
            Cause(kind="redaction", action="fact", fact=TEA.id),
            (Redacted("users/cy/ledger", 2, 3, "fact", fact=TEA.id, mark="cd" * 32, marked_after=5),),
        ),
        Draft(at(17), Cause(kind="revert", target=6, transcript=SEEN), ()),
    ]


def build() -> dict[Path, bytes]:
    """The golden files' bytes, by path."""
    lines = chain(ledger(), "marks")
    lines[1] = erase(lines[1], [3])
    fold, head = Fold(Memory()), EMPTY
    for line in lines:
        commit = unseal(line, head, stream="golden", byte=0)
        head = commit.head
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return {MARKS: b"".join(line + b"\n" for line in lines), MARKS_DOCUMENT: render(fold.memory())}


if __name__ == "__main__":
    for path, data in build().items():
        path.write_bytes(data)
