"""Background embedding: a thread that embeds what is not embedded yet.

One thread per home, started by the first need, goes from scope to scope and asks whether to stop after each batch. It
runs at a low priority where the system knows such a thing for threads, and ends when there has been nothing to do for a
while. What goes wrong is logged once, and tried again after longer and longer pauses; searching goes on meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol

import msgspec

from backstory.ledger.concurrency.forks import register, start_thread
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
_IDLE_SECONDS = 60.0
_END_SECONDS = 1.0
"""A batch that is done by then is kept when a home is closed; no longer wait for a model."""

_EXIT_SECONDS = 5.0
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


class BackgroundEmbedding:
    """Embeds the scopes of a home that are searched; safe for threads and forks.

    `source` says what is to be embedded of a scope; it is asked in the background. `again` is how many seconds pass
    between two looks at one scope, `pauses` the shortest and the longest after something went wrong. `settled` gets the
    outcome of each look at a scope: an error, or None.
    """

    def __init__(
        self,
        source: Callable[[Scope], Source],
        *,
        again: float = _AGAIN_SECONDS,
        pauses: tuple[float, float] = _PAUSES,
        idle: float = _IDLE_SECONDS,
        settled: Callable[[Scope, Exception | None], None] = lambda *_: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._again = again
        self._pauses = pauses
        self._idle = idle
        self._now = now
        self._settled = settled
        self._closed = False
        self._seen: Recent[Scope, _Seen] = Recent(_KEPT)
        self._begin()
        register(self)
        _embeddings.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[Scope, float] = {}
        self._thread: threading.Thread | None = None

    # What is wanted.

    def wanted(self, scope: Scope) -> None:
        """Take note that a scope's meanings are asked for; it costs nothing where that is known already."""
        if scope in self._due:
            return
        with self._changed:
            if self._closed:
                return
            seen = self._seen.get(scope)
            self._due.setdefault(scope, 0.0 if seen is None else seen.looked + self._pause(seen))
            if self._thread is None:
                self._thread = start_thread("backstory-embedding", self._run)
            self._changed.notify_all()

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
            self._closed = True
            self._due.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience)

    # The thread.

    def _run(self) -> None:
        _step_back()
        while (scope := self._next()) is not None:
            self._look(scope)

    def _next(self) -> Scope | None:
        """Wait for a scope that is due; None at the end, or where none was for a long time."""
        with self._changed:
            idle_at = self._now() + self._idle
            while not self._closed:
                scope = min(self._due, key=self._due.__getitem__, default=None)
                now = self._now()
                if scope is not None and self._due[scope] <= now:
                    del self._due[scope]
                    return scope
                until = idle_at if scope is None else self._due[scope]
                if scope is None and until <= now:
                    break
                self._changed.wait(until - now)
            self._thread = None
            return None

    def _look(self, scope: Scope) -> None:
        seen = self._seen.pop(scope, None) or _Seen(0.0)
        try:
            finished = self._bring(scope, seen)
            seen.failures = 0
            self._settled(scope, None)
        except Exception as error:  # noqa: BLE001 the thread outlives whatever one scope does to it
            if self._closed:
                # What it worked with was closed under it.
                return
            self._tell(scope, seen, error)
            finished = False
        seen.looked = self._now()
        with self._changed:
            self._seen.put(scope, seen)
            if not finished and not self._closed:
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
            return self._closed or (bool(self._due) and self._now() >= ends)

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
            return self._closed or left() == 0

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

    def renew(self) -> None:
        """Begin anew in a child of this process, which has none of its threads."""
        self._begin()


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


_embeddings: weakref.WeakSet[BackgroundEmbedding] = weakref.WeakSet()


def _at_exit() -> None:
    # A thread that is in a model's code when the interpreter ends would take the process down with it.
    for embedding in list(_embeddings):
        embedding.close(_EXIT_SECONDS)


atexit.register(_at_exit)
