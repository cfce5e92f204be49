"""Writes the golden files of a policy in words: `python tests/golden/make_v1_policy.py` from the project's folder.

They have free categories, categories and instructions of an operator, and refusals by topic. What was written once is
read forever: never change a file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from golden.make_v1 import HERE, THREAD, at, chain, learned

from backstory.ledger.core.commit import EMPTY, Cause, Draft, unseal
from backstory.ledger.core.events import (
    CandidateRejected,
    FactAdded,
    NewFact,
    PolicyChanged,
    Unread,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import FIRST, Category
from backstory.projections.document.document import render

WORDS, WORDS_DOCUMENT = HERE / "v1.policy.jsonl", HERE / "v1.policy.memory.json"

STATED = msgspec.structs.replace(
    FIRST,
    categories=(Category("Diet", "what is eaten", lifetime=30, protected=True, guaranteed=True), Category("travel")),
    instructions="Only diet. Never health.",
)
FISH = msgspec.structs.replace(learned(0, "Eats fish", 3), category="Diet")
BOOKS = msgspec.structs.replace(learned(1, "Reads", 3), category="books & more")


def ledger() -> list[Draft]:
    trains = NewFact(place="newFacts/2", content="Likes trains", topic="outside")
    return [
        Draft(at(11), Cause(kind="genesis", user="ed"), (PolicyChanged(None, FIRST),)),
        Draft(at(12), Cause(kind="policy", actor="ed"), (PolicyChanged(FIRST, STATED, "manual"),)),
        Draft(
            at(13),
            Cause(kind="extraction", thread=THREAD),
            (
                UpdateProposed(2, "", 9),
                FactAdded(FISH, "newFacts/0", {"category": "diet", "topic": "inside"}),
                FactAdded(BOOKS, "newFacts/1"),
                CandidateRejected(trains, "topic", "it is outside"),
                CandidateRejected(Unread(place="newFacts/3", text="", detail="never"), "topic", "never"),
            ),
        ),
    ]


def build() -> dict[Path, bytes]:
    """The golden files' bytes, by path."""
    lines = chain(ledger(), "policy")
    fold, head = Fold(Memory()), EMPTY
    for line in lines:
        commit = unseal(line, head, stream="golden", byte=0)
        head = commit.head
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return {WORDS: b"".join(line + b"\n" for line in lines), WORDS_DOCUMENT: render(fold.memory())}


if __name__ == "__main__":
    for path, data in build().items():
        path.write_bytes(data)
