"""Whose memory a command is about: unknown names, look-alikes, and the names that the environment gives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from commandline import Cli, said

from backstory.home import Backstory
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.nats.connection import NatsConnection

READS = [
    ["show"],
    ["log"],
    ["search", "tea"],
    ["context"],
    ["fact", "list"],
    ["threads"],
    ["status"],
    ["head"],
    ["export"],
    ["verify"],
]


@pytest.fixture
def home(cli: Cli) -> Cli:
    for owner in (["--user", "ada"], ["--user", "ada", "--agent", "coder"], ["--user", "Bob Example"]):
        cli.run(*owner, "fact", "add", "Likes tea")
    return cli


def notes(cli: Cli, *words: object, code: int = 0) -> list[str]:
    return cli.run(*words, code=code).stderr.splitlines()


# Unknown names.


@pytest.mark.parametrize("verb", READS, ids=" ".join)
def test_reading_an_unknown_user_says_so_and_names_the_nearest(home: Cli, verb: list[str]) -> None:
    result = home.run("--user", "adda", *verb, code=1 if verb[0] == "search" else 0)
    note = f"backstory: no user 'adda' is known in {home.home}; the nearest user is 'ada'"
    assert result.stderr.splitlines() == [note]
    assert not (home.home / "users/adda").exists()


def test_an_unknown_user_is_an_empty_document_as_before(home: Cli) -> None:
    result = home.run("--json", "--user", "adda", "show")
    assert json.loads(result.stdout)["facts"] == []


def test_why_of_an_unknown_user_keeps_its_exit_code(home: Cli) -> None:
    found = notes(home, "--user", "adda", "why", "fact_2_0", code=1)
    assert "no user 'adda'" in found[0]
    assert "no fact" in found[1]
    assert "no user 'adda'" in notes(home, "--user", "adda", "why-not", "tea", code=1)[0]


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("Ada", "'ada'"),
        ("ada ", "'ada'"),
        ("аdа", "'ada'"),
        ("Âda", "'ada'"),
        ("ａｄａ", "'ada'"),
        ("bob example", "'Bob Example'"),
        ("Bob_Example", "'Bob Example'"),
        ("b0b example", "'Bob Example'"),
    ],
)
def test_case_and_look_alikes_are_near(home: Cli, asked: str, nearest: str) -> None:
    (note,) = notes(home, "--user", asked, "show")
    assert note.endswith(f"the nearest user is {nearest}")


def test_letters_that_look_the_same_are_told_apart(home: Cli) -> None:
    (note,) = notes(home, "--user", "аdа", "show")
    assert r"no user '\u0430d\u0430' is known" in note


def test_without_a_near_one_no_name_is_made_up(home: Cli) -> None:
    (note,) = notes(home, "--user", "zygmunt", "show")
    assert note == f"backstory: no user 'zygmunt' is known in {home.home}"


def test_an_empty_home_knows_nobody(cli: Cli) -> None:
    assert notes(cli, "--user", "ada", "show") == [f"backstory: no user 'ada' is known in {cli.home}"]
    assert notes(cli, "show") == []
    assert not cli.home.exists()


def test_on_another_engine_than_files_the_engine_is_named(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"memory": {"storage_class": "doubles.other_engine:OtherEngine"}}))
    engine = f"other:{cli.home.name}"
    elsewhere = ("--config", config, "--user", "ada")
    assert notes(cli, *elsewhere, "show") == [f"backstory: no user 'ada' is known in {engine}"]
    assert f"no user 'ada' is known in {engine}" in cli.error(*elsewhere, "forget", "--whole-user", "--yes", code=1)


def test_an_unknown_agent_is_named_beside_the_agents_of_its_user(home: Cli) -> None:
    (note,) = notes(home, "--user", "ada", "--agent", "Codr", "show")
    assert "user ada has no agent 'Codr'; the nearest agent is 'coder'" in note
    (note,) = notes(home, "--user", "Bob Example", "--agent", "coder", "show")
    assert "nearest" not in note
    (note,) = notes(home, "--user", "Ada", "--agent", "coder", "show")
    assert "no user 'Ada'" in note
    home.run("--agent", "planner", "fact", "add", "x")
    assert "the global memory has no agent 'planer'" in notes(home, "--agent", "planer", "show")[0]


def test_a_known_name_is_not_spoken_of(home: Cli) -> None:
    home.run("record", home.file("c", said("t", "1", "user", "hi", user_id="eve", agent_name="b")))
    for owner in (["--user", "ada"], ["--user", "ada", "--agent", "coder"], ["--user", "eve"]):
        assert notes(home, *owner, "show") == []


def test_a_damaged_memory_is_known(home: Cli) -> None:
    log = home.home / "users/ada/ledger.jsonl"
    log.write_bytes(log.read_bytes()[:-9] + b"damaged!\n")
    assert not any("no user" in line for line in notes(home, "--user", "ada", "verify", code=1))


def test_a_folder_without_a_log_is_nobody(home: Cli) -> None:
    (home.home / "users/adaa").mkdir()
    (note,) = notes(home, "--user", "adaaa", "show")
    assert note.endswith("the nearest user is 'ada'")


def test_what_creates_a_memory_says_so_only_beside_a_similar_name(home: Cli) -> None:
    verbs = {
        "wxyz": ["fact", "add", "x"],
        "ghqk": ["record", home.file("c", said("t", "1", "user", "hi"))],
        "mnvu": ["import", home.file("d", {"facts": []})],
        "jrtf": ["policy", "--set", "max_facts=50"],
    }
    for far, verb in verbs.items():
        assert notes(home, "--user", far, *verb) == []
        (note,) = notes(home, "--user", f"{far}{far}".upper()[:6], *verb)
        assert note.endswith(f"the nearest user is '{far}'; a new memory is created")


def test_no_log_is_opened_to_find_the_nearest(home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        Scope(f"user-{number}")
        (home.home / "users" / f"user-{number}").mkdir()
    looked: list[object] = []
    known = Backstory.open

    def opened(*args: object, **more: object) -> Backstory:
        bs = known(*args, **more)
        head = bs.store.head
        monkeypatch.setattr(bs.store, "head", lambda stream: looked.append(stream) or head(stream))
        monkeypatch.setattr(bs, "owners", lambda: pytest.fail("every log was listed"))
        return bs

    monkeypatch.setattr(Backstory, "open", opened)
    assert "user" in notes(home, "--user", "user-x", "show")[0]
    assert len(looked) < 40


# The environment.


def test_the_environment_names_the_user_and_the_agent(home: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    home.run("--user", "eve", "fact", "add", "Likes rye")
    monkeypatch.setenv("BACKSTORY_USER", "ada")
    monkeypatch.setenv("BACKSTORY_AGENT", "coder")
    state = home.json("status")
    assert (state["user"], state["agent"]) == ("ada", "coder")
    shown = home.run("status").stdout.splitlines()[0]
    assert shown == "The memory of user ada, agent coder (from BACKSTORY_USER and BACKSTORY_AGENT)"
    monkeypatch.delenv("BACKSTORY_AGENT")
    assert home.json("--user", "eve", "fact", "list")[0]["content"] == "Likes rye"
    assert home.run("--user", "eve", "status").stdout.splitlines()[0] == "The memory of user eve"


def test_config_says_where_the_names_come_from(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cli.json("config")
    assert found["user"] == found["agent"] == {"value": None, "from": "default"}
    monkeypatch.setenv("BACKSTORY_USER", "ada")
    found = cli.json("--agent", "coder", "config")
    assert found["user"] == {"value": "ada", "from": "environment"}
    assert found["agent"] == {"value": "coder", "from": "argument"}


def test_an_empty_variable_names_nobody(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_USER", "")
    monkeypatch.setenv("BACKSTORY_AGENT", "")
    assert cli.json("status")["user"] is None


def test_lines_of_others_than_the_environments_user_are_an_error_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_USER", "ada")
    file = cli.file("c", said("t", "1", "user", "hi", user_id="eve"))
    assert "user eve (1)" in cli.error("record", file, code=2)
    assert cli.json("record", file, "--users-from-file")["scopes"][0]["user"] == "eve"


def test_help_names_the_variables(cli: Cli) -> None:
    shown = cli.run("--help").stdout
    assert "BACKSTORY_USER" in shown
    assert "BACKSTORY_AGENT" in shown


def test_the_demo_does_not_use_the_names_of_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_AGENT", "coder")
    kept: Path = cli.folder / "story"
    cli.run("demo", "--keep", kept)
    assert list(kept.rglob("users"))
    assert not list(kept.rglob("agents"))


@pytest.mark.parametrize("verb", READS, ids=" ".join)
def test_without_a_user_where_only_users_have_memories_they_are_named(home: Cli, verb: list[str]) -> None:
    told = home.run(*verb, code=1 if verb[0] in ("search", "verify") else 0).stderr
    assert "nothing was recorded without a user; the users here are 'Bob Example', 'ada': name one with --user" in told


def test_without_a_user_where_there_is_a_global_memory_nothing_is_said(home: Cli) -> None:
    home.run("fact", "add", "Water boils at 100 degrees")
    for verb in (["show"], ["log"], ["status"], ["verify"]):
        assert home.run(*verb).stderr == ""


def test_in_an_empty_home_verify_has_nothing_to_complain_of(cli: Cli) -> None:
    assert cli.run("verify").stderr == ""


def test_an_engine_that_is_away_is_waited_for_at_most_twice(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []

    async def connect(_: object) -> None:
        waited.append(1)
        await asyncio.sleep(0.05)
        raise StoreError("away")

    monkeypatch.setattr(NatsConnection, "_connect", connect)
    assert "away" in cli.run("--store", "nats://127.0.0.1:1", "--user", "ada", "show", code=3).stderr
    # At the opening of the home, and for the verb.
    assert len(waited) == 2
