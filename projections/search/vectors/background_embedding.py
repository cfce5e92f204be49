"""Background embedding: a thread that embeds what is not embedded yet.

One thread per home, started by the first need, goes from scope to scope and asks whether to stop after each batch. It
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
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import Scope
from backstory.projections.search.vectors.passages import Passage
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
_KEPT = 1024


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


class _Seen(msgspec.Struct):
    """What became of a scope when it was looked at last."""

    looked: float
    done: tuple[Hashable, list[int]] | None = None
    """The state in which nothing was left to do, and how much was known then: a file may be lost."""
    failures: int = 0


class BackgroundEmbedding(Jobs[Scope]):
    """Embeds the scopes of a home that are searched; safe for threads and forks.

    `source` says what is to be embedded of a scope; it is asked in the background. `again` is how many seconds pass
    between two looks at one scope, `pauses` the shortest and the longest after something went wrong. `settled` gets the
    outcome of each look at a scope: an error, or None.
    """

    _THREAD = "backstory-embedding"

    def __init__(
        self,
        source: Callable[[Scope], Source],
        *,
        again: float = _AGAIN_SECONDS,
        pauses: tuple[float, float] = _PAUSES,
        idle: float = Jobs.IDLE_SECONDS,
        settled: Callable[[Scope, Exception | None], None] = lambda *_: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._again = again
        self._pauses = pauses
        self.IDLE_SECONDS = idle
        self._now = now
        self._settled = settled
        self._seen: Recent[Scope, _Seen] = Recent(_KEPT)
        super().__init__()

    def renew(self) -> None:
        """Begin anew in a child of this process, which has none of its threads."""
        super().renew()
        self._due: dict[Scope, float] = {}

    # What is wanted.

    def wanted(self, scope: Scope) -> None:
        """Take note that a scope's meanings are asked for; it costs nothing where that is known already."""
        if scope in self._due:
            return
        with self._changed:
            if self.ending:
                return
            seen = self._seen.get(scope)
            self._due.setdefault(scope, 0.0 if seen is None else seen.looked + self._pause(seen))
            self._wake()

    def _pause(self, seen: _Seen) -> float:
        if not seen.failures:
            return self._again
        shortest, longest = self._pauses
        return min(longest, shortest * 2.0 ** min(seen.failures - 1, 30))

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

    def _next(self) -> tuple[float, Scope | None] | None:
        if not self._due:
            return None
        scope = min(self._due, key=self._due.__getitem__)
        left = self._due[scope] - self._now()
        if left > 0:
            return left, None
        del self._due[scope]
        return left, scope

    def _run(self, scope: Scope, /) -> None:
        seen = self._seen.pop(scope, None) or _Seen(0.0)
        try:
            finished = self._bring(scope, seen)
            seen.failures = 0
            self._settled(scope, None)
        except Exception as error:  # noqa: BLE001 the thread outlives whatever one scope does to it
            if self.ending:
                # What it worked with was closed under it.
                return
            self._tell(scope, seen, error)
            finished = False
        seen.looked = self._now()
        with self._changed:
            self._seen.put(scope, seen)
            if not finished and not self.ending:
                self._due.setdefault(scope, seen.looked + (self._pause(seen) if seen.failures else 0.0))

    def _bring(self, scope: Scope, seen: _Seen) -> bool:
        """Embed what is missing in a scope; False where something is left."""
        source = self._source(scope)
        # Asked first: what is committed meanwhile makes it another one.
        state = source.state()
        if seen.done is not None and seen.done == (state, _counts(source)):
            return True
        ends = self._now() + _TURN_SECONDS

        def stop() -> bool:
            return self.ending or (bool(self._due) and self._now() >= ends)

        for space in source.spaces:
            source.vectors.bring(space, source.passages(space), stop=stop)
            if stop():
                return False
        seen.done = (state, _counts(source))
        return True

    def _tell(self, scope: Scope, seen: _Seen, error: Exception) -> None:
        seen.failures += 1
        level = logging.WARNING if seen.failures == 1 else logging.DEBUG
        trace = None if isinstance(error, BackstoryError) else error
        message = "%s is searched by words as far as it is not embedded, which is tried again: %s"
        _log.log(level, message, scope, error, exc_info=trace)
        self._settled(scope, error)

    # In the foreground.

    def catch_up(self, scope: Scope, *, timeout: float | None = None, progress: Bringing | None = None) -> Embedded:
        """Embed here and now what of a scope is not embedded yet, for `timeout` seconds at most; return how far it is.

        Raises:
            ModelUnavailableError, ModelRejectedError: something cannot be embedded; what was is kept.
            LockTimeoutError, CorruptLogError, StoreError: as the scope's logs and files.
        """
        source = self._source(scope)
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
