"""A home that an earlier version wrote: it opens, verifies and answers as that version answered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backstory.cli.app import app

STORED = Path(__file__).parent / "stored_home"
ASKED = json.loads((STORED / "answers.json").read_text(encoding="utf-8"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shutil.copytree(STORED / "home", tmp_path / "home")
    return tmp_path / "home"


def without_details(value: object) -> object:
    """Leave out what may change: sentences that explain, who counted the tokens, and scores; their order stays."""
    if isinstance(value, dict):
        return {key: without_details(each) for key, each in value.items() if key not in ("detail", "counter", "score")}
    return [without_details(each) for each in value] if isinstance(value, list) else value


def as_then(now: object, then: object) -> object:
    """Leave out what an answer has come to say besides."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {key: as_then(each, then[key]) for key, each in now.items() if key in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [as_then(each, other) for each, other in zip(now, then, strict=True)]
    return now


def answer(home: Path, *words: str) -> object:
    return json.loads(CliRunner().invoke(app, ["--home", str(home), "--json", *words]).stdout)


@pytest.mark.parametrize("asked", ASKED, ids=lambda each: " ".join(each["asked"]))
def test_it_answers_as_the_version_that_wrote_it(home: Path, asked: dict[str, object]) -> None:
    words = asked["asked"]
    assert isinstance(words, list)
    then = without_details(asked["answer"])
    assert as_then(without_details(answer(home, *words)), then) == then


def test_its_files_stay_as_they_were_while_it_is_read(home: Path) -> None:
    logs = [path.relative_to(home) for path in home.rglob("*.jsonl")]
    assert len(logs) == 4
    for asked in ASKED:
        answer(home, *asked["asked"])
    assert all((home / log).read_bytes() == (STORED / "home" / log).read_bytes() for log in logs)


def test_what_its_last_version_showed_it_would_revert_is_what_is_reverted(home: Path) -> None:
    (shown,) = (each["answer"] for each in ASKED if each["asked"][2:] == ["revert", "3", "--dry-run"])
    done = answer(home, "--user", "ada", "revert", "3")
    assert isinstance(done, dict)
    assert done["commit"] is not None
    # Facts that come back carry the commit that brought them back, which a dry run cannot know.
    assert [event["type"] for event in done["events"]] == [event["type"] for event in shown["events"]]
    for key in ("superseded", "conflicts"):
        assert without_details(done[key]) == without_details(shown[key])
    # One more than the revert, which puts today's default of the policy in force.
    assert answer(home, "--user", "ada", "verify") == {"ok": True, "commits": 12, "turns": 10, "problems": []}


def test_it_takes_in_what_is_new(home: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"thread_id": "friday", "id": "f9", "role": "user", "content": "And tea, please."}))
    recorded = answer(home, "--user", "ada", "record", str(more))
    assert isinstance(recorded, dict)
    assert (recorded["turns"], recorded["skipped"]) == (1, 0)
    verified = answer(home, "--user", "ada", "verify")
    assert isinstance(verified, dict)
    assert (verified["ok"], verified["turns"]) == (True, 11)
