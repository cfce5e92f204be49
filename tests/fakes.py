"""Stand-ins for what a test must command: time, chance and the model.

`FakeClock` stands still until it is told or slept on, `CountingSalts` are unique and never random, `ScriptedModel`
answers what its script says and `Gate` holds it in the middle of an answer. `reply` and `exchange` spell what most
tests need: a model's answer and a user's words with an agent's.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from backstory.ledger.core.errors import ModelRejectedError
from backstory.ledger.extraction.models.model import Answer, Prompt

if TYPE_CHECKING:
    from backstory.home import Backstory
    from backstory.ledger.learning.observing import Observer
    from backstory.ledger.learning.updater import Updater

PATIENCE = 60.0
"""Seconds after which a test gives up on another thread; never waited for when all is well."""


class FakeClock:
    """A clock that only moves when it is told to, or slept on; `slept` lists the naps. Safe for threads."""

    def __init__(self, start: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)) -> None:
        self.slept: list[float] = []
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self._now += timedelta(seconds=seconds)

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += timedelta(seconds=seconds)


class CountingSalts:
    """Salts that count: 32 hex digits, the same in every run."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def __call__(self) -> str:
        return f"{next(self._count):032x}"


Step = str | dict[str, object] | Answer | BaseException | Callable[[Prompt], "str | Answer"]
"""What a scripted model does when asked: say a text or an object, raise, or do whatever a function does."""


class ScriptedModel:
    """A model that follows its script, one step per call, and refuses when it is over; `repeat` keeps the last step.

    `prompts` holds what it was asked.
    """

    name = "scripted"

    def __init__(self, *script: Step, repeat: bool = False) -> None:
        self.prompts: list[Prompt] = []
        self._script = list(script)
        self._repeat = repeat
        self._lock = threading.Lock()

    def ask(self, prompt: Prompt) -> Answer:
        with self._lock:
            self.prompts.append(prompt)
            if not self._script:
                raise ModelRejectedError("the script is over")
            step = self._script[0] if self._repeat and len(self._script) == 1 else self._script.pop(0)
        if isinstance(step, BaseException):
            raise step
        said = step(prompt) if callable(step) else step
        if isinstance(said, Answer):
            return said
        return Answer(said if isinstance(said, str) else json.dumps(said), self.name)


class Gate:
    """A step that says its text only once it is opened; `entered` tells that the model is being asked."""

    def __init__(self, text: str) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self._text = text

    def __call__(self, prompt: Prompt) -> str:
        self.entered.set()
        if not self.opened.wait(PATIENCE):
            raise TimeoutError("nobody opened the gate")
        return self._text


def reply(*facts: str, remove: tuple[str, ...] = (), confidence: float = 0.9) -> str:
    """Spell a model's answer that adds these facts and removes those ids."""
    return json.dumps(
        {
            "newFacts": [{"content": fact, "confidence": confidence} for fact in facts],
            "factsToRemove": list(remove),
        }
    )


def exchange(topic: str, number: int | None = None) -> list[dict[str, object]]:
    """Spell a user's words and the agent's answer; with a number they carry ids."""
    messages: list[dict[str, object]] = [
        {"role": "user", "content": f"I like {topic}."},
        {"role": "assistant", "content": f"{topic} it is."},
    ]
    if number is not None:
        messages[0]["id"], messages[1]["id"] = f"u{number}", f"a{number}"
    return messages


def updater_on(
    clock: FakeClock,
    *,
    min_gap: float = 0,
    max_attempts: int = 5,
    observers: Sequence[Observer] = (),
    **prompting: object,
) -> Updater:
    """Make an updater without a gap between calls."""
    from backstory.ledger.learning.model_caller import ModelCaller
    from backstory.ledger.learning.updater import Updater

    caller = ModelCaller(clock=clock, min_gap=min_gap, max_attempts=max_attempts, observers=observers)
    return Updater(caller, **prompting)  # type: ignore[arg-type]


def open_home(home: Path, model: object = None, *, clock: FakeClock | None = None, **settings: object) -> Backstory:
    """Open a home on a fake clock and counting salts, without workers, a gap between calls, or summaries of threads."""
    from backstory.home import Backstory  # so that a test of the write side alone needs no door

    more: dict[str, object] = {"background": False, "min_seconds_between_calls": 0, "summary_min_turns": 0, **settings}
    return Backstory.open(home, model=model, clock=clock or FakeClock(), salts=CountingSalts(), **more)  # type: ignore[arg-type]
