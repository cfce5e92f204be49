"""Jobs: what a service does in the background, later or again, in threads that its first job starts."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from typing import Any, ClassVar, Generic, Literal, TypeVar

from backstory.ledger.concurrency.forks import start_thread

_log = logging.getLogger(__name__)

_EXIT_SECONDS = 5.0
"""How long all services together may finish their work when the interpreter ends."""
_FORK_SECONDS = 1.0
_FAULT_SECONDS = 1.0
_LOOK_SECONDS = 30.0
"""How long a thread waits at most before it looks again: the clock may be set meanwhile."""

_K = TypeVar("_K")


class Jobs(Generic[_K]):
    """Base of a service that works in the background: its threads run what is due. Safe for threads and forks.

    A thread ends after `IDLE_SECONDS` without a job; the next job starts another. A job that raises anything, be it
    SystemExit, is logged, and ends no thread: a real signal interrupts the main thread only.

    Args:
        workers: how many threads run jobs side by side; 0 leaves them to who calls the service.
    """

    _THREAD: ClassVar[str]
    IDLE_SECONDS = 60.0

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        self.ending = False
        self.renew()
        _living.add(self)

    def renew(self) -> None:
        """Begin without a thread, as in a forked child."""
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._busy = threading.RLock()
        """Held while files are used, so that a fork does not cut that in half."""

    @property
    def is_inherited(self) -> bool:
        """Whether this is a copy in a forked child that nothing has renewed, because its home was not used any more.

        Its locks are as the fork found them, and its work is the parent's.
        """
        return self._process != os.getpid()

    def pause(self) -> bool:
        """Wait until no file is used; return False if that takes too long."""
        return self._busy.acquire(timeout=_FORK_SECONDS)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._busy.release()

    def _next(self) -> tuple[float, _K | None] | None:
        """Return in how many seconds to look again, and the job that is due now; None without any job.

        The caller holds `_changed`.
        """
        raise NotImplementedError

    def _run(self, job: _K, /) -> None:
        raise NotImplementedError

    def _finish(self, seconds: float) -> None:
        """Finish the work when the interpreter ends and nothing has ended the service."""

    def _wake(self) -> bool:
        """Wake the threads, or start them, with `_changed` held; False if none can start, as when the process ends."""
        self._changed.notify_all()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while len(self._threads) < self._workers and (thread := start_thread(self._THREAD, self._work)) is not None:
            self._threads.append(thread)
        return bool(self._threads)

    def end(self, patience: float | None = 0.0) -> None:
        """Make the threads end after what they have to do; wait that long for each, with None as long as it takes."""
        if self.is_inherited:
            return
        with self._changed:
            self.ending = True
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(patience)

    def _work(self) -> None:
        while (job := self._await()) is not None:
            try:
                self._run(job)
            except BaseException:  # noqa: BLE001 see above
                _log.exception("%s: a job ended in a fault, please report this; the thread goes on", self._THREAD)
                # It may be due again at once.
                with self._changed:
                    self._changed.wait(_FAULT_SECONDS)
            # While it waits a thread holds nothing of its last job, or a home that nothing uses would stay.
            del job

    def _await(self) -> _K | None:
        with self._changed:
            idle_at = time.monotonic() + self.IDLE_SECONDS
            while True:
                found = self._next()
                left, job = found or (idle_at - time.monotonic(), None)
                if job is not None:
                    return job
                if found is None and (self.ending or left <= 0):
                    self._threads.remove(threading.current_thread())
                    return None
                self._changed.wait(min(left, _LOOK_SECONDS))


class Repeated(Jobs[Literal[True]]):
    """Base of a service that does one thing every `seconds`, as long as it is wanted."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        super().__init__()

    def renew(self) -> None:
        """See `Jobs.renew`."""
        super().renew()
        self._at: float | None = None
        """When to do it again, by the machine's monotonic clock; None while it is not wanted."""

    def _is_wanted(self) -> bool:
        """Whether there is something to do; the caller holds `_changed`."""
        raise NotImplementedError

    def _step(self) -> None:
        raise NotImplementedError

    def _next(self) -> tuple[float, Literal[True] | None] | None:
        if not self._is_wanted():
            self._at = None
            return None
        now = time.monotonic()
        self._at = self._at or now + self._seconds
        return self._at - now, True if self._at <= now else None

    def _run(self, _: Literal[True], /) -> None:
        try:
            self._step()
        finally:
            self._at = time.monotonic() + self._seconds


_living: weakref.WeakSet[Jobs[Any]] = weakref.WeakSet()


def _at_exit() -> None:
    end = time.monotonic() + _EXIT_SECONDS
    for service in list(_living):
        if not service.ending and not service.is_inherited:
            service._finish(max(0.0, end - time.monotonic()))  # noqa: SLF001 the same module


atexit.register(_at_exit)
