"""What the tests of producing share."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fakes import CountingSalts, FakeClock, ScriptedModel, Step, exchange, reply, updater_on

from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.learning.producer import Producer
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import keep, read_message
from backstory.ledger.threads.due import Timing

ACK = [{"role": "user", "content": "ok"}, {"role": "assistant", "content": "Anything else?"}]


class Moody(JsonlStore):
    """A store whose ledger raises what it is told to, at every append, until it is told nothing.

    Of the threads in `elsewhere` it says that another process is at them; `tries` counts who asked for which.
    """

    mood: BaseException | None = None

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.refused = threading.Event()
        self.elsewhere: set[str] = set()
        self.tries: Counter[str] = Counter()

    @contextmanager
    def lease(self, stream: str, name: str) -> Iterator[bool]:
        self.tries[name] += 1
        if name in self.elsewhere:
            yield False
            return
        with super().lease(stream, name) as mine:
            yield mine

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        if self.mood is not None and stream.endswith("ledger"):
            self.refused.set()
            raise self.mood
        super().append(stream, lines, expected)


class Shop:
    """A producer over one scope, on a fake clock; without workers unless it is told to start them."""

    def __init__(
        self,
        home: Path,
        *script: Step,
        clock: FakeClock | None = None,
        workers: int = 2,
    ) -> None:
        self.clock = clock or FakeClock()
        self.store = Moody(home)
        self.writer = Writer(self.store, Scope("ada"), clock=self.clock, salts=CountingSalts())
        self.model = ScriptedModel(*(script or (reply(),)), repeat=True)
        self.updater = updater_on(self.clock, max_attempts=2)
        self.producer = Producer(self.updater, self.model, timing=Timing(30, 300), workers=workers)
        self.producer.watch(self.writer)

    def say(
        self, thread: str = "t", messages: list[dict[str, object]] | None = None, *, immediate: bool = False
    ) -> None:
        read = [read_message(message) for message in messages or exchange("tea")]
        self.writer.record(thread, keep(read), mode="append")
        self.producer.notice(self.writer, thread, immediate=immediate)

    def after(self, seconds: float) -> int:
        """Let time pass and run what is due."""
        self.clock.advance(seconds)
        return self.producer.run_due()

    def pending(self, thread: str = "t") -> int:
        with self.writer.state() as state:
            known = state.transcript.threads[thread]
            runs = state.coverage.pending(known)
        return sum(len(known.standing(run.first, run.last)) for run in runs)

    def parked(self, thread: str = "t") -> list[tuple[str, int]]:
        with self.writer.state() as state:
            return [(item.reason, item.attempts) for item in state.coverage.parked(state.transcript.threads[thread])]

    def asked(self) -> list[str]:
        """The threads that the model was asked about, in order."""
        return [prompt.user.partition('thread="')[2].partition('"')[0] for prompt in self.model.prompts]


Open = Callable[..., Shop]


def told(topic: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": topic}, {"role": "assistant", "content": "I see."}]


Home = Callable[..., Backstory]
