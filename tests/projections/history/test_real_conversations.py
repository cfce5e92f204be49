"""Measured on real conversations: memory decided again is what it is, and what it would have been.

The folder that BACKSTORY_DATA names holds, at any depth, pairs of files: `NAME.conversation.jsonl` (messages with a
thread_id each) and `NAME.replies.jsonl` (one recorded answer for each thread, in order), as `record` and
`extract --replies` read them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest
from fakes import FakeClock, ScriptedModel, open_home, reply

from backstory.ledger.core.policy import PolicyValue
from backstory.ledger.extraction.models.recorded import read_replies
from backstory.memory import MemoryHandle
from backstory.projections.document.document import render
from backstory.projections.turns import TurnView
from backstory.projections.what_if.counterfactual import decide_again
from backstory.results import WhatIf

_DATA = os.environ.get("BACKSTORY_DATA")
pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(
        not _DATA, reason="BACKSTORY_DATA is not set: name a folder of NAME.conversation.jsonl and NAME.replies.jsonl"
    ),
]

LEDGERS = sorted(Path(_DATA).rglob("*.replies.jsonl")) if _DATA else []
NAMES = [path.name.partition(".")[0] for path in LEDGERS]

OTHER_POLICIES: dict[str, dict[str, PolicyValue]] = {
    "at most 50": {"max_facts": 50},
    "at most 10": {"max_facts": 10},
    "gate off": {"gate_enabled": False},
    "dedup exact": {"dedup_key": "exact"},
    "hybrid": {"fact_eviction_policy": "hybrid"},
    "hybrid, at most 50": {"fact_eviction_policy": "hybrid", "max_facts": 50},
    "threshold 0.95": {"fact_confidence_threshold": 0.95},
    "threshold 0": {"fact_confidence_threshold": 0.0},
    "review after 30 days": {"staleness_age_days": 30, "staleness_min_candidates": 1},
    "merging on": {"consolidation_enabled": True},
}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


def conversation(ledger: Path) -> list[tuple[str, list[dict[str, object]]]]:
    """The threads of a ledger's conversation, in order."""
    path = ledger.with_name(ledger.name.replace(".replies.", ".conversation."))
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(thread, list(turns)) for thread, turns in groupby(rows, key=lambda row: row["thread_id"])]


@contextmanager
def learned(
    home: Path, ledger: Path, policy: dict[str, PolicyValue] | None = None, *, by_hand: bool = False
) -> Iterator[MemoryHandle]:
    """A memory that has learned a whole ledger under a policy, thread by thread; `by_hand`: a person was at it, too."""
    replies = read_replies(ledger.read_bytes().splitlines())
    with open_home(home) as bs:
        bs._policy = {**bs._policy, **(policy or {})}
        memory = bs.memory("someone")
        for number, (thread, turns) in enumerate(conversation(ledger), 1):
            memory.record(thread, turns)
            memory.extract(replies, thread=thread, backdate=True)
            if by_hand:
                interfere(memory, number)
        # What is not told is not compared: every reply has to have been used.
        assert memory.status().pending == ()
        memory.flush()
        yield memory


def interfere(memory: MemoryHandle, number: int) -> None:
    """Do by hand what people do, the same in every run, and nothing that another policy could refuse outright."""
    head = memory.head().seq
    note = f"Note {number - number % 9 + 1} by hand"
    match number % 9:
        case 1:
            memory.add_fact(note, confidence=0.6)
        case 2:
            memory.import_document(["Imported, and nothing else", f"Imported {number}"])
        case 3:
            memory.edit_fact(found(memory, note), content=f"{note}, and edited")
        case 4:
            memory.revert(head, force=True)
        case 5:
            memory.remove_fact(found(memory, f"{note}, and edited"))
        case 6:
            memory.rollback(head - 2)
        case 7:
            memory.set_policy(staleness_age_days=60)
        case 8 if number < 18:
            memory.clear()


def found(memory: MemoryHandle, content: str) -> str:
    return next(fact.id for fact in memory.facts() if fact.content == content)


def again(memory: MemoryHandle, policy: dict[str, PolicyValue]) -> bytes:
    """The memory.json that there would be."""
    return render(decide_again(memory._services.commits(memory._services.writer), policy))


def on_disk(home: Path) -> bytes:
    return next(home.rglob("memory.json")).read_bytes()


@pytest.mark.parametrize("ledger", LEDGERS, ids=NAMES)
def test_what_if_with_the_policy_in_force_is_memory_json_byte_for_byte(tmp_path: Path, ledger: Path) -> None:
    with learned(tmp_path, ledger) as memory:
        assert again(memory, {}) == on_disk(tmp_path)
        assert memory.what_if() == WhatIf((), (), (), (), len(memory.facts()))


