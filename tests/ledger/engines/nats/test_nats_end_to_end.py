"""Memory on NATS by the URL alone: through the command line, and with the same memory.json as on files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doubles.nats_engine import NatsEngine
from typer.testing import CliRunner, Result

from backstory.cli.app import app
from backstory.testing.lines import chain


class Told:
    """The command line on a home whose log is on NATS."""

    def __init__(self, home: Path, url: str) -> None:
        self._options = ["--home", str(home), "--store", url, "--user", "ada.b", "--json"]

    def __call__(self, *words: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [*self._options, *map(str, words)])
        assert result.exit_code == code, (words, result.stdout, result.stderr)
        return result

    def json(self, *words: object) -> dict[str, object]:
        found = json.loads(self(*words).stdout)
        return found if isinstance(found, dict) else {"all": found}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.torture  # `make test` has tests/engines, and looks into the server's files in test_nats_erasure
def test_memory_is_learned_explained_undone_and_forgotten_by_the_url_alone(engine: NatsEngine, tmp_path: Path) -> None:
    run = Told(tmp_path / "home", engine.url)
    said = write(
        tmp_path / "said.jsonl",
        {"thread_id": "t1", "id": "a1", "role": "user", "content": "I live in Zanzibar-Town."},
        {"thread_id": "t1", "id": "a2", "role": "assistant", "content": "Noted."},
    )
    facts = [{"content": "User lives in Zanzibar-Town", "category": "context", "confidence": 0.9}]
    replies = write(tmp_path / "replies.jsonl", {"thread_id": "t1", "reply": {"newFacts": facts}})
    run("record", said)
    run("extract", "--replies", replies)
    assert "Zanzibar-Town" in run("why", "fact_2_0").stdout
    run("revert", "2")
    assert "Zanzibar-Town" not in run("show").stdout
    run("revert", "3")
    assert "Zanzibar-Town" in run("show").stdout
    run("verify")
    # Another machine: the same streams, nothing else.
    other = Told(tmp_path / "other", engine.url)
    assert other("show").stdout == run("show").stdout
    run("forget", "--thread", "t1", "--yes")
    assert "Zanzibar-Town" not in other("show").stdout
    assert "Zanzibar-Town" not in other("turns", "t1").stdout
    run("verify")
    assert engine.files_with(b"Zanzibar-Town") == []
    assert not list((tmp_path / "home").rglob("*.jsonl"))


def test_doctor_says_what_may_lose_acknowledged_commits(engine: NatsEngine, tmp_path: Path) -> None:
    run = Told(tmp_path / "home", engine.url)
    engine.open().append("ledger", [chain(1)[0]], 0)
    found = run("doctor", code=1).stdout
    assert "keeps 1 of each commit" in found
    assert "--replicas 3" in found
