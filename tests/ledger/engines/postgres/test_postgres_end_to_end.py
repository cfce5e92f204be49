"""Memory in PostgreSQL by the URL alone: two homes share a database, and the document is the same as on files."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.postgres_engine import PostgresEngine
from typer.testing import CliRunner

from backstory.cli.app import app


@pytest.fixture
def engine() -> Iterator[PostgresEngine]:
    """Behind a pooler: tests/engines has the same directly."""
    engine = PostgresEngine(pooled=True)
    yield engine
    engine.close()


def test_memory_is_learned_undone_and_forgotten_and_another_machine_sees_it(
    engine: PostgresEngine, tmp_path: Path
) -> None:
    def run(home: str, *words: str) -> str:
        options = ["--home", str(tmp_path / home), "--store", engine.url, "--user", "ada"]
        result = CliRunner().invoke(app, [*options, "--json", *words])
        assert result.exit_code == 0, (words, result.stdout, result.stderr)
        return result.stdout

    said, replies = tmp_path / "said.jsonl", tmp_path / "replies.jsonl"
    turns = [
        {"thread_id": "t1", "id": "a1", "role": "user", "content": "I live in Zanzibar-Town."},
        {"thread_id": "t1", "id": "a2", "role": "assistant", "content": "Noted."},
    ]
    facts = [{"content": "User lives in Zanzibar-Town", "category": "context", "confidence": 0.9}]
    said.write_text("".join(json.dumps(turn) + "\n" for turn in turns), encoding="utf-8")
    replies.write_text(json.dumps({"thread_id": "t1", "reply": {"newFacts": facts}}), encoding="utf-8")
    run("one", "record", str(said))
    run("one", "extract", "--replies", str(replies))
    run("one", "revert", "2")
    assert "Zanzibar-Town" not in run("two", "show")
    run("two", "revert", "3")
    assert "Zanzibar-Town" in run("one", "show")
    run("one", "verify")
    run("one", "forget", "--thread", "t1", "--yes")
    assert "Zanzibar-Town" not in run("two", "show") + run("two", "turns", "t1")
    run("one", "verify")
    assert engine.files_with("Zanzibar-Town") == []
    assert not list(tmp_path.rglob("ledger.jsonl"))


def test_a_server_that_cannot_be_reached_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BACKSTORY_FILE_LOCK_TIMEOUT_SECONDS", "1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://owner@127.0.0.1:{taken.getsockname()[1]}/db"
        result = CliRunner().invoke(app, ["--home", str(tmp_path), "--store", url, "--user", "ada", "show"])
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith("backstory: cannot open the store in postgresql://127.0.0.1:")
