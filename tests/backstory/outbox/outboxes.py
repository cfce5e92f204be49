"""What the tests of outbox share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.outbox.outbox import Outbox, QueueLimits

ADA, BOB = Scope("ada"), Scope("bob")


EAGER = QueueLimits(shortest_pause=0.001, longest_pause=0.01)


_LONGEST_SECONDS = 20


class Elapsed:
    """A monotonic clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Disk:
    """A home's store that does as its plan says: raise the next step, or do what is asked where that is None."""

    def __init__(self, bs: Backstory) -> None:
        self.plan: list[BaseException | Callable[[], None] | None] = []
        self.always: BaseException | None = None
        self.calls = 0
        self.afterwards = False
        """Whether it fails only after it has written."""
        self._append = bs.store.append
        bs.store.append = self  # type: ignore[method-assign]

    def __call__(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        self.calls += 1
        step = self.plan.pop(0) if self.plan else self.always
        if callable(step):
            step()
            step = None
        if step is None or self.afterwards:
            self._append(stream, lines, expected)
        if step is not None:
            raise step


def by_hand(bs: Backstory, elapsed: Elapsed, limits: QueueLimits | None = None) -> FailSafeMemory:
    return FailSafeMemory(bs, outbox=Outbox(bs.faults, limits, elapsed=elapsed, background=False), elapsed=elapsed)


def said(bs: Backstory, thread: str = "t", scope: Scope = ADA) -> list[str]:
    memory = bs.memory_of(scope)
    known = {summary.thread for summary in memory.threads()}
    return [turn.content for turn in memory.transcript(thread)] if thread in known else []


def words(messages: Sequence[dict[str, object]]) -> list[object]:
    return [message["content"] for message in messages]


def kinds(bs: Backstory, scope: Scope = ADA) -> dict[str, int]:
    return {fault.kind: fault.count for fault in bs.faults.of(scope)}


@contextmanager
def locked(bs: Backstory, scope: Scope = ADA, timeout: float = 0.02) -> Iterator[None]:
    """Hold the lock of a transcript, as another process would, and have nobody wait long for it."""
    bs.store._locks._timeout = timeout  # type: ignore[attr-defined]
    path = bs.home / scope.folder / "transcript.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
