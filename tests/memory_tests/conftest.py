from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from backstory.memory_tests.judging import Judgement
from backstory.memory_tests.run import FileResult, run_tests


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "BACKSTORY_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


class Files:
    """A memory test in a folder, with two conversations and a kept reply for each."""

    said = (
        {"thread_id": "monday", "id": "m1", "role": "user", "content": "I live in Oslo, and I am vegetarian."},
        {"thread_id": "monday", "id": "m2", "role": "assistant", "content": "Noted."},
        {"thread_id": "friday", "id": "f1", "role": "user", "content": "We moved to Bergen! My sister may follow."},
        {"thread_id": "friday", "id": "f2", "role": "assistant", "content": "How lovely."},
    )
    replies: tuple[Mapping[str, object], ...] = (
        {
            "thread_id": "monday",
            "reply": {
                "newFacts": [
                    {"content": "User lives in Oslo", "category": "knowledge", "confidence": 0.9, "evidence": ["m1"]},
                    {"content": "User is vegetarian", "category": "preference", "confidence": 0.95},
                ]
            },
        },
        {
            "thread_id": "friday",
            "reply": {
                "newFacts": [
                    {"content": "User lives in Bergen", "category": "knowledge", "confidence": 0.9},
                    {"content": "User's sister may move, too", "confidence": 0.3},
                ],
                "factsToRemove": [{"id": "fact_2_0", "reason": "moved", "replacementFactIndex": 0}],
            },
        },
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for number, message in enumerate(self.said):
            message["at"] = f"2026-03-0{2 + number}T10:00:00Z"  # type: ignore[index]
        self.rows("said.jsonl", *self.said)
        self.rows("replies.jsonl", *self.replies)

    def rows(self, name: str, *rows: Mapping[str, object]) -> Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    def test(self, *expect: Mapping[str, object], name: str = "ada.test.yaml", **keys: object) -> Path:
        path = self.folder / name
        whole = {"conversations": ["said.jsonl"], "replies": "replies.jsonl", "expect": list(expect), **keys}
        path.write_text(yaml.safe_dump({key: value for key, value in whole.items() if value is not None}))
        return path

    def run(self, *expect: Mapping[str, object], **keys: object) -> FileResult:
        return run_tests([self.test(*expect, **keys)]).files[0]

    def verdict(self, expected: Mapping[str, object], **keys: object) -> Judgement:
        return self.run(expected, **keys).expectations[0]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)
