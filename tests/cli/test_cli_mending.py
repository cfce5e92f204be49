"""`doctor`, `repair`, and `verify` of what they are about: shapes, exit codes, and what a person reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from commandline import Cli


@pytest.fixture
def damaged(story: Cli) -> Cli:
    """The story, one byte of its last commit changed."""
    ledger = story.home / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"Bergen", b"Berlin"))
    return story


def wrong(checks: list[dict[str, object]]) -> list[object]:
    assert all(list(check) == ["check", "ok", "hint"] for check in checks)
    return [check["check"] for check in checks if not check["ok"]]


def test_doctor_of_a_home_that_is_in_order(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(story.json("doctor")) == []
    assert wrong(story.json("doctor", "--model", code=1)) == ["model"]
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert wrong(story.json("doctor")) == []
    assert "NOT ok" not in story.run("doctor").stdout


def test_doctor_of_a_home_that_is_not_there(cli: Cli) -> None:
    assert wrong(cli.json("doctor")) == []
    assert not cli.home.exists()


def test_doctor_names_the_damage_and_the_way_out(damaged: Cli) -> None:
    told = damaged.run("doctor", code=1).stdout
    line = next(line for line in told.splitlines() if "altered" in line)
    assert line.startswith("NOT ok")
    assert "ledger, line 3" in line
    assert "`repair`" in line


def test_doctor_looks_at_the_scope_that_is_named(story: Cli) -> None:
    story.run("--user", "ada", "fact", "add", "Sings")
    ledger = story.home / "users/ada/ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"Sings", b"Rings"))
    assert "altered" in wrong(story.json("--user", "ada", "doctor", code=1))
    assert "must be 1 to 64" in story.error("--agent", "a/b", "doctor", code=2)
    assert "--home is empty" in story.error("--home", "", "doctor", code=2)


@pytest.mark.parametrize("text", ["memory: [", "memory:\n  max_fact: 3\n", "memory:\n  max_facts: 3\n"])
def test_doctor_works_where_the_configuration_does_not(story: Cli, text: str) -> None:
    config = story.folder / "config.yaml"
    config.write_text(text)
    assert "configuration" in wrong(story.json("--config", config, "doctor", code=1))
    assert "configuration" in wrong(story.json("--config", story.folder / "none.yaml", "doctor", code=1))
    assert "configuration" in wrong(story.json("--store", "abacus:", "doctor", code=1))


def test_repair_of_what_is_in_order(story: Cli) -> None:
    checks = story.json("repair")
    assert wrong(checks) == []
    assert [check["check"] for check in checks] == ["ledger", "transcript", "memory.json"]


def test_repair_shows_then_mends_and_memory_goes_on(damaged: Cli) -> None:
    ledger = damaged.home / "ledger.jsonl"
    before = ledger.read_bytes()
    damaged.error("fact", "add", "Sings", code=3)
    shown = damaged.json("repair", "--dry-run", code=1)
    assert wrong(shown) == ["ledger"]
    assert ledger.read_bytes() == before
    checks = damaged.json("repair")
    assert "2 commits in an intact chain kept" in checks[0]["hint"]
    assert (damaged.home / "ledger.damaged-1").read_bytes() == before
    assert damaged.json("verify")["ok"]
    damaged.run("fact", "add", "Sings")
    assert damaged.json("verify")["commits"] == 3
    assert "moved aside" in wrong(damaged.json("doctor", code=1))
    assert damaged.json("scopes")[0]["seq"] == 3


def test_repair_of_every_scope(damaged: Cli) -> None:
    damaged.run("--user", "ada", "fact", "add", "Sings")
    torn = damaged.home / "users/ada/ledger.jsonl"
    torn.write_bytes(torn.read_bytes() + b"torn")
    assert wrong(damaged.json("repair", "--all", "--dry-run", code=1)) == ["ledger", "users/ada/ledger"]
    assert wrong(damaged.json("repair", "--all")) == []
    assert all(result["ok"] for result in damaged.json("verify", "--all"))


def test_repair_tells_what_remains(story: Cli) -> None:
    transcript = story.home / "transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().splitlines(keepends=True)[0])
    assert wrong(story.json("repair", code=1)) == ["missing"]
    assert "restore the file from a copy" in story.run("repair", code=1).stdout


def test_repair_of_a_home_that_is_not_there_makes_none(cli: Cli) -> None:
    assert wrong(cli.json("repair")) == []
    assert wrong(cli.json("repair", "--all")) == []
    assert not Path(cli.home).exists()


def test_a_head_that_was_pinned_is_missed_after_a_cut(story: Cli) -> None:
    pinned = story.json("head")["hash"]
    assert story.json("verify", "--expect-head", pinned)["ok"]
    ledger = story.home / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    (story.home / "memory.json").unlink()
    assert story.json("verify")["ok"]
    problem = story.json("verify", "--expect-head", pinned, code=1)["problems"][0]
    assert (problem["kind"], problem["line"], problem["byte"]) == ("head_not_found", 0, 0)
    # `doctor` knows no pinned head.
    assert "doctor" not in story.run("verify", "--expect-head", pinned, code=1).stdout
