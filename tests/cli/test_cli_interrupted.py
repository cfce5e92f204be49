"""Ctrl-C: exit 130, and one line that says what stays to be done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable

import pytest
from commandline import Cli, said

from backstory import MemoryHandle
from backstory.ledger.engines.jsonl.store import JsonlStore

pytestmark = pytest.mark.slow  # processes: more than an inner loop needs

Model = Callable[[Callable[[str], str]], None]


def interrupted(cli: Cli, model: Model, *words: object, at_call: int = 1) -> str:
    """Interrupt a verb while it waits for the model; returns the line that it says."""
    calls: list[str] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(cli.command(*words), stdout=pipe, stderr=pipe, text=True, env=dict(os.environ)) as process:

        def answer(prompt: str) -> str:
            calls.append(prompt)
            if len(calls) == at_call:
                process.send_signal(signal.SIGINT)
                process.wait(30)
            return '{"newFacts": []}'

        model(answer)
        out, said_last = process.communicate(timeout=50)
    assert (process.returncode, out) == (130, "")
    assert said_last.count("\n") == 1, said_last
    return said_last


@pytest.fixture
def waiting(cli: Cli) -> Cli:
    """Three threads, of two turns each."""
    rows = [said(t, f"{t}{n}", who, f"I like {t}.") for t in "abc" for n, who in enumerate(["user", "assistant"])]
    cli.run("--user", "ada", "record", cli.file("said", *rows))
    return cli


def test_extract_says_what_stays_pending(waiting: Cli, model: Model) -> None:
    line = interrupted(waiting, model, "--user", "ada", "extract", at_call=2)
    assert line == ("backstory: interrupted: 2 threads with 4 turns stay pending; run `backstory extract` again\n")
    assert sum(one["turns"] for one in waiting.json("--user", "ada", "status")["pending"]) == 4


def test_extract_of_one_thread_and_of_all_scopes_count_theirs(waiting: Cli, model: Model) -> None:
    line = interrupted(waiting, model, "extract", "--user", "ada", "--thread", "b")
    assert "interrupted: 1 thread with 2 turns stays pending; run `backstory extract` again" in line
    waiting.run(
        "record", waiting.file("more", said("d", "d1", "user", "I like d."), said("d", "d2", "assistant", "ok"))
    )
    line = interrupted(waiting, model, "extract", "--all", "--json")
    assert "4 threads with 8 turns stay pending; run `backstory extract` again" in line


def test_retry_says_what_stays_parked(waiting: Cli, model: Model) -> None:
    broken = waiting.file("broken", *({"thread_id": thread, "reply": "{"} for thread in "abc"))
    waiting.run("--user", "ada", "extract", "--replies", broken, code=1)
    line = interrupted(waiting, model, "--user", "ada", "retry")
    assert "interrupted: 3 threads with 6 turns stay parked; run `backstory retry` again" in line
    assert len(waiting.json("--user", "ada", "status")["parked"]) == 3


def test_reextract_says_that_nothing_was_written(story: Cli, model: Model) -> None:
    assert "interrupted: reextract writes nothing" in interrupted(story, model, "reextract")
    assert story.json("head")["seq"] == 3


def test_follow_says_where_it_stopped(story: Cli) -> None:
    with story.running("log", "--follow", "--limit", "1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("3  ")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == "backstory: interrupted: commit 3 is the last one that was followed\n"


def test_embed_says_how_much_is_embedded(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def embed(_: object, *, timeout: float | None, progress: Callable[[int, int], None]) -> None:
        progress(2, 7)
        raise KeyboardInterrupt

    monkeypatch.setattr(MemoryHandle, "embed", embed)
    result = story.run("embed", code=130)
    assert result.stderr == (
        "backstory: interrupted: 2 of 7 facts and turns are embedded; run `backstory embed` again for the rest\n"
    )


def test_record_says_how_much_is_recorded(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    record = MemoryHandle.record
    rows = [said(thread, f"{thread}1", "user", "I like tea.") for thread in "ab"]

    def record_one(self: MemoryHandle, thread: str, *more: object, **named: object) -> object:
        if thread == "b":
            raise KeyboardInterrupt
        return record(self, thread, *more, **named)

    monkeypatch.setattr(MemoryHandle, "record", record_one)
    line = cli.run("record", cli.file("said", *rows), code=130).stderr
    assert line == "backstory: interrupted: 1 of 2 messages are recorded; run it again, and those are skipped\n"
    line = cli.run("record", "--append", cli.file("said", *rows), code=130).stderr
    assert line == "backstory: interrupted: 1 of 2 messages are recorded; --append would record those again\n"


def test_forget_says_that_a_begun_erasure_is_completed(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    redact = JsonlStore.redact

    def interrupting(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(JsonlStore, "redact", interrupting)
    line = story.run("forget", "--fact", "fact_2_0", "--with-evidence", "--yes", code=130).stderr
    assert line.endswith(
        "backstory: interrupted: an erasure that has begun is completed by the next command; "
        "run `backstory forget` again for the rest\n"
    )
    monkeypatch.setattr(JsonlStore, "redact", redact)
    assert "Rust" not in story.run("show").stdout
    assert story.json("verify")["ok"]
    assert "I write Rust" not in (story.home / "transcript.jsonl").read_text(encoding="utf-8")


def test_any_other_verb_says_that_it_was_interrupted(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MemoryHandle, "verify", verify)
    assert story.run("verify", code=130).stderr == "backstory: interrupted\n"


def test_nothing_is_said_to_stay_where_nothing_does(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def extract(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MemoryHandle, "extract", extract)
    assert story.run("extract", code=130).stderr == "backstory: interrupted: nothing stays pending\n"
    assert json.loads(story.run("status", "--json").stdout)["pending"] == []
