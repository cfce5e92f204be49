"""Turns by the words of their facts: which facts count, and that what is erased or wrong finds nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import open_home

from backstory.home import Backstory
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle

THREAD = "monday"


def learned(memory: MemoryHandle, *facts: str, **more: object) -> None:
    items = [{"content": text, "confidence": 0.9, "evidence": ["u1"]} for text in facts]
    memory.extract([RecordedReply(THREAD, json.dumps({"newFacts": items, **more}))])


def said(memory: MemoryHandle) -> list[str]:
    return [hit.id for hit in memory.search("cello", within="turns")]


def record(memory: MemoryHandle, turn: str, text: str) -> None:
    memory.record(THREAD, [{"role": "user", "content": text, "id": turn}])


@pytest.fixture
def bs(tmp_path: Path) -> Iterator[Backstory]:
    with open_home(tmp_path, embedding_model="none", max_facts=10) as bs:
        yield bs


@pytest.fixture
def memory(bs: Backstory) -> MemoryHandle:
    memory = bs.memory("ada")
    record(memory, "u1", "The big one, at grandmother's.")
    assert said(memory) == []
    learned(memory, "Learned to play the cello")
    assert said(memory) == ["u1"]
    return memory


def test_a_turn_is_found_by_a_fact_and_the_explanation_says_so(memory: MemoryHandle) -> None:
    (hit,) = memory.search("cello", within="turns", explain=True)
    assert [(part.word, part.where) for part in hit.why.words] == [("cello", "facts")]
    assert sum(part.score for part in hit.why.words) == pytest.approx(hit.why.words_score)


def test_a_fact_that_made_room_for_others_still_finds_its_turn(memory: MemoryHandle, tmp_path: Path) -> None:
    for number in range(10):
        memory.add_fact(f"Owns {number} ships", confidence=1.0)
    assert not memory.search("cello")
    assert said(memory) == ["u1"]
    with open_home(tmp_path, embedding_model="none") as other:
        assert said(other.memory("ada")) == ["u1"]


def undo(memory: MemoryHandle) -> None:
    memory.revert(2)


def remove_by_hand(memory: MemoryHandle) -> None:
    memory.remove_fact("fact_2_0")


def remove_by_model(memory: MemoryHandle) -> None:
    record(memory, "u2", "No, that was somebody else.")
    learned(memory, factsToRemove=[{"id": "fact_2_0", "reason": "wrong"}])


def edit(memory: MemoryHandle) -> None:
    memory.edit_fact("fact_2_0", content="Learned to play the harp")


def forget(memory: MemoryHandle) -> None:
    memory.forget("fact_2_0")


def clear(memory: MemoryHandle) -> None:
    memory.clear()


@pytest.mark.parametrize("change", [undo, remove_by_hand, remove_by_model, edit, forget, clear])
def test_a_fact_that_is_wrong_or_gone_finds_no_turn_here_and_in_another_process(
    memory: MemoryHandle, tmp_path: Path, change: Callable[[MemoryHandle], object]
) -> None:
    with open_home(tmp_path, embedding_model="none") as other:
        assert said(other.memory("ada")) == ["u1"]
        change(memory)
        assert said(memory) == said(other.memory("ada")) == []
        assert [hit.id for hit in memory.search("grandmother", within="turns", top_k=1)] == ["u1"]


def test_a_fact_that_is_brought_back_finds_its_turn_again(memory: MemoryHandle) -> None:
    memory.remove_fact("fact_2_0")
    memory.revert(3)
    assert said(memory) == ["u1"]


def test_after_a_clear_facts_that_had_made_room_find_nothing_either(memory: MemoryHandle) -> None:
    for number in range(10):
        memory.add_fact(f"Owns {number} ships", confidence=1.0)
    memory.clear()
    assert said(memory) == []


def test_a_turn_that_is_erased_is_not_found_by_its_fact(memory: MemoryHandle) -> None:
    learned(memory, "Owns a cello")
    memory.forget(thread_id=THREAD)
    assert said(memory) == []
