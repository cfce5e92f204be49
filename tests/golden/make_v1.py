"""Writes the golden files of format 1: `python tests/golden/make_v1.py` from the project's folder.

A small memory that holds every event and most candidates and fields of a cause, with fixed times and salts; one event
of each stream was erased. The rest is in the files of `make_v1_rules.py`: these here were written when a policy had
three values, so this no longer writes them to the byte. What was written once is read forever: never change a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, head_of, seal, unseal
from backstory.ledger.core.events import (
    CandidateRejected,
    Edit,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    NewSummary,
    PolicyChanged,
    Redacted,
    Reinforcement,
    Removal,
    Section,
    SummaryUpdated,
    Turn,
    TurnRange,
    TurnRecorded,
    TurnSuperseded,
    Unread,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.projections.document.document import render

HERE = Path(__file__).parent
LEDGER, TRANSCRIPT, DOCUMENT = HERE / "v1.jsonl", HERE / "v1.transcript.jsonl", HERE / "v1.memory.json"
STREAMS = {"ledger": "users/ada/ledger", "transcript": "users/ada/transcript"}
THREAD = "tea & Tee, 茶"
ANSWER = hashlib.sha256(b"an answer").hexdigest()
PROMPT = hashlib.sha256(b"a prompt").hexdigest()

ERASED_EVENT, ERASED_TURN = (3, 2), (2, 1)
"""Seq and index, in the ledger and in the transcript, of what was erased."""


def at(minute: int) -> str:
    return f"2026-03-12T10:{minute:02d}:00.123456Z"


def salts(name: str) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:32]


def transcript() -> list[Draft]:
    def said(n: int, text: str, role: str = "user", **more: object) -> TurnRecorded:
        fields: dict[str, object] = {"n": n, "id": f"m{n}", "role": role, "content": text, "at": at(n), **more}
        return TurnRecorded(Turn(**fields))  # type: ignore[arg-type]

    routing = {"name": "Ada", "cause_by": "UserRequirement", "sent_from": "Human", "send_to": ("Planner", "Coder")}
    metadata = {"lang": "de", "tags": ["a", 1, 2.5, True, None], "deep": {"é": {}}}
    return [
        Draft(
            at(1),
            Cause(kind="record", user="ada", thread=THREAD, turns=TurnRange(1, 2)),
            (
                said(1, "I drink tea: 茶, “Tee” \\ \t 👍🏽", **routing, metadata=metadata),
                said(2, "Noted.", "assistant"),
            ),
        ),
        Draft(
            at(3),
            Cause(kind="record", thread=THREAD, turns=TurnRange(3, 3)),
            (TurnSuperseded(1), said(3, "I drink coffee; my PIN is 1234.", id="t3", anonymous=True)),
        ),
        Draft(
            at(4),
            Cause(kind="record", thread="other", turns=TurnRange(1, 1)),
            (said(1, "Hello\nthere", id="x", at=at(4)),),
        ),
    ]


def learned(n: int, text: str, seq: int, **more: object) -> Fact:
    fields: dict[str, object] = {
        "id": f"fact_{seq}_{n}",
        "content": text,
        "category": "preference",
        "confidence": 0.9,
        "created_at": at(10 + seq),
        "source": THREAD,
        "seq": seq,
        "place": n,
        **more,
    }
    return Fact(**fields)  # type: ignore[arg-type]


TEA = learned(0, "Drinks tea: 茶", 2, evidence=("m1",))
COFFEE = learned(0, "Drinks coffee", 3, evidence=("t3",), category="knowledge", source_error="said tea before")
PIN = learned(1, "The PIN is 1234", 3)
CAT = learned(0, "Has a cat", 5, by_hand=True, source="manual", confidence=1.0)
DOG = learned(0, "Has a dog", 8, source="import", expected_valid_days=30, confidence=0.75)


CONFIRMED_COFFEE = msgspec.structs.replace(COFFEE, confirmations=1, confirmed_at=at(14))
TWO_CATS = msgspec.structs.replace(CAT, content="Has two cats")


def ledger(transcript_head: Head) -> list[Draft]:
    first, then = Section("Drinks tea.", at(12)), Section("Drinks coffee now. 咖啡", at(13))
    policy = Policy(max_facts=12, fact_confidence_threshold=0.6)
    return [
        Draft(at(11), Cause(kind="genesis", user="ada"), (PolicyChanged(None, Policy()),)),
        Draft(
            at(12),
            Cause(
                kind="extraction",
                thread=THREAD,
                turns=TurnRange(1, 2),
                transcript=transcript_head,
                model="gpt-x",
                prompt=PROMPT,
                tokens_in=812,
                tokens_out=95,
                actor="ada",
            ),
            (
                UpdateProposed(1, ANSWER, 431, ()),
                FactAdded(TEA, "newFacts/0", {"category": "hobby", "scope": "user", "expected_valid_days": None}),
                SummaryUpdated("user.workContext", Section(), first, "user.workContext", "Drinks tea. See upload.pdf."),
                CandidateRejected(
                    NewFact(
                        place="newFacts/1",
                        content="Drinks tea",
                        category="preference",
                        confidence=0.3,
                        evidence=("m1", "m2"),
                        source_error="e",
                        expected_valid_days=7,
                        scope="user",
                        durability="long",
                        authority="stated",
                    ),
                    "threshold",
                    "0.3 is under 0.7",
                ),
                CandidateRejected(
                    Unread(place="newFacts/2", text='{"content":7}', detail="content: not a string"),
                    "malformed",
                    "no text",
                ),
                CandidateRejected(
                    Removal(place="factsToRemove/0", id="fact_0_0", reason="old", replacement=1), "unknown_fact", "none"
                ),
                CandidateRejected(Reinforcement(place="factsToReinforce/0", id="fact_9_9"), "unknown_fact", "none"),
                CandidateRejected(NewSummary(place="history.recentMonths", summary=""), "empty", "it says nothing"),
            ),
        ),
        Draft(
            at(13),
            Cause(
                kind="extraction", thread=THREAD, turns=TurnRange(3, 3), transcript=transcript_head, model="recorded"
            ),
            (
                UpdateProposed(2, ANSWER, 77),
                FactAdded(COFFEE, "newFacts/0"),
                FactAdded(PIN, "newFacts/1"),
                FactRemoved(TEA, "model", "factsToRemove/0", "said otherwise", 0, "kept 1"),
                SummaryUpdated("user.workContext", first, then, "user.workContext"),
            ),
        ),
        Draft(
            at(14),
            Cause(kind="extraction", thread="other", transcript=transcript_head, model="gpt-x"),
            (
                UpdateProposed(3, ANSWER, 12),
                FactRevised(COFFEE, CONFIRMED_COFFEE, "confirmed", "factsToReinforce/0"),
                UpdateFailed("unavailable", "503 from the server", 5, TurnRange(1, 1)),
            ),
        ),
        Draft(
            at(15), Cause(kind="manual", action="add", actor="ada"), (FactAdded(CAT, "facts/0", {"confidence": 0.95}),)
        ),
        Draft(
            at(16),
            Cause(kind="manual", action="edit", fact=CAT.id, actor="ada"),
            (
                FactRevised(CAT, TWO_CATS, "edited", "facts/0", {"confidence": 0.4}),
                CandidateRejected(
                    Edit(place="facts/1", id=COFFEE.id, content="Has two cats", category="goal", confidence=0.5),
                    "duplicate",
                    "it",
                ),
            ),
        ),
        Draft(
            at(17),
            Cause(kind="manual", action="discard", thread="other", turns=TurnRange(1, 1)),
            (UpdateFailed("discarded", "503 from the server"),),
        ),
        Draft(
            at(18),
            Cause(kind="import", replace=True),
            (
                FactAdded(DOG, "facts/0"),
                CandidateRejected(
                    NewFact(place="facts/1", content="x", id="fact_a", at=at(0), source="t", by_hand=True),
                    "cap",
                    "full",
                ),
                CandidateRejected(
                    NewSummary(place="user.topOfMind", summary="Old", at=at(0)), "older", "newer is there"
                ),
            ),
        ),
        Draft(at(19), Cause(kind="policy"), (PolicyChanged(Policy(), policy, "manual"),)),
        Draft(at(20), Cause(kind="revert", target=4, force=True), (FactRevised(CONFIRMED_COFFEE, COFFEE, "restored"),)),
        Draft(at(21), Cause(kind="clear", transcript=transcript_head), (FactRemoved(DOG, "clear"),)),
        Draft(at(22), Cause(kind="rollback", target=10), (FactAdded(DOG),)),
        Draft(
            at(23),
            Cause(kind="redaction", actor="ada"),
            (
                Redacted(STREAMS["ledger"], *ERASED_EVENT, "fact", fact=PIN.id),
                Redacted(STREAMS["transcript"], *ERASED_TURN, "turn"),
                Redacted(STREAMS["ledger"], 99, 0, "section", section="user.personalContext"),
            ),
        ),
    ]


def chain(drafts: list[Draft], name: str) -> list[bytes]:
    """Seal drafts one after the other."""
    lines: list[bytes] = []
    secret = salts(name)
    for draft in drafts:
        lines.append(seal(draft, head_of(lines[-1]) if lines else EMPTY, lambda: next(secret)))
    return lines


def erased(line: bytes, draft: Draft, index: int, used: str) -> bytes:
    """Put the digest of an event in its place; `used` is its salt."""
    content = msgspec.json.encode(draft.events[index])
    digest = hashlib.sha256(used.encode() + content).hexdigest()
    gone = line.replace(content, f'{{"type":"Erased","digest":"{digest}"}}'.encode(), 1)
    return gone.replace(f'"{used}"'.encode(), b"null", 1)


def salt_of(drafts: list[Draft], name: str, seq: int, index: int) -> str:
    secret = salts(name)
    for _ in range(sum(1 + len(draft.events) for draft in drafts[: seq - 1]) + 1 + index):
        next(secret)
    return next(secret)


def build() -> dict[Path, bytes]:
    """The golden files' bytes, by path."""
    said = transcript()
    turns = chain(said, "transcript")
    learnt = ledger(head_of(turns[-1]))
    commits = chain(learnt, "ledger")
    for lines, drafts, name, (seq, index) in (
        (commits, learnt, "ledger", ERASED_EVENT),
        (turns, said, "transcript", ERASED_TURN),
    ):
        used = salt_of(drafts, name, seq, index)
        lines[seq - 1] = erased(lines[seq - 1], drafts[seq - 1], index, used)
    fold, head = Fold(Memory()), EMPTY
    for line in commits:
        commit = unseal(line, head, stream="golden", byte=0)
        head = commit.head
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return {
        LEDGER: b"".join(line + b"\n" for line in commits),
        TRANSCRIPT: b"".join(line + b"\n" for line in turns),
        DOCUMENT: render(fold.memory()),
    }


if __name__ == "__main__":
    for path, data in build().items():
        path.write_bytes(data)
