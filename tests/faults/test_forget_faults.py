"""`forget` is killed half-way, comes while a model is being asked, and is followed by hosts that say it all again.

Promised: nothing of what was forgotten is left in any byte below the home, whole or as a rare word, from the next open
on; a writer in another process loses nothing while files are replaced; the memory stays without it, whoever answers
late; its turns are covered and not asked about again; the chains verify before and after.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
from fakes import PATIENCE, Gate, ScriptedModel, exchange, open_home, reply
from faults.children import dying
from faults.logs import Scope
from faults.processes import child
from faults.test_kill import acknowledged, verified
from sizes import LONG, PATIENT, bytes_below, chance, sized

from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.memory import MemoryHandle

USER = "ada"
SECRET = "Zanzibar"  # noqa: S105 a place, not a password
SAID = f"My sister moved to {SECRET} under the name Quillfeather."
"""What is forgotten; the test that looks for it looks for its rare words, in any case."""

RARE = (b"zanzibar", b"quillfeather")

STEPS = range(60) if LONG else range(0, 42, 6)


def check_nothing_left(home: Path) -> None:
    for path, data in bytes_below(home).items():
        for word in RARE:
            assert word not in data.lower(), f"{path} still says {word.decode()}"
            for spelled in ("utf-16-le", "utf-16-be"):
                assert word.decode().encode(spelled) not in data.lower(), path


def forget_words(memory: MemoryHandle) -> None:
    """Forget every rare word that is there still: with the words of one the others may have gone."""
    for word in RARE:
        with suppress(NotFoundError):
            memory.forget(matching=word.decode())


def secretive(memory: MemoryHandle, thread: str = "secret") -> None:
    memory.record(
        thread,
        [
            {"role": "user", "content": SAID, "id": "s1"},
            {"role": "assistant", "content": f"{SECRET} it is.", "id": "s2"},
        ],
    )


def learned(thread: str = "secret") -> RecordedReply:
    answer = {
        "newFacts": [
            {"content": f"has a sister in {SECRET}", "confidence": 0.9},
            {"content": f"is called Quillfeather in {SECRET}", "confidence": 0.2},
        ],
        "user": {"workContext": {"summary": f"Travels to {SECRET} to see Quillfeather.", "shouldUpdate": True}},
    }
    return RecordedReply(thread, json.dumps(answer))


def fill(home: Path) -> tuple[list[str], list[str]]:
    """A home that knows the secret in every way it can; returns the turns and facts that are to stay."""
    turns: list[str] = []
    facts: list[str] = []
    with open_home(home) as backstory:
        memory = backstory.memory(USER)
        for n in range(4):
            memory.record(f"t{n % 2}", exchange(f"topic {n}", n))
            turns += [str(message["content"]) for message in exchange(f"topic {n}")]
            memory.extract([RecordedReply(f"t{n % 2}", reply(f"likes topic {n}"))])
            facts.append(f"likes topic {n}")
            if n == 1:
                secretive(memory)
                memory.extract([learned()])
        memory.edit_fact(memory.add_fact(f"owns a house in {SECRET}").fact.id, content=f"sold the house in {SECRET}")
        said = [{"role": "user", "content": f"a long story about {SECRET} " * 3000, "id": "l1"}]
        memory.record("secret", said)  # enough for an index in a file
        memory.document()
        memory.flush()
    folder = home / "users" / USER
    # What a crash, and a person's edit, have left beside the files.
    (folder / "ledger.torn-1").write_bytes(f'{{"v":1,"seq":9,"at":"… {SAID}'.encode())
    (folder / "transcript.torn-1").write_bytes(SAID.encode())
    (folder / "memory.json.edited-1").write_text(f'{{"facts":[{{"content":"{SAID}"}}]}}', encoding="utf-8")
    (folder / ".memory.json.new").write_text(SAID, encoding="utf-8")
    return turns, facts


def check_kept(home: Path, turns: list[str], facts: list[str]) -> None:
    """What was not to be forgotten is there, and the next write goes on."""
    scope = Scope(home / "users" / USER)
    said = [e["turn"]["content"] for e in scope.transcript.events("TurnRecorded") if e["turn"].get("content")]
    assert set(turns) <= set(said)
    with open_home(home) as backstory:
        memory = backstory.memory(USER)
        assert {fact.content for fact in memory.facts()} == set(facts)
        assert memory.status().pending == ()
        memory.add_fact("after it was forgotten")
    assert verified(home) == []


def test_forgetting_leaves_nothing_in_any_byte(tmp_path: Path) -> None:
    turns, facts = fill(tmp_path)
    with open_home(tmp_path) as backstory:
        forget_words(backstory.memory(USER))
    check_nothing_left(tmp_path)
    check_kept(tmp_path, turns, facts)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(sized(1, 100)))
@PATIENT
def test_kill_whoever_forgets(tmp_path: Path, number: int) -> None:
    """Wherever the kill struck: either nothing was begun, or the next open brings it to its end."""
    luck = chance(number)
    turns, facts = fill(tmp_path)
    folder = tmp_path / "users" / USER
    before = Scope(folder).ledger.commits
    with child("forget", tmp_path, SECRET) as victim:
        victim.hear("ready")
        victim.order()
        time.sleep(luck.uniform(0, 0.06))  # the moment is what is random here
        victim.kill()
        done = bool(victim.told("forgotten"))
    check_completed(tmp_path, before, done=done)
    check_kept(tmp_path, turns, facts)


def forget_until(home: Path, step: int) -> NoReturn:
    """Forget in a forked child, which dies before a step, or says by its exit code that it has forgotten."""
    ended = 1
    try:
        with open_home(home) as backstory:
            memory = backstory.memory(USER)
            memory.facts()
            dying(step)
            memory.forget(matching=SECRET)
            ended = 0
    finally:
        os._exit(ended)


@pytest.mark.slow
@PATIENT
@pytest.mark.parametrize("step", STEPS)
def test_kill_whoever_forgets_before_each_step(tmp_path: Path, step: int) -> None:
    """Not a moment but a place: before each call in turn that changes or syncs something on disk."""
    turns, facts = fill(tmp_path)
    before = Scope(tmp_path / "users" / USER).ledger.commits
    victim = os.fork()
    if not victim:
        forget_until(tmp_path, step)
    ended = os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1])
    assert ended in (0, -signal.SIGKILL)
    check_completed(tmp_path, before, done=ended == 0)
    check_kept(tmp_path, turns, facts)


def check_completed(home: Path, before: list[dict], *, done: bool) -> None:
    """Open the home: what was named is gone from every byte, or nothing was named and nothing is gone."""
    if done:
        check_secret_gone(home)
    with open_home(home) as backstory:
        memory = backstory.memory(USER)
        memory.facts()
        ledger = Scope(home / "users" / USER).ledger
        named = any(ledger.events("Redacted"))
        assert named or not done
        assert named or ledger.commits[: len(before)] == before, "erased, and nothing says so"
        if not named:
            memory.forget(matching=SECRET)
    check_secret_gone(home)
    with open_home(home) as backstory:
        forget_words(backstory.memory(USER))
    check_nothing_left(home)


def check_secret_gone(home: Path) -> None:
    """The word that was to be forgotten is gone, also from what lay beside the files."""
    for path, data in bytes_below(home).items():
        assert SECRET.lower().encode() not in data.lower(), path


@pytest.mark.slow
@pytest.mark.parametrize("number", range(sized(1, 20)))
@PATIENT
def test_a_writer_elsewhere_loses_nothing_while_the_files_are_replaced(tmp_path: Path, number: int) -> None:
    luck = chance(number)
    turns, facts = fill(tmp_path)
    with child("write", tmp_path, "writer", 3, 0) as writer:
        writer.hear("ready")
        writer.order()
        writer.hear("fact", 3)
        with child("forget", tmp_path, SECRET) as forgetting:
            forgetting.hear("ready")
            writer.hear("fact", len(writer.told("fact")) + luck.randrange(1, 9))
            forgetting.order()
            forgetting.hear("forgotten")
            forgetting.end()
        writer.hear("fact", len(writer.told("fact")) + 9)
        writer.kill()
        assert writer.told("broken") == []
    with child("finish", tmp_path, "heir") as heir:
        assert heir.hear("left") == ["left", 0, 0]
        heir.end()
    scope = Scope(tmp_path / "users" / USER)
    said = [e["turn"]["content"] for e in scope.transcript.events("TurnRecorded")]
    assert len(said) == len(set(said))
    assert {*turns, *acknowledged([writer], "turns")} <= set(said)
    assert {*facts, *acknowledged([writer], "fact")} <= set(scope.added())
    assert set(scope.covered().values()) == {1}
    check_secret_gone(tmp_path)
    assert set(verified(tmp_path)) <= {"torn_tail"}


SELECTORS: dict[str, Callable[[MemoryHandle], object]] = {
    "the thread": lambda memory: memory.forget(thread_id="secret"),
    "the text": forget_words,
    "everything": lambda memory: memory.forget(everything=True),
}


@pytest.mark.parametrize("select", SELECTORS.values(), ids=SELECTORS)
@pytest.mark.parametrize("beside", [False, True], ids=["here", "another process"])
def test_forget_while_the_model_is_asked_about_it(
    tmp_path: Path, select: Callable[[MemoryHandle], object], *, beside: bool
) -> None:
    """The answer comes late, and says it all again: it is discarded, and no record of it says what it said."""
    gate = Gate(learned().text)
    model = ScriptedModel(gate)
    with open_home(tmp_path, model, background=True, debounce_seconds=0) as backstory:
        memory = backstory.memory(USER)
        memory.add_fact("keeps a cat")
        secretive(memory)
        assert gate.entered.wait(PATIENCE)
        try:
            if beside:
                with open_home(tmp_path) as other:
                    select(other.memory(USER))
            else:
                select(memory)
        finally:
            gate.opened.set()
        assert memory.flush(PATIENCE)
        assert SECRET not in str(memory.document())
        assert (memory.status().pending, memory.status().parked) == ((), ())
    check_nothing_left(tmp_path)
    with open_home(tmp_path, model, background=True, debounce_seconds=0) as backstory:
        memory = backstory.memory(USER)
        secretive(memory)  # the host sends its whole conversation again
        assert memory.flush(PATIENCE)
        assert memory.verify().ok
    assert len(model.prompts) == 1
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("beside", [False, True], ids=["here", "another process"])
def test_clear_while_the_model_is_asked(tmp_path: Path, *, beside: bool) -> None:
    gate = Gate(learned().text)
    model = ScriptedModel(gate)
    with open_home(tmp_path, model, background=True, debounce_seconds=0) as backstory:
        memory = backstory.memory(USER)
        memory.add_fact("keeps a cat")
        secretive(memory)
        assert gate.entered.wait(PATIENCE)
        if beside:
            with open_home(tmp_path) as other:
                other.memory(USER).clear()
        else:
            memory.clear()
        gate.opened.set()
        assert memory.flush(PATIENCE)
        assert memory.facts() == ()
        assert (memory.status().pending, memory.status().parked) == ((), ())
    with open_home(tmp_path, model, background=True, debounce_seconds=0) as backstory:
        memory = backstory.memory(USER)
        secretive(memory)
        assert memory.flush(PATIENCE)
        assert memory.facts() == ()
        assert memory.document().user.work_context.summary == ""
        assert memory.verify().ok
    assert len(model.prompts) == 1
    assert Scope(tmp_path / "users" / USER).document() == []
