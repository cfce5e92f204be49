"""Background embedding: a thread that embeds what is not embedded yet.

One thread per home, started by the first need, goes from memory to memory and asks whether to stop after each batch. It
runs at a low priority where the system knows such a thing for threads, and ends when there has been nothing to do for a
while. What goes wrong is logged once, and tried again after longer and longer pauses; searching goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol

import msgspec

from backstory.ledger.concurrency.jobs import Jobs
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import Scope
from backstory.projections.read_model import ReadModel
from backstory.projections.search.vectors.embedder import Passage
from backstory.projections.search.vectors.scope_vectors import Bringing, Vectors

_log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
"""A scope is not looked at more often: who searches all the time wants it all the time."""

_TURN_SECONDS = 5.0
"""A scope that others wait behind gives way after this."""

_PAUSES = (1.0, 300.0)
_END_SECONDS = 1.0
"""A batch that is done by then is kept when a home is closed; no longer wait for a model."""

_NICENESS = 10


class Source(Protocol):
    """What of one scope is to be embedded."""

    @property
    def vectors(self) -> Vectors:
        """Where it goes."""

    @property
    def spaces(self) -> Iterable[str]:
        """The names of its spaces."""

    def state(self) -> Hashable:
        """Return what is another value whenever the passages may be others; it costs little to ask."""

    def passages(self, space: str) -> Iterator[Passage]:
        """Yield what is to be embedded; nothing is read before the first is asked for."""


class Embedded(msgspec.Struct, frozen=True):
    """How many facts and turns of a scope a model has read, of how many there are, and how many of them just now."""

    model: str
    embedded: int
    total: int
    new: int

    def __add__(self, other: Embedded) -> Embedded:
        """Put two scopes together."""
        return Embedded(self.model, self.embedded + other.embedded, self.total + other.total, self.new + other.new)


class ScopeEmbedding(ReadModel):
    """What became of a memory when it was looked at last.

    Args:
        scope: The memory.
        source: Returns what is to be embedded; it is asked in the background, and must not keep the home alive.
    """

    def __init__(self, scope: Scope, source: Callable[[], Source]) -> None:
        self.scope = scope
        self.source = source
        self.looked: float | None = None
        self.done: tuple[Hashable, list[int]] | None = None
        """The state in which nothing was left to do, and how much was known then: a file may be lost."""
        self.failures = 0

    def start_over(self) -> None:
        """Have the passages compared again."""
        self.done = None


class BackgroundEmbedding(Jobs[ScopeEmbedding]):
    """Embeds the memories of a home that are searched; safe for threads and forks.

    `again` is how many seconds pass between two looks at one memory, `pauses` the shortest and the longest after
    something went wrong. `settled` gets the outcome of each look at a memory: an error, or None.
    """

    _THREAD = "backstory-embedding"

    def __init__(
        self,
        *,
        again: float = _AGAIN_SECONDS,
        pauses: tuple[float, float] = _PAUSES,
        idle: float = Jobs.IDLE_SECONDS,
        settled: Callable[[Scope, Exception | None], None] = lambda *_: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._again = again
        self._pauses = pauses
        self.IDLE_SECONDS = idle
        self._now = now
        self._settled = settled
        super().__init__()

    def renew(self) -> None:
        """Begin anew in a child of this process, which has none of its threads."""
        super().renew()
        self._due: dict[ScopeEmbedding, float] = {}

    # What is wanted.

    def wanted(self, memory: ScopeEmbedding) -> None:
        """Take note that a memory's meanings are asked for; it costs nothing where that is known already."""
        if memory in self._due:
            return
        with self._changed:
            if self.ending:
                return
            self._due.setdefault(memory, 0.0 if memory.looked is None else memory.looked + self._pause(memory))
            self._wake()

    def _pause(self, memory: ScopeEmbedding) -> float:
        if not memory.failures:
            return self._again
        shortest, longest = self._pauses
        return min(longest, shortest * 2.0 ** min(memory.failures - 1, 30))

    def close(self, patience: float = _END_SECONDS) -> None:
        """End the thread, after the batch that it is at; what is not embedded is embedded another time.

        Where the model is not done with that batch after these seconds the thread is left to end by itself.
        """
        with self._changed:
            self._due.clear()
        self.end(patience)

    def _finish(self, seconds: float) -> None:
        # A thread that is in a model's code when the interpreter ends would take the process down with it.
        self.close(seconds)

    # The thread.

    def _work(self) -> None:
        _step_back()
        super()._work()

    def _next(self) -> tuple[float, ScopeEmbedding | None] | None:
        if not self._due:
            return None
        memory = min(self._due, key=self._due.__getitem__)
        left = self._due[memory] - self._now()
        if left > 0:
            return left, None
        del self._due[memory]
        return left, memory

    def _run(self, memory: ScopeEmbedding, /) -> None:
        try:
            finished = self._bring(memory)
            memory.failures = 0
            self._settled(memory.scope, None)
        except Exception as error:  # noqa: BLE001 the thread outlives whatever one memory does to it
            if self.ending:
                # What it worked with was closed under it.
                return
            self._tell(memory, error)
            finished = False
        with self._changed:
            memory.looked = self._now()
            if not finished and not self.ending:
                self._due.setdefault(memory, memory.looked + (self._pause(memory) if memory.failures else 0.0))

    def _bring(self, memory: ScopeEmbedding) -> bool:
        """Embed what is missing in a memory; False where something is left."""
        source = memory.source()
        # Asked first: what is committed meanwhile makes it another one.
        state = source.state()
        if memory.done is not None and memory.done == (state, _counts(source)):
            return True
        ends = self._now() + _TURN_SECONDS

        def stop() -> bool:
            return self.ending or (bool(self._due) and self._now() >= ends)

        for space in source.spaces:
            source.vectors.bring(space, source.passages(space), stop=stop)
            if stop():
                return False
        memory.done = (state, _counts(source))
        return True

    def _tell(self, memory: ScopeEmbedding, error: Exception) -> None:
        memory.failures += 1
        level = logging.WARNING if memory.failures == 1 else logging.DEBUG
        trace = None if isinstance(error, BackstoryError) else error
        message = "%s is searched by words as far as it is not embedded, which is tried again: %s"
        _log.log(level, message, memory.scope, error, exc_info=trace)
        self._settled(memory.scope, error)

    # In the foreground.

    def catch_up(
        self, memory: ScopeEmbedding, *, timeout: float | None = None, progress: Bringing | None = None
    ) -> Embedded:
        """Embed here and now what of a memory is not embedded yet; return how far it is.

        Args:
            memory: The memory.
            timeout: For how many seconds at most.
            progress: Gets how many are done, of how many.

        Raises:
            ModelUnavailableError, ModelRejectedError: Something cannot be embedded; what was is kept.
            LockTimeoutError, CorruptLogError, StoreError: As the memory's logs and files.
        """
        source = memory.source()
        ends = None if timeout is None else self._now() + timeout

        def left() -> float | None:
            return None if ends is None else max(0.0, ends - self._now())

        def stop() -> bool:
            return self.ending or left() == 0

        new = embedded = total = 0
        for space in source.spaces:
            read: list[Passage] = []
            before = (embedded, total)

            def report(done: int, of: int, before: tuple[int, int] = before) -> None:
                if progress is not None:
                    progress(before[0] + done, before[1] + of)

            listed = _noted(source.passages(space), read)
            new += source.vectors.bring(space, listed, stop=stop, left=left, progress=report)
            embedded += source.vectors.embedded(space, read)
            total += len(read)
        return Embedded(source.vectors.embedder.name, embedded, total, new)


def _counts(source: Source) -> list[int]:
    return [source.vectors.count(space) for space in source.spaces]


def _noted(passages: Iterable[Passage], read: list[Passage]) -> Iterator[Passage]:
    """Pass passages on, and remember which; their texts are not needed any more."""
    for passage in passages:
        read.append(Passage(passage.key, "", passage.digest))
        yield passage


def _step_back() -> None:
    """Give other threads precedence: Linux knows a niceness of threads, and those a model starts inherit it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
