"""`copy` from folder to folder, as an operator sees it: what it prints, what it takes along, and kills in between."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from commandline import Cli
from fakes import PATIENCE
from sizes import LONG

from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.engines.port import Seal

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "copy.md"
COMMAND = re.compile(r"^ +\$ backstory (.*)\n((?: +(?!\$).*\n)*)", re.MULTILINE)

WRITER = """
import sys
from pathlib import Path
from backstory import Backstory, SealedError
home, user, acknowledged = sys.argv[1:]
with Backstory.open(home, background=False) as bs, Path(acknowledged).open("w") as file:
    memory = bs.memory(user)
    for number in range(1_000_000):
        try:
            memory.record("t", [{"role": "user", "content": f"{user} says {number}"}], mode="append")
        except SealedError as error:
            print(f"refused: {error}", file=file)
            break
        print(number, file=file)
        if number == 0:
            print("begun", flush=True)
"""


@pytest.fixture
def moved(story: Cli) -> Cli:
    """The command line on the home that the story has moved to."""
    story.run("copy", story.home, story.folder / "new")
    return Cli(story.folder / "new")


def test_the_page_shows_what_is_printed(cli: Cli) -> None:
    """The commands of the page, in order, on a home with one memory."""
    old = Cli(cli.folder / "old")
    talk = [
        {"id": "a1", "role": "user", "content": "I write Rust in Oslo."},
        {"role": "assistant", "content": "Noted."},
    ]
    (cli.folder / "talk.json").write_text(json.dumps(talk))
    old.run("--user", "ada", "record", cli.folder / "talk.json", "--thread", "t1")
    for content in ("Ada writes Rust", "Ada lives in Oslo", "Ada has a cat", "Ada sails", "Ada likes coffee"):
        old.run("--user", "ada", "fact", "add", content)
    shown = COMMAND.findall(PAGE.read_text(encoding="utf-8"))
    assert len(shown) == 3
    for command, printed in shown:
        words = re.findall(r'"([^"]*)"|(\S+)', command.replace("/srv", str(cli.folder)))
        result = subprocess.run(
            [sys.executable, "-m", "backstory.cli", *(quoted or word for quoted, word in words)],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        expected = "".join(f"{line.strip()}\n" for line in printed.splitlines())
        assert (result.stdout + result.stderr).replace(str(cli.folder), "/srv") == expected


def test_the_copy_is_verified_and_goes_on(story: Cli, moved: Cli) -> None:
    assert moved.json("log") == story.json("log")
    assert moved.json("show") == story.json("show")
    assert moved.json("head") == story.json("head")
    assert moved.json("verify", "--all")[0]["ok"]
    moved.run("fact", "add", "User sails")
    assert moved.json("verify")["ok"]
    assert story.json("verify")["ok"]


def test_the_source_says_where_it_went_and_still_answers(story: Cli, moved: Cli) -> None:
    for words in (
        ("fact", "add", "User sails"),
        ("revert", "3"),
        ("clear",),
        ("forget", "--fact", "fact_2_0", "--yes"),
    ):
        said = story.error(*words, code=3)
        assert f"jsonl:{story.home} has moved to jsonl:{moved.home} and takes no changes: use that one" in said
    assert story.json("search", "Rust")


def test_doctor_says_of_a_sealed_home_where_to_go(story: Cli, moved: Cli) -> None:
    def seal(cli: Cli, code: int) -> list[dict[str, object]]:
        return [check for check in cli.json("doctor", code=code) if check["check"] == "seal"]

    hint = f"jsonl:{story.home} has moved to jsonl:{moved.home} and takes no changes: use that one"
    assert seal(story, 1) == [{"check": "seal", "ok": False, "hint": hint}]
    assert seal(moved, 0) == []


def test_json_tells_what_was_copied(story: Cli) -> None:
    told = story.json("copy", story.home, f"jsonl:{story.folder / 'new'}")
    assert told == {
        "source": f"jsonl:{story.home}",
        "target": f"jsonl:{story.folder / 'new'}",
        "streams": 2,
        "commits": 5,
        "new": 5,
        "files": [],
        "kept": [],
    }


def test_files_beside_the_logs_go_along_unless_the_target_has_its_own(story: Cli) -> None:
    story.run("--user", "ada", "fact", "add", "Ada sails")
    story.run("token", "add", "ci", "--for", "ada")
    ada = story.home / "users" / "ada"
    (ada / "access.json").write_text("{}")
    (ada / "memory.json.edited-1").write_text("by hand")
    (ada / "ledger.torn-1").write_text("torn")
    (story.home / "host.json").write_text("{}")
    new = story.folder / "new"
    new.mkdir()
    (new / "host.json").write_text("own")
    told = story.json("copy", story.home, new)
    assert told["files"] == [
        "tokens.json",
        *(f"users/ada/{name}" for name in ("access.json", "memory.json.edited-1", "ledger.torn-1")),
    ]
    assert told["kept"] == ["host.json"]
    for name in told["files"]:
        assert (new / name).read_bytes() == (story.home / name).read_bytes()
        assert (new / name).stat().st_mode & 0o777 == 0o600
    assert (new / "host.json").read_text() == "own"
    assert not (new / "users/ada/memory.json").exists()


@pytest.mark.parametrize(("source", "target", "code", "said"), [
    ("home", "home", 2, "cannot be copied to itself"),
    ("home", "home/inside", 2, "overlap: name a folder that is neither the same nor inside"),
    ("nowhere", "new", 1, "holds no memories: name the home to copy from"),
    ("home", "other://host/db", 2, "event_store must be"),
    ("", "new", 2, "got an empty text"),
])  # fmt: skip
def test_what_cannot_be_copied_is_refused(story: Cli, source: str, target: str, code: int, said: str) -> None:
    named = [name if not name or "://" in name else story.folder / name for name in (source, target)]
    assert said in story.error("copy", *named, code=code)
    story.run("fact", "add", "User sails")


def test_an_incomplete_copy_is_not_opened_and_can_be_given_up(story: Cli) -> None:
    new = Cli(story.folder / "new")
    source = JsonlStore(story.home)
    JsonlStore(new.home).set_seal(Seal("arriving", str(source)))
    source.set_seal(Seal("moved", f"jsonl:{new.home}"))
    for words in (("show",), ("fact", "add", "User sails"), ("scopes",)):
        assert f"jsonl:{new.home} is an incomplete copy of {source}: run" in new.error(*words, code=3)
    given_up = story.run("copy", story.home, new.home, "--cancel").stdout
    assert given_up.startswith(f"jsonl:{story.home} takes changes again.\n")
    story.run("fact", "add", "User sails")
    assert "there is nothing to cancel" in story.error("copy", story.home, new.home, "--cancel", code=1)
    story.run("copy", story.home, new.home)
    assert new.json("show") == story.json("show")


def test_a_user_that_was_removed_is_removed_in_the_copy(story: Cli) -> None:
    story.run("--user", "ada", "fact", "add", "Ada sails")
    story.run("--user", "ada", "forget", "--whole-user", "--yes")
    new = Cli(story.folder / "new")
    story.run("copy", story.home, new.home)
    marks = sorted(path.name for path in (story.home / "removed").glob("*.json"))
    assert sorted(path.name for path in (new.home / "removed").glob("*.json")) == marks != []
    assert [scope["user"] for scope in new.json("scopes")] == [None]


@pytest.mark.slow
def test_a_copy_killed_again_and_again_loses_nothing_that_processes_record_meanwhile(cli: Cli) -> None:
    users = ("ada", "bob")
    new = Cli(cli.folder / "new")
    acknowledged = [cli.folder / user for user in users]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, cli.home, user, file], stdout=subprocess.PIPE, text=True)
        for user, file in zip(users, acknowledged, strict=True)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "begun\n"
        for seconds in (*((0.3, 0.5, 0.7) if LONG else (0.5,)), PATIENCE):
            with cli.running("copy", cli.home, new.home) as process, suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
        assert process.returncode == 0
        for writer in writers:
            writer.wait(PATIENCE)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    for user, file in zip(users, acknowledged, strict=True):
        lines = file.read_text().splitlines()
        assert lines[-1].startswith(f"refused: jsonl:{cli.home} has moved to jsonl:{new.home} ")
        said = [turn["content"] for turn in new.json("--user", user, "turns", "t")]
        assert said == [f"{user} says {number}" for number in range(len(lines) - 1)]
        assert new.json("--user", user, "verify")["ok"]
