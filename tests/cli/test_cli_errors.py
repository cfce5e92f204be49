"""How it ends when it cannot go on: one line, the right exit code, never a traceback unless it was asked for."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import subprocess
from pathlib import Path

import pytest
from commandline import Cli, said

from backstory.home import Backstory


@pytest.mark.parametrize(
    "words",
    [
        ["why"],
        ["why", "fact_2_0", "more"],
        ["show", "--nope"],
        ["show", "--at", "soon"],
        ["log", "--limit", "0"],
        ["log", "--limit", "x"],
        ["log", "--since", "never"],
        ["diff", "1"],
        ["diff", "1", "x"],
        ["revert", "x"],
        ["revert", "1"],
        ["rollback"],
        ["rollback", "--to", "-1"],
        ["what-if", "--threshold", "x"],
        ["what-if", "--threshold", "2"],
        ["what-if", "--set", "max_facts=x"],
        ["what-if", "--set", "max_facts"],
        ["what-if", "--set", "=3"],
        ["what-if", "--set", "nope=1"],
        ["policy", "--set", "max_facts=0"],
        ["policy", "--set", "fact_eviction_policy=whim"],
        ["extract", "--clock", "never"],
        ["fact"],
        ["fact", "nope"],
        ["fact", "add", " "],
        ["fact", "add", "x", "--category", " "],
        ["fact", "add", "x", "--confidence", "2"],
        ["fact", "edit", "fact_2_0"],
        ["fact", "edit", "fact_2_0", "a", "--content", "b"],
        ["why", "fact_2"],
        ["discard"],
        ["verify", "--all", "--expect-head", "x"],
        ["--agent", "a", "clear", "--all-agents"],
        ["--agent", "../x", "show"],
        ["--agent", "a/b", "show"],
        ["--agent", "a" * 65, "show"],
        ["--agent", "😀", "show"],
        ["--agent", "", "show"],
        ["--user", "", "show"],
        ["--user", "u" * 1001, "show"],
        ["--user", "\udcff", "show"],
        ["--store", "mysql://x", "show"],
        ["--config", "missing.yaml", "show"],
        ["--home", "", "show"],
        ["--nope", "show"],
        ["demo", "--keep", "."],
    ],
)
def test_wrong_use_is_2_one_line_and_one_value_with_json(story: Cli, words: list[str]) -> None:
    message = story.error(*words, code=2) if words != ["fact"] else ""
    before = story.json("head")
    error = story.json(*words, code=2)["error"]
    assert error["exit"] == 2
    assert error["message"] in message or not message
    assert story.json("head") == before


@pytest.mark.parametrize(
    "words",
    [
        ["show", "--at", "77"],
        ["diff", "0", "77"],
        ["revert", "77"],
        ["rollback", "--to", "77"],
        ["why", "fact_9"],
        ["log", "--fact", "fact_9"],
        ["turns", "t9"],
        ["extract", "--thread", "t9", "--replies", "/dev/null"],
        ["retry", "--thread", "t9", "--replies", "/dev/null"],
        ["discard", "--thread", "t9"],
        ["discard", "--thread", "t1"],
        ["fact", "get", "fact_2_1"],
        ["fact", "edit", "fact_9", "x"],
        ["fact", "remove", "fact_9"],
    ],
)
def test_what_is_not_there_is_1(story: Cli, words: list[str]) -> None:
    story.error(*words, code=1)
    assert story.json(*words, code=1)["error"]["kind"] == "NotFoundError"


def test_a_rule_outside_its_range_is_wrong_use_also_on_an_empty_memory(cli: Cli) -> None:
    for words in (["--threshold", "2"], ["--threshold", "nan"], ["--set", "max_facts=0"]):
        cli.error("what-if", *words, code=2)


def test_a_prefix_of_several_facts_is_wrong_use(story: Cli) -> None:
    assert "2 facts, fact_2_0 and fact_2_1" in story.error("why", "fact_2_", code=2)
    assert "fact_2_0" in story.run("why", "fact_2_0").stdout


@pytest.mark.parametrize(
    "user", ["../../etc", "a/b", "Ünï", "😀", "CON", ".", "a" * 300, "😀" * 300, "nul\0in it", "A"]
)
def test_any_user_id_has_a_folder_of_its_own_below_the_home(cli: Cli, user: str) -> None:
    cli.run("record", "-", piped=json.dumps(said("t", "1", "user", "mine", user_id=user)))
    if "\0" not in user:
        assert cli.json("--user", user, "turns", "t")[0]["content"] == "mine"
    assert [scope["user"] for scope in cli.json("scopes")] == [user]
    assert sorted(path.name for path in cli.folder.iterdir()) == ["home"]
    assert sorted(path.name for path in cli.home.iterdir()) == ["users"]


_TALK = '{"role":"user","content":"I moved to Bergen."}\n{"role":"assistant","content":"Good."}'


def test_no_model_is_3_and_says_what_to_do_once_there_is_something_to_do(cli: Cli) -> None:
    assert cli.json("extract") == {"updates": 0, "failed": 0, "commits": []}
    cli.run("record", "-", "--thread", "t", piped=_TALK)
    assert "OPENAI_API_KEY" in cli.error("extract", code=3)


@pytest.mark.parametrize(
    "words",
    [["record", "-", "--thread", "t"], ["fact", "add", "x"], ["clear"], ["show"], ["scopes"], ["status", "--all"]],
)
def test_a_home_that_is_a_file_is_3(cli: Cli, words: list[str]) -> None:
    cli.home.write_text("")
    message = cli.run(*words, code=3, piped='{"role":"user","content":"x"}').stderr
    assert message.count("\n") == 1
    assert str(cli.home) in message
    assert "--home" in message


def test_a_home_below_proc_is_3(tmp_path: Path) -> None:
    assert "/proc/backstory" in Cli(Path("/proc/backstory")).error("fact", "add", "x", code=3)


@pytest.mark.slow
def test_a_lock_held_elsewhere_is_3(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_FILE_LOCK_TIMEOUT_SECONDS", "1")
    with (story.home / "ledger.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "ledger.lock" in story.error("fact", "add", "x", code=3)
        assert len(story.json("fact", "list")) == 2
    story.run("fact", "add", "x")


def damage(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def test_a_corrupt_log_is_3_but_verify_answers(story: Cli) -> None:
    damage(story.home / "ledger.jsonl", b"Oslo", b"Bonn")
    for words in (["show"], ["log"], ["why", "fact_2_0"], ["fact", "add", "x"], ["scopes"]):
        message = story.error(*words, code=3)
        assert "line 2" in message
        assert "byte" in message
    assert story.json("show", code=3)["error"]["kind"] == "CorruptLogError"
    found = story.json("verify", code=1)
    assert not found["ok"]
    assert {(p["kind"], p["line"]) for p in found["problems"]} == {("altered", 2)}
    shown = story.run("verify", code=1).stdout
    assert "NOT ok" in shown
    assert shown.endswith("`doctor` says how to mend each.\n")


@pytest.mark.slow
def test_a_traceback_is_shown_with_debug_only(story: Cli) -> None:
    damage(story.home / "ledger.jsonl", b"Oslo", b"Bonn")
    assert "Traceback" not in story.process("show").stderr
    shown = story.process("--debug", "show")
    assert shown.returncode == 3
    assert "Traceback" in shown.stderr
    assert "\nbackstory: ledger: line 2" in f"\n{shown.stderr}"


def test_a_fault_of_ours_is_one_line_too(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise KeyError("x\ny\x1b[31m")

    monkeypatch.setattr(Backstory, "memory_of", fault)
    message = story.error("show", code=3)
    assert "KeyError" in message
    assert "--debug" in message
    assert "\x1b" not in message


def test_a_read_model_that_fails_is_a_warning_of_one_line(story: Cli) -> None:
    (story.home / "memory.json").unlink()
    (story.home / "memory.json").mkdir()
    result = story.run("fact", "add", "x")
    # The background and the end of the process may both try.
    assert len(set(result.stderr.splitlines())) == 1
    assert result.stderr.startswith("backstory: warning: memory.json or the index of global lags behind")
    assert "memory.json" in result.stderr


def test_nothing_is_left_behind_in_the_process(story: Cli) -> None:
    before = [*logging.getLogger().handlers], logging.getLogger("backstory").level
    story.run("--debug", "show")
    assert ([*logging.getLogger().handlers], logging.getLogger("backstory").level) == before


def test_a_document_edited_by_hand_is_reported(story: Cli) -> None:
    damage(story.home / "memory.json", b"Bergen", b"Narvik")
    assert [p["kind"] for p in story.json("verify", code=1)["problems"]] == ["document_differs"]
    assert "backstory: warning: " in story.run("fact", "add", "x").stderr


def test_a_torn_tail_is_reported_and_ok(story: Cli) -> None:
    with (story.home / "ledger.jsonl").open("ab") as file:
        file.write(b'{"v":1,"se')
    found = story.json("verify")
    assert found["ok"]
    assert [p["kind"] for p in found["problems"]] == ["torn_tail"]


# As a process of its own.


@pytest.mark.slow
def test_exit_codes_of_a_process(story: Cli) -> None:
    ended = story.process("why", "fact_2_0")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "I write Rust in Oslo." in ended.stdout
    ended = story.process("--json", "why-not", "zzz")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "[]\n", "")
    ended = story.process("nosuchverb")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    ended = story.process("--json", "--agent", "../x", "show")
    assert (ended.returncode, json.loads(ended.stdout)["error"]["kind"]) == (2, "ScopeError")
    story.run("record", "-", "--thread", "new", piped=_TALK)
    ended = story.process("extract", stdin=subprocess.DEVNULL)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(cli: Cli) -> None:
    cli.run("record", cli.file("c", *(said("t", str(n), "user", f"{n} {'x' * 500}") for n in range(1000))))
    for words in (["turns", "t"], ["--json", "turns", "t"]):
        with cli.running(*words) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert len(process.stdout.read(10)) == 10
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait(20) == 141


def test_a_reader_that_was_never_there_is_no_error_either(story: Cli) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        ended = subprocess.run(
            story.command("head"), check=False, stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_output_that_takes_nothing_is_3(story: Cli) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            story.command("show"), check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 1


def test_follow_tells_commits_as_they_come_until_it_is_interrupted(story: Cli) -> None:
    with story.running("--json", "log", "--follow", "--limit", "1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["seq"] == 3
        story.run("fact", "add", "User has a dog")
        came = json.loads(process.stdout.readline())
        assert (came["seq"], came["summary"]) == (4, "+1 fact")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == "backstory: interrupted: commit 4 is the last one that was followed\n"


@pytest.mark.slow
def test_follow_of_one_fact_passes_over_the_others(story: Cli) -> None:
    with story.running("log", "--follow", "--fact", "fact_3", "--limit", "1") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("3  ")
        story.run("fact", "remove", "fact_2_0")
        story.run("fact", "remove", "fact_3_0")
        line = process.stdout.readline()
        assert line.startswith("5  ")
        assert "by hand: remove" in line
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_help_loads_nothing_heavy(cli: Cli) -> None:
    code = (
        "import sys\n"
        "from backstory.cli.app import app\n"
        "heavy = {'openai', 'tiktoken', 'pydantic', 'msgspec', 'orjson', 'yaml', 'tenacity', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    ended = subprocess.run([cli.command()[0], "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "[]\n"
