"""`forget --whole-user`: what an operator types who answers a request for deletion."""

from __future__ import annotations

import json
import os

import pytest
from commandline import Cli, said


@pytest.fixture
def home(cli: Cli) -> Cli:
    cli.run("--user", "ada", "record", cli.file("c", said("t", "1", "user", "I like tea.")))
    cli.run("--user", "ada", "fact", "add", "Likes tea")
    cli.run("--user", "ada", "--agent", "coder", "fact", "add", "Writes Rust")
    cli.run("--user", "bob", "fact", "add", "Likes coffee")
    return cli


def test_a_user_is_removed_with_all_agents(home: Cli) -> None:
    removed = home.json("--user", "ada", "forget", "--whole-user", "--yes")
    assert removed["user"] == "ada"
    counts = [(one["agent"], one["commits"], one["facts"], one["turns"]) for one in removed["scopes"]]
    assert counts == [("coder", 2, 1, 0), (None, 2, 1, 1)]
    assert [scope["user"] for scope in home.json("scopes")] == ["bob"]
    assert not (home.home / "users/ada").exists()
    shown = home.run("--json", "--user", "ada", "show")
    assert json.loads(shown.stdout)["facts"] == []
    assert "no user 'ada' is known" in shown.stderr
    assert [check["check"] for check in home.json("doctor") if not check["ok"]] == []
    assert all(result["ok"] for result in home.json("verify", "--all"))


def test_doctor_names_a_removal_that_was_interrupted(home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space")))
    assert "No space" in home.error("--user", "ada", "forget", "--whole-user", "--yes", code=3)
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home.folder))
    (gone,) = (home.home / "removed").glob("*.gone")
    os.utime(gone, (0, 0))
    (check,) = (check for check in home.json("doctor", code=1) if check["check"] == "left over")
    assert not check["ok"]
    assert f"removed/{gone.name}" in check["hint"]
    assert "--whole-user" in check["hint"]
    assert home.json("--user", "ada", "forget", "--whole-user", "--yes")["scopes"] == []
    assert not gone.exists()


def test_a_dry_run_lists_and_removes_nothing(home: Cli) -> None:
    shown = home.run("--user", "ada", "forget", "--whole-user", "--dry-run").stdout
    assert "coder" in shown
    assert "user ada with 2 memories in " in shown
    assert "dry run" in shown
    assert home.json("--user", "ada", "fact", "list")


def test_it_needs_yes_or_a_terminal(home: Cli) -> None:
    assert "--yes" in home.error("--user", "ada", "forget", "--whole-user", code=2)
    assert home.json("--user", "ada", "fact", "list")


def test_one_thing_at_a_time_and_a_user_alone(home: Cli) -> None:
    assert "--whole-user" in home.error("--user", "ada", "forget", "--yes", code=2)
    assert "exactly one" in home.error("--user", "ada", "forget", "--whole-user", "--all", "--yes", code=2)
    assert "needs --user" in home.error("forget", "--whole-user", "--yes", code=2)
    agent = ["--user", "ada", "--agent", "coder"]
    assert "all of the user's agents" in home.error(*agent, "forget", "--whole-user", "--yes", code=2)
    assert len(home.json("scopes")) == 3


def test_an_unknown_user_is_exit_1_and_the_nearest_is_named(home: Cli) -> None:
    for words in (["--yes"], ["--dry-run"]):
        message = home.error("--user", "Ada", "forget", "--whole-user", *words, code=1)
        assert "the nearest user is 'ada'" in message
    home.run("--user", "ada", "forget", "--whole-user", "--yes")
    assert "no user 'ada' is known" in home.error("--user", "ada", "forget", "--whole-user", "--yes", code=1)


def test_what_the_witness_has_is_said(home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    witness = home.folder / "witness"
    monkeypatch.setenv("BACKSTORY_WITNESS", str(witness))
    shown = home.run("--user", "ada", "forget", "--whole-user", "--yes").stdout
    assert f"the witness {witness} keeps the user's name" in shown


def test_log_follow_ends_where_the_user_is_removed(home: Cli) -> None:
    with home.running("--user", "ada", "log", "--follow", "--limit", "5") as following:
        assert following.stdout is not None
        home.run("--user", "ada", "fact", "add", "Likes rain")
        # What it shows now it has read from the log that is removed.
        assert any(line.startswith("3  ") for line in iter(following.stdout.readline, ""))
        home.run("--user", "ada", "forget", "--whole-user", "--yes")
        assert following.wait(30) == 0
        assert following.stderr is not None
        assert "the memory of user ada was removed" in following.stderr.read()
