"""The archive of a user: everything that is kept about one, and nothing of another."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from fakes import FakeClock, exchange, open_home, reply

from backstory.home import Backstory
from backstory.ledger.core.errors import NotFoundError, ScopeError


@pytest.fixture
def bs(tmp_path: Path) -> Backstory:
    home = open_home(tmp_path / "home", clock=FakeClock())
    ada = home.memory("ada")
    ada.record("t1", exchange("tea"))
    ada.extract([{"thread_id": "t1", "reply": reply("Likes tea")}])
    ada.remove_fact(ada.add_fact("Likes coffee").fact.id)
    home.memory("ada", "coder").add_fact("Writes Rust")
    home.memory("bob").add_fact("Bakes bread")
    return home


def test_an_archive_has_every_memory_of_a_user_with_both_logs(bs: Backstory) -> None:
    file = io.BytesIO()
    found = bs.export_user("ada", file)
    assert [(one.folder, one.agent, one.facts) for one in found.memories] == [
        ("memory", None, 1),
        ("agents/coder", "coder", 1),
    ]
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert min(member.date_time[0] for member in archive.infolist()) > 1980
        content = {name: archive.read(name).decode() for name in archive.namelist()}
    assert sorted(content) == sorted(
        ["README.txt", "user.json"]
        + [
            f"{folder}/{name}"
            for folder in ("memory", "agents/coder")
            for name in ("memory.json", "MEMORY.md", "conversations.jsonl", "ledger.jsonl", "transcript.jsonl")
        ]
    )
    for name in {Path(one).name for one in content} - {"README.txt"}:
        assert f"{name} " in content["README.txt"], f"{name} is not explained to the person"
    # An agent's archive has its own facts alone, and the log still has what was removed.
    assert [fact["content"] for fact in json.loads(content["agents/coder/memory.json"])["facts"]] == ["Writes Rust"]
    assert "Likes tea" in content["memory/MEMORY.md"]
    assert "Likes coffee" in content["memory/ledger.jsonl"]
    turns = [json.loads(line) for line in content["memory/conversations.jsonl"].splitlines()]
    assert [(turn["thread"], turn["role"]) for turn in turns] == [("t1", "user"), ("t1", "assistant")]
    for kind in ("ledger", "transcript"):
        lines = [record.line.decode() for record in bs.store.read(f"users/ada/{kind}")]
        assert content[f"memory/{kind}.jsonl"].splitlines() == lines
    assert json.loads(content["user.json"])["memories"][0]["head"] == bs.memory("ada").head().hash
    assert not any("bread" in text for text in content.values())


def test_nobody_who_is_unknown_has_an_archive(bs: Backstory) -> None:
    for user, error in (("eve", NotFoundError), (None, ScopeError)):
        file = io.BytesIO()
        with pytest.raises(error):
            bs.export_user(user, file)  # type: ignore[arg-type]
        assert file.getvalue() == b""
