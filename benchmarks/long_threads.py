"""Whether the length of a conversation is felt: recording into a thread of 50,000 turns against one of a hundred."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.extraction.models.model import Answer, Prompt
from backstory.ledger.learning.model_caller import ModelCaller
from backstory.ledger.learning.producer import Producer
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import Kept
from backstory.ledger.threads.delivery.turn_dedup import Mode
from backstory.projections.index.index import ScopeIndex
from benchmarks.rows import Row, in_turn, ms

__all__ = ["long_threads"]

_SHORT = 100
_A_LINE = 20
_SCOPE = Scope("ada")


class _Silent:
    """A model that nobody asks: nothing is due while this runs."""

    name = "silent"

    def ask(self, prompt: Prompt) -> Answer:
        raise NotImplementedError(prompt.digest)


class _Opened:
    """A scope as one process has it: what is recorded is noticed by a producer."""

    def __init__(self, home: Path) -> None:
        store = JsonlStore(home)
        self.index = ScopeIndex(store, _SCOPE, home / _SCOPE.folder / "index.sqlite", small=1)
        self._writer = Writer(store, _SCOPE, snapshots=self.index)
        self._producer = Producer(Updater(ModelCaller(clock=SystemClock())), _Silent(), workers=0)

    def record(self, messages: list[Kept], *, mode: Mode = "conversation") -> None:
        self._writer.record("t", messages, mode=mode)
        self._producer.notice(self._writer, "t")

    def when_due(self) -> None:
        self._producer.notice(self._writer, "t")


def _said(numbers: Iterator[int], *roles: str) -> list[Kept]:
    return [Kept(role=role, content=f"I took walk {next(numbers)} in the woods behind the house.") for role in roles]


def _home(home: Path, turns: int, *roles: str) -> Path:
    opened, numbers = _Opened(home), itertools.count(1)
    for _ in range(0, turns, _A_LINE):
        opened.record(_said(numbers, *roles * (_A_LINE // len(roles))), mode="append")
    opened.index.follow()
    return home


def _recording(opened: _Opened, numbers: Iterator[int], *, mode: Mode) -> Callable[[], None]:
    return lambda: opened.record(_said(numbers, "user", "assistant"), mode=mode)


def _opening(home: Path, numbers: Iterator[int], *, mode: Mode) -> Callable[[], None]:
    return lambda: _Opened(home).record(_said(numbers, "user", "assistant"), mode=mode)


def _in_turn(*works: Callable[[], None], rounds: int) -> str:
    """Time works in turn, by the clock and by what the processor does for them, without the disk."""
    taken = map(ms, in_turn(*works, rounds=rounds))
    busy = map(ms, in_turn(*works, rounds=rounds, clock=time.process_time))
    return f"{'; '.join(taken)} ({'; '.join(busy)} of CPU)"


def long_threads(turns: int) -> Iterator[Row]:
    """Measure recording where all of a thread is pending, in a process that knows it and in one that opens it."""
    numbers = itertools.count(1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        long, short = (_home(Path(folder) / str(n), n, "user", "assistant") for n in (turns, _SHORT))
        modes: tuple[tuple[str, Mode], ...] = (("without ids", "conversation"), ("said to be new", "append"))
        for name, mode in modes:
            known = [_recording(_Opened(home), numbers, mode=mode) for home in (long, short)]
            # What is done once is no part of it.
            in_turn(*known, rounds=1)
            recorded = _in_turn(*known, rounds=51)
            opened = _in_turn(*(_opening(home, numbers, mode=mode) for home in (long, short)), rounds=11)
            thread = f"a thread of {turns:,} turns; of {_SHORT}"
            yield Row(f"recording an exchange {name}, noticed, in {thread}, p50", recorded, "≤ 3 ms")
            yield Row("  opening the scope, its index at hand, and recording", opened, "≤ 30 ms")
        unanswered = _Opened(_home(Path(folder) / "unanswered", turns, "user"))
        unanswered.when_due()
        looked = in_turn(unanswered.when_due, rounds=11)[0]
    yield Row(f"  telling when {turns:,} words without an answer are due", ms(looked))