@pytest.mark.parametrize("ledger", LEDGERS, ids=NAMES)
def test_what_if_with_another_policy_is_what_a_ledger_run_under_it_from_the_start_holds(
    tmp_path: Path, ledger: Path
) -> None:
    with learned(tmp_path / "as it was", ledger) as memory:
        print(f"\n{ledger.name}: {len(memory.facts())} facts")  # noqa: T201 the measure, shown with -s
        for name, policy in OTHER_POLICIES.items():
            with learned(tmp_path / name, ledger, policy) as twin:
                assert again(memory, policy) == on_disk(tmp_path / name), name
                told = memory.what_if(**policy)
                assert told.facts == len(twin.facts())
            print(f"  {name}: {told.facts} facts, +{len(told.added)} -{len(told.removed)}")  # noqa: T201 as above


@pytest.mark.parametrize("ledger", LEDGERS, ids=NAMES)
def test_both_hold_where_people_added_edited_imported_reverted_rolled_back_and_cleared(
    tmp_path: Path, ledger: Path
) -> None:
    with learned(tmp_path / "as it was", ledger, by_hand=True) as memory:
        kinds = {entry.cause.kind for entry in memory.log()}
        assert kinds == {"genesis", "extraction", "manual", "import", "revert", "rollback", "policy", "clear"}
        assert again(memory, {}) == on_disk(tmp_path / "as it was")
        for name in ("at most 50", "at most 10", "dedup exact", "hybrid, at most 50"):
            with learned(tmp_path / name, ledger, OTHER_POLICIES[name], by_hand=True):
                assert again(memory, OTHER_POLICIES[name]) == on_disk(tmp_path / name), name


@pytest.mark.parametrize("ledger", LEDGERS, ids=NAMES)
def test_asked_again_with_the_same_answers_nothing_differs_and_with_none_of_half_of_them_half_stands(
    tmp_path: Path, ledger: Path
) -> None:
    replies = read_replies(ledger.read_bytes().splitlines())
    with learned(tmp_path, ledger) as memory:
        found = memory.reextract(replies=replies)
        assert found.again == found.recorded
        assert (found.added, found.removed, found.revised, found.sections) == ((), (), (), ())
        half = memory.reextract(replies=replies[: len(replies) // 2])
        assert (half.added, half.removed, half.revised, half.sections) == ((), (), (), ())
        assert half.again.updates == len(replies) // 2


# Whatever a host sends of a conversation, all of it stands.


def in_one_thread(ledger: Path) -> list[dict[str, object]]:
    """The words of a conversation, without ids, as a host without ids sends them."""
    return [{"role": turn["role"], "content": turn["content"]} for _, turns in conversation(ledger) for turn in turns]


def words(turns: Iterable[TurnView]) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in turns]


@pytest.mark.parametrize("ledger", LEDGERS, ids=NAMES)
@pytest.mark.parametrize("how", ["pairs", "windows", "whole"])
def test_a_conversation_stands_complete_after_an_early_erasure(tmp_path: Path, ledger: Path, how: str) -> None:
    said = in_one_thread(ledger)
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        for end in range(2, len(said) + 2, 2):
            start = {"pairs": end - 2, "windows": max(0, end - 10), "whole": 0}[how]
            memory.record("t", said[start:end])
            if end == 10:
                memory.forget(matching=str(said[4]["content"]))
        kept = [(turn["role"], turn["content"]) for turn in said if str(turn["content"]).strip()]
        assert words(memory.transcript("t")) == [turn for turn in kept if turn[1] != said[4]["content"]]


@pytest.mark.parametrize("ledger", LEDGERS, ids=NAMES)
def test_a_conversation_stands_complete_under_retention(tmp_path: Path, ledger: Path) -> None:
    said, clock = in_one_thread(ledger), FakeClock()
    model = ScriptedModel(*[reply("nothing new")] * len(said))
    with open_home(tmp_path, clock=clock, model=model, transcript_retention_days=3) as bs:
        memory = bs.memory("ada")
        recorded = []
        for start in range(0, len(said), 2):
            memory.record("t", said[start : start + 2])
            standing = words(memory.transcript("t"))
            recorded += standing[len(standing) - len(said[start : start + 2]) :]
            memory.extract()
            clock.advance(3 * 3600)
        assert recorded == [(turn["role"], turn["content"]) for turn in said]
        left = words(memory.transcript("t"))
        assert 20 < len(left) < 80
        assert left == recorded[-len(left) :]
