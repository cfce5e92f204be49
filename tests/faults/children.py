"""Programs that the fault tests start as processes of their own, to be killed: `python children.py ROLE HOME ...`.

Each says one JSON list a line, written straight to its descriptor the moment after what it tells of has returned, so
what the parent has read was acknowledged before the kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from backstory.home import Backstory
from backstory.ledger.core.commit import Commit
from backstory.memory import MemoryHandle

PATIENCE = 60.0
USER = "ada"
SETTINGS: dict[str, object] = {
    "debounce_seconds": 0,
    "min_seconds_between_calls": 0,
    "file_lock_timeout_seconds": 60,
    "max_facts": 100_000,
    "max_facts_limit": 100_000,
    "summary_min_turns": 0,
}


def tell(*words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def ordered() -> str:
    """Wait for the parent's next line; empty when it has no more to say."""
    return sys.stdin.readline().strip()


class Learner:
    """A model that answers at once or takes its time, each time with a fact that nobody else learns."""

    def __init__(self, name: str, slowest: float, calls: Path | None = None) -> None:
        self._name = name
        self._chance = random.Random(name)  # noqa: S311 no secret
        self._slowest = slowest
        self._calls = calls
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, messages: list[dict[str, str]]) -> str:
        with self._lock:
            self._count += 1
            fact, pause = f"{self._name} learned lesson {self._count}", self._chance.choice([0, 0, self._slowest])
        if self._calls is not None:
            with self._calls.open("a") as file:
                file.write(f"{self._name}\n")
        time.sleep(pause)
        return json.dumps({"newFacts": [{"content": fact, "confidence": 0.9}]})


def exchange(words: str) -> list[dict[str, object]]:
    """A user's words and the answer; they carry ids."""
    return [
        {"role": "user", "content": f"{words}, said the user", "id": f"{words}/u"},
        {"role": "assistant", "content": f"{words}, said the agent", "id": f"{words}/a"},
    ]


def one_round(memory: MemoryHandle, name: str, number: int) -> None:
    """Record, into a thread of one's own or into everybody's, and enter a fact; acknowledge each as it returns."""
    words = f"{name} topic {number}"
    messages = exchange(words)
    if number % 3:
        memory.record(name, messages)
    else:
        memory.record("common", messages, mode="append")
    tell("turns", *[message["content"] for message in messages])
    memory.add_fact(f"{name} fact {number}")
    tell("fact", f"{name} fact {number}")


def write(home: str, name: str, threads: str, rounds: str, calls: str = "") -> None:
    """Record and add facts in several threads, with workers that learn; `rounds` 0: until killed.

    With `rounds` -1 every order from the parent is one round of every thread, and the end of orders the end.
    """
    learner = Learner(name, 0.02, Path(calls) if calls else None)
    with Backstory.open(home, model=learner, **SETTINGS) as backstory:
        memory = backstory.memory(USER)
        tell("ready")
        if int(rounds) == -1:
            number = 0
            while ordered():
                number += 1
                _together(int(threads), lambda n, number=number: one_round(memory, f"{name}.{n}", number))
        else:
            ordered()
            _together(int(threads), lambda n: _rounds(memory, f"{name}.{n}", int(rounds)))
    tell("closed")


def _rounds(memory: MemoryHandle, name: str, rounds: int) -> None:
    number = 0
    while number < rounds or rounds == 0:
        number += 1
        one_round(memory, name, number)


def _together(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=_guarded, args=(work, number)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _guarded(work: Callable[[int], None], number: int) -> None:
    try:
        work(number)
    except BaseException as error:
        traceback.print_exc()
        tell("broken", repr(error))
        raise


def finish(home: str, name: str) -> None:
    """Open a home, ask for nothing, and wait until what was left pending has been learned from."""
    committed = threading.Event()

    def listener(scope: object, commit: Commit, before: object, after: object) -> None:
        committed.set()

    with Backstory.open(home, model=Learner(name, 0), listeners=(listener,), **SETTINGS) as backstory:
        memory = backstory.memory(USER)
        deadline = time.monotonic() + PATIENCE
        while memory.status().pending and time.monotonic() < deadline:
            committed.wait(1)
            committed.clear()
        tell("left", len(memory.status().pending), len(memory.status().parked))
    tell("closed")


def think(home: str, name: str, thread: str, calls: str) -> None:
    """Extract one thread with a model that answers when the parent says so; it notes every call in a file."""

    def model(messages: list[dict[str, str]]) -> str:
        with Path(calls).open("a") as file:
            file.write(f"{name}\n")
        tell("asked")
        ordered()
        return json.dumps({"newFacts": [{"content": f"{name} learned it", "confidence": 0.9}]})

    with Backstory.open(home, model=model, background=False, **SETTINGS) as backstory:
        memory = backstory.memory(USER)
        tell("ready")
        ordered()
        tell("extracting")
        tell("extracted", memory.extract(thread=thread).updates)
    tell("closed")


def dying(last: int) -> None:
    """Kill this process before the so-and-so-manieth call from now on that changes or syncs something on disk."""
    left = last

    def stand_in(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return call

    for name in ("open", "write", "fsync", "fdatasync", "ftruncate", "rename", "replace", "unlink", "remove"):
        setattr(os, name, stand_in(getattr(os, name)))


def forget(home: str, text: str) -> None:
    """Erase a text for good when the parent says so."""
    with Backstory.open(home, background=False, **SETTINGS) as backstory:
        memory = backstory.memory(USER)
        tell("ready")
        ordered()
        memory.forget(matching=text)
        os.write(1, b'["forgotten"]\n')
    tell("closed")


ROLES: dict[str, Callable[..., None]] = {"write": write, "finish": finish, "think": think, "forget": forget}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
