"""Learners of a round of faults: a process that records turns in shared memories, with a worker that learns from them.

Run as `python -m rounds.learners URL HOME OUT THREADS USER...`; it stops recording when its standard input ends, and
ends when the updates under way have. Each line of OUT is one `Step`, written the moment after what it tells of has
happened. The model is a function here: each of its answers is a fact that no other answer holds.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Literal

import msgspec

from backstory.home import Backstory
from backstory.ledger.core.errors import BackstoryError
from backstory.worker import Worker

TIMEOUT_SECONDS = 20
SHARED = "shared"
"""The thread that all record into; each has one of its own as well."""

_PAUSE_SECONDS = 0.2
"""Between two deliveries of a thread."""
_LOOK_SECONDS = 0.05
_THINKING_SECONDS = 0.05
_FLUSH_SECONDS = 2.0


class Step(msgspec.Struct, frozen=True):
    """What happened: `recorded` turns, by their texts, or a model that was `asked`."""

    what: Literal["recorded", "asked"]
    texts: tuple[str, ...] = ()


class Steps:
    """The file of what happened."""

    def __init__(self, out: Path) -> None:
        self._out = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, step: Step) -> None:
        os.write(self._out, msgspec.json.encode(step) + b"\n")


class Learner:
    """A model that takes a moment for an answer."""

    def __init__(self, steps: Steps | None = None) -> None:
        self._steps = steps
        self._numbers = itertools.count(1)

    def __call__(self, messages: list[dict[str, str]]) -> str:
        fact = f"{os.getpid()} learned lesson {next(self._numbers)}"
        if self._steps is not None:
            self._steps.note(Step("asked"))
        time.sleep(_THINKING_SECONDS)
        return json.dumps({"newFacts": [{"content": fact, "confidence": 0.9}]})


def open_learning(url: str, home: Path, model: Learner) -> Backstory:
    """Open a home on an engine that learns from each turn at once."""
    return Backstory.open(
        home,
        model=model,
        event_store=url,
        file_lock_timeout_seconds=TIMEOUT_SECONDS,
        debounce_seconds=0,
        min_seconds_between_calls=0,
        summary_min_turns=0,
        max_facts=20,
    )


def exchange(words: str) -> list[dict[str, object]]:
    """A user's words and the answer; they carry ids, so that they can be sent again."""
    return [
        {"role": "user", "content": f"{words}, said the user", "id": f"{words}/u"},
        {"role": "assistant", "content": f"{words}, said the agent", "id": f"{words}/a"},
    ]


def record(bs: Backstory, steps: Steps, users: list[str], number: int, over: threading.Event) -> None:
    """Record until it is over, in turn for each user; what was not acknowledged is sent again."""
    name = f"{os.getpid()}.{number}"
    for count in itertools.count():
        messages = exchange(f"{name} topic {count}")
        while True:
            if over.wait(_PAUSE_SECONDS):
                return
            try:
                memory = bs.memory(users[count % len(users)])
                if count % 2:
                    memory.record(name, messages)
                else:
                    memory.record(SHARED, messages, mode="append")
            except BackstoryError:
                continue
            steps.note(Step("recorded", tuple(str(message["content"]) for message in messages)))
            break


def main(url: str, home: str, out: str, threads: str, *users: str) -> None:
    steps, over = Steps(Path(out)), threading.Event()
    with open_learning(url, Path(home), Learner(steps)) as bs:
        worker = Worker(bs, poll_seconds=_LOOK_SECONDS)
        working = [
            threading.Thread(target=worker.run),
            *(threading.Thread(target=record, args=(bs, steps, [*users], n, over)) for n in range(int(threads))),
        ]
        for thread in working:
            thread.start()
        sys.stdin.read()
        over.set()
        worker.stop()
        for thread in working:
            thread.join()
        # What is left is for others; but nothing is asked again that is under way.
        bs.flush(_FLUSH_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
