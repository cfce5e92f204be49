"""Facts that rest on an assistant's words alone, through the public surface."""

from __future__ import annotations

import json
from pathlib import Path

from fakes import open_home
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle

TURNS = [
    {"role": "user", "content": "I moved to Oslo", "id": "u"},
    {"role": "assistant", "content": "You must like skiing!", "id": "a"},
]
FACTS = {
    "newFacts": [
        {"content": "Lives in Oslo", "confidence": 0.9, "evidence": ["u"]},
        {"content": "Likes skiing", "confidence": 0.9, "evidence": ["a"]},
    ]
}


def learn(memory: MemoryHandle) -> None:
    memory.record("t", TURNS)
    memory.extract([RecordedReply("t", json.dumps(FACTS))])


def test_status_counts_them_and_why_names_the_speaker(tmp_path: Path) -> None:
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        learn(memory)
        assert memory.status().assistant_only == 1
        spoken = {f.content: [turn.role for turn in memory.why(f.id).evidence] for f in memory.facts()}
        assert spoken == {"Lives in Oslo": ["user"], "Likes skiing": ["assistant"]}
    shown = CliRunner().invoke(app, ["--home", str(tmp_path), "--user", "ada", "status"]).stdout
    assert "2 of 100; 1 on an assistant's words alone" in shown


def test_what_if_shows_what_the_policy_would_have_kept_out_and_the_policy_keeps_it_out(tmp_path: Path) -> None:
    with open_home(tmp_path) as home:
        memory = home.memory("ada")
        learn(memory)
        gone = memory.what_if(evidence="user").removed
        assert [fact.content for fact in gone] == ["Likes skiing"]
    with open_home(tmp_path, evidence="user") as home:
        memory = home.memory("grace")
        learn(memory)
        assert [fact.content for fact in memory.facts()] == ["Lives in Oslo"]
        (refusal,) = memory.why_not("Likes skiing")
        assert refusal.rule == "assistant_only"
        assert memory.status().assistant_only == 0
