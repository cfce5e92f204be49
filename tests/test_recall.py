"""The scripts that measure recall measure what they say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.ordering import FEATURES, Case, learned
from benchmarks.recall import recall, spread

TALK = {
    "monday": ("I planted tomatoes on the balcony.", "Do you water them?"),
    "friday": ("The night train to Vienna was late.", "Four hours late?"),
}


def write(path: Path, *rows: object) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def test_recall_finds_turns_sessions_and_facts_of_a_small_talk(tmp_path: Path) -> None:
    turns = [
        {"thread_id": thread, "id": f"{thread}-{n}", "role": ("user", "assistant")[n % 2], "content": said}
        for thread, lines in TALK.items()
        for n, said in enumerate(lines)
    ]
    fact = {"content": "Grows tomatoes", "category": "context", "confidence": 0.9, "evidence": ["monday-0"]}
    write(tmp_path / "a.conversation.jsonl", *turns)
    write(tmp_path / "a.replies.jsonl", {"thread_id": "monday", "reply": {"newFacts": [fact]}})
    write(
        tmp_path / "a.questions.jsonl",
        {"question": "Where are the tomatoes?", "evidence": ["monday-0"], "category": 1},
        {"question": "Which trains are late?", "evidence": ["friday-0", "gone"], "category": 1},
        {"question": "Nothing is known of this", "evidence": ["gone"], "category": 1},
    )
    rows = {row.what: row.figure for row in recall(tmp_path)}
    assert rows["turns by words, 2 questions: recall@10"] == "1.000"
    assert rows["turns by words, beside facts, 2 questions: recall@10"] == "1.000"
    assert rows["turns by words: any hit in ten; sessions"] == "1.000; 1.000"
    assert rows["facts by words: any hit in five, 1 questions that a fact answers"] == "1.000"


def test_an_interval_is_that_of_conversations() -> None:
    assert spread([[1.0, 0.0], []]) == "0.500"
    assert spread([[0.5], [0.5], [0.5]]) == "0.500 (0.500-0.500)"
    assert spread([[1.0] * 3, [0.0]]) == "0.750 (0.000-1.000)"


def test_a_learned_order_follows_the_feature_that_tells() -> None:
    chance = np.random.default_rng(1)
    cases = []
    for _ in range(40):
        features = chance.random((20, len(FEATURES)))
        right = features[:, 3] >= np.sort(features[:, 3])[-2]
        cases.append(Case(features, right, 2))
    weights = learned(cases)
    assert int(np.argmax(weights)) == 3
    assert [case.recall(case.features @ weights) for case in cases] == pytest.approx([1.0] * 40)
