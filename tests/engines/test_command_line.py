"""The command line on every engine: each verb answers as with files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from commandline import Cli, fact, reply, said
from fakes import open_home
from homes import ENGINES, HomesOn
from sizes import LONG
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.ledger.engines.copying import copy_streams
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.testing.lines import chain

STORED = Path(__file__).parents[1] / "stored_home" / "home"
"""A home with the demo's story and more, for a user with an agent."""

QUESTIONS = [
    "show --at 3",
    "log --limit 2",
    "search dinner --in turns",
    "verify",
    "why fact_2_0",
    "diff 2 5",
    "forget --whole-user --dry-run",
]
"""Each reads another part of what an engine keeps."""
MORE_QUESTIONS = [
    "show",
    "fact list",
    "log",
    "threads",
    "search dinner",
    "context --for dinner --max-tokens 200",
    "head",
    "status",
    "policy",
    "why-not peanuts",
    "graph",
    "what-if --max-facts 2",
    "rollback --to 2 --dry-run",
    "forget --all --dry-run",
    "why fact_2_1",
    "fact get fact_2_1",
    "log --thread monday",
    "turns monday",
    "turns friday --superseded",
    "graph --messages",
    "revert 3 --dry-run",
    "forget --matching Oslo --dry-run",
]


ASKED: Sequence[Sequence[str]] = [
    *(("--user", "ada", *words.split()) for words in (*QUESTIONS, *(MORE_QUESTIONS if LONG else ()))),
    *(("--user", "ada", "--agent", "coder", *words) for words in (("show",), ("turns", "work"))),
    ("scopes",),
    ("verify", "--all"),
    ("--user", "adda", "show"),
]
DOCTOR = ("--user", "ada", "doctor")


@pytest.fixture
def cli(chosen: HomesOn, tmp_path: Path) -> Cli:
    """The command line on the stored home, whose streams were copied to the engine."""
    with open_home(tmp_path / "home", **chosen.settings) as bs:
        source = JsonlStore(shutil.copytree(STORED, tmp_path / "source"))
        copy_streams(source, bs.store, lambda _done, _total: None)
        source.close()
    return Cli(tmp_path / "home")


def answered(cli: Cli, words: Sequence[str]) -> tuple[int, object]:
    """Return the exit code of a command and its answer, without where the files are and how many."""
    done = CliRunner().invoke(app, ["--home", str(cli.home), "--json", *words])
    answer = json.loads(done.stdout)
    if isinstance(answer, dict):
        answer = {key: value for key, value in answer.items() if key not in ("store", "files", "bytes")}
    return done.exit_code, answer


@pytest.fixture(scope="module")
def with_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Sequence[str], tuple[int, object]]:
    """What is answered of the stored home in files."""
    home = shutil.copytree(STORED, tmp_path_factory.mktemp("told") / "home")
    with pytest.MonkeyPatch.context() as surroundings:
        for name in [name for name in os.environ if name.startswith(("BACKSTORY_", "OPENAI_"))]:
            surroundings.delenv(name)
        return {words: answered(Cli(home), words) for words in (*ASKED, DOCTOR)}


@pytest.mark.parametrize("engine", ENGINES if LONG else ["postgres", "nats"], indirect=True)
def test_every_question_is_answered_as_with_files(
    cli: Cli, with_files: Mapping[Sequence[str], tuple[int, object]]
) -> None:
    for words in ASKED:
        assert answered(cli, words) == with_files[words], words


def test_doctor_looks_at_the_memories_of_the_engine(
    cli: Cli, with_files: Mapping[Sequence[str], tuple[int, object]]
) -> None:
    checks, expected = (
        {check["check"]: check for check in answer}  # type: ignore[attr-defined]
        for _, answer in (answered(cli, DOCTOR), with_files[DOCTOR])
    )
    assert checks["logs"]["hint"] == "2 scopes were verified"
    assert "torn tails" not in checks
    for name in ("logs", "parked updates", "model"):
        assert checks[name] == expected[name]


def test_doctor_finds_a_commit_that_is_damaged_in_the_engine(chosen: HomesOn, tmp_path: Path) -> None:
    first, second, last = chain(3)
    with open_home(tmp_path / "home", **chosen.settings) as bs:
        bs.store.append("users/ada/transcript", [first, second.replace(b"said 2", b"SAID 2"), last], 0)
    checks = Cli(tmp_path / "home").json("doctor", code=1)
    found = [check["hint"] for check in checks if check["check"] == "altered"]
    assert any("users/ada/transcript, line 2" in hint for hint in found), checks


def test_doctor_names_copies_of_memories_that_the_engine_does_not_have(cli: Cli) -> None:
    cli.json("--user", "ada", "show")
    assert {check["check"]: check["ok"] for check in cli.json("doctor", code=1)}["copies"]
    lost = cli.home / "users" / "lost"
    lost.mkdir()
    (lost / "memory.json").write_text("{}", encoding="utf-8")
    (check,) = [check for check in cli.json("doctor", code=1) if check["check"] == "copies"]
    assert not check["ok"]
    assert check["hint"].startswith("users/lost: ")


def test_repair_says_that_there_are_no_files_to_mend(cli: Cli) -> None:
    assert "repair mends files, and " in cli.error("repair", code=2)


def test_an_unknown_user_is_told_the_nearest(cli: Cli) -> None:
    assert "the nearest user is 'ada'" in cli.run("--user", "adda", "show").stderr


@pytest.mark.usefixtures("chosen")
def test_it_learns_goes_wrong_explains_and_is_put_right(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "home")
    talk = [
        said("t1", "a1", "user", "I live in Oslo, and my PIN is 4711."),
        said("t1", "a2", "assistant", "Noted."),
        said("t2", "b1", "user", "My sister moved to Bergen."),
        said("t2", "b2", "assistant", "Good."),
    ]
    cli.run("record", cli.file("said.jsonl", *talk))
    wrong = reply("t2", fact("User lives in Bergen"), factsToRemove=[{"id": "fact_2_0", "replacementFactIndex": 0}])
    learned = reply("t1", fact("User lives in Oslo", evidence=["a1"]), fact("The PIN is 4711"))
    cli.run("extract", "--replies", cli.file("replies.jsonl", learned, wrong))
    assert "t1" in cli.run("why", "fact_2_0").stdout
    assert cli.json("why", "fact_2_0")["live"] is False
    cli.run("revert", "3")
    assert cli.json("why", "fact_2_0")["live"] is True
    cli.run("forget", "--matching", "4711", "--yes")
    assert "4711" not in cli.run("export").stdout + cli.run("log").stdout + cli.run("turns", "t1").stdout
    assert cli.json("verify")["ok"] is True
    assert cli.json("what-if", "--max-facts", "10") is not None
    document = (cli.home / "memory.json").read_bytes()
    assert b"Oslo" in document
    shutil.rmtree(cli.home)
    assert "User lives in Oslo" in cli.run("show").stdout
    assert (cli.home / "memory.json").read_bytes() == document
