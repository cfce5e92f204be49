"""`--all`: every user and agent of a home, also where one of them is damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commandline import Cli, fact, reply, said
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.scope import Scope

OWNERS = [(None, None), ("ada", None), ("ada", "bot"), ("Ünï/..", None), ("u" * 300, None)]


@pytest.fixture
def home(cli: Cli) -> Cli:
    """Five memories, each with one conversation that waits."""
    rows = [
        said("t", f"{n}{role}", role, "I like tea.", user_id=user, agent_name=agent)
        for n, (user, agent) in enumerate(OWNERS)
        for role in ("user", "assistant")
    ]
    cli.run("record", cli.file("c", *rows))
    return cli


def owners_of(rows: list[dict[str, object]]) -> set[tuple[object, object]]:
    return {(row["user"], row["agent"]) for row in rows}


def test_status_of_all(home: Cli) -> None:
    states = home.json("status", "--all")
    assert owners_of(states) == set(OWNERS)
    assert all(state["pending"][0]["turns"] == 2 for state in states)
    assert len(home.run("status", "--all").stdout.splitlines()) == 1 + len(OWNERS)


@pytest.mark.slow
def test_extract_all_with_a_model(home: Cli, model) -> None:
    model(lambda _: json.dumps({"newFacts": [fact("Likes tea")]}))
    results = home.json("extract", "--all")
    assert owners_of(results) == set(OWNERS)
    assert all(result["commits"] == [2] for result in results)
    assert [scope["facts"] for scope in home.json("scopes")] == [1] * len(OWNERS)
    assert all(result["updates"] == 0 for result in home.json("extract", "--all"))


def test_each_recorded_reply_is_given_to_one_scope_only(home: Cli) -> None:
    replies = home.file("r", reply("other", fact("x")), *(reply("t", fact(f"Likes tea {n}")) for n in range(2)))
    result = home.run("--json", "extract", "--all", "--replies", replies)
    assert [row["updates"] for row in json.loads(result.stdout)] == [1, 1, 0, 0, 0]
    assert result.stderr.count("\n") == 1
    assert "thread other" in result.stderr
    assert sorted(scope["facts"] for scope in home.json("scopes")) == [0, 0, 0, 1, 1]


def test_extract_all_of_one_thread_passes_over_who_has_none(home: Cli) -> None:
    rows = [said("mine", role, role, "I like coffee.", user_id="ada") for role in ("user", "assistant")]
    home.run("record", home.file("more", *rows))
    replies = home.file("r", reply("mine", fact("Likes coffee")), reply("t", fact("Likes tea")))
    results = home.json("extract", "--all", "--thread", "mine", "--replies", replies)
    assert [(row["user"], row["agent"], row["updates"]) for row in results] == [("ada", None, 1)]


def test_a_failure_in_one_scope_is_exit_1(home: Cli) -> None:
    broken = home.file("r", reply("t", fact("Likes tea")), {"thread_id": "t", "reply": "{oh"})
    results = home.json("extract", "--all", "--replies", broken, code=1)
    assert [row["failed"] for row in results] == [0, 1, 0, 0, 0]


def test_verify_all_goes_on_behind_damage(home: Cli) -> None:
    for owner in ([], ["--user", "ada"]):
        home.run(*owner, "fact", "add", "Likes tea")
    assert all(result["ok"] for result in home.json("verify", "--all"))
    for path in ("users/ada/ledger.jsonl", "users/ada/transcript.jsonl"):
        spoil(home.home / path)
    results = home.json("verify", "--all", code=1)
    assert owners_of(results) == set(OWNERS)
    assert [(row["user"], row["agent"]) for row in results if not row["ok"]] == [("ada", None)]
    assert set(results[0]) == {"user", "agent", "ok", "commits", "turns", "problems"}
    shown = home.run("verify", "--all", code=1).stdout
    assert shown.count("NOT ok") == 1
    assert shown.endswith("`doctor` says how to mend each.\n")
    assert "users/ada/ledger" in shown


def test_a_scope_whose_name_can_be_read_nowhere_is_an_error(home: Cli) -> None:
    (folder,) = (home.home / "users").glob("*__*")
    spoil(folder / "transcript.jsonl")
    assert folder.name in home.error("verify", "--all", code=3)


def test_a_log_copied_to_another_scope_is_found_out_and_one_copied_to_none_is_passed_over(home: Cli) -> None:
    home.run("fact", "add", "Likes tea")
    for folder in ("agents/copied", "backup", "users/x__y"):
        (home.home / folder).mkdir(parents=True)
        shutil.copy(home.home / "ledger.jsonl", home.home / folder)
    assert "the log of global, not of agent copied" in home.error("scopes", code=3)
    results = home.json("verify", "--all", code=1)
    assert [(row["user"], row["agent"]) for row in results if not row["ok"]] == [(None, "copied")]
    assert len(results) == len(OWNERS) + 1


def spoil(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"{", b"(", 1))


@given(st.text(min_size=1, max_size=60).filter(lambda t: t.isprintable()), st.sampled_from([None, "bot", "A-1"]))
def test_a_folder_names_its_scope(user: str, agent: str | None) -> None:
    scope = Scope.of(user, agent)
    found = Scope.in_folder(scope.folder)
    assert found == (None if "__" in scope.folder else scope)


@pytest.mark.parametrize(
    "folder", ["x", "users", "users/A", "users/a/b", "agents/a/users/b", "users/a/agents/b/c", "/"]
)
def test_other_folders_are_no_scopes(folder: str) -> None:
    assert Scope.in_folder(folder) is None
    assert Scope.in_folder("") == Scope()
    assert Scope.in_folder("agents/a") == Scope(None, "a")


def test_scopes_in_full_say_what_waits_and_which_are_full(home: Cli) -> None:
    home.run("--user", "ada", "policy", "--set", "max_facts=10")
    for number in range(10):
        home.run("--user", "ada", "fact", "add", f"Likes tea number {number}")
    states = home.json("scopes", "--long")
    assert {(one["user"], one["agent"]) for one in states} == set(OWNERS)
    told = home.run("scopes", "--long").stdout.splitlines()
    assert told[0].split() == ["USER", "AGENT", "SEQ", "FACTS", "TURNS", "PENDING", "PARKED"]
    (full,) = [line.split() for line in told if line.endswith("full")]
    assert (full[0], full[3], full[5]) == ("ada", "10", "2")
    assert home.run("status", "--all").stdout.splitlines() == told


def test_the_log_of_all_memories_names_whose_each_commit_is_the_newest_first(home: Cli) -> None:
    home.run("--user", "ada", "fact", "add", "Likes tea")
    home.run("--user", "ada", "--agent", "bot", "fact", "add", "Likes rye")
    home.run("--user", "ada", "clear")
    told = home.json("log", "--all")
    assert (told[0]["user"], told[0]["agent"], told[0]["cause"]["kind"]) == ("ada", None, "clear")
    assert [one["at"] for one in told] == sorted((one["at"] for one in told), reverse=True)
    assert [one["agent"] for one in home.json("log", "--all", "--kind", "manual")] == ["bot", None]
    assert home.json("log", "--all", "--limit", "1") == told[:1]
    assert home.json("log", "--all", "--by", "nobody at all") == []
    assert home.run("log", "--all").stdout.splitlines()[0].split()[:3] == ["USER", "AGENT", "SEQ"]


def test_the_log_of_one_memory_can_be_limited_to_a_kind_and_an_author(home: Cli) -> None:
    for fact_text in ("Likes tea", "Likes rye"):
        home.run("--user", "ada", "fact", "add", fact_text)
    log = home.json("--user", "ada", "log")
    assert {one["cause"]["kind"] for one in log} == {"genesis", "manual"}
    assert [one["seq"] for one in home.json("--user", "ada", "log", "--kind", "manual", "--limit", "1")] == [3]
    actor = log[0]["cause"]["actor"]
    assert [one["seq"] for one in home.json("--user", "ada", "log", "--by", actor.upper())] == [3, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--kind", "clean"], "--kind must be one of genesis, extraction"),
        (["--all", "--fact", "fact_2_0"], "leave out --all"),
        (["--all", "--follow"], "leave out --all, --kind and --by"),
    ],
)
def test_a_log_that_cannot_be_is_wrong_use(home: Cli, words: list[str], told: str) -> None:
    assert told in home.error("log", *words, code=2)
