"""Jobs: what a service does in the background, in one thread that its first job starts."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from typing import Any, ClassVar, Generic, TypeVar

from backstory.ledger.concurrency.forks import start_thread

_EXIT_SECONDS = 5.0
"""How long all services together may finish their work when the interpreter ends."""
_FORK_SECONDS = 1.0

_K = TypeVar("_K")


class Jobs(Generic[_K]):
    """Base of a service that works in the background: its one thread runs what is due. Safe for threads and forks.

    The thread ends after `IDLE_SECONDS` without a job; the next job starts another.
    """

    _THREAD: ClassVar[str]
    IDLE_SECONDS = 60.0

    def __init__(self) -> None:
        self.ending = False
        self.renew()
        _living.add(self)

    def renew(self) -> None:
        """Begin without a thread, as in a forked child."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = threading.RLock()
        """Held while files are used, so that a fork does not cut that in half."""

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
        """Wake the thread, or start it, with `_changed` held; False if none can start, as when the interpreter ends."""
        self._changed.notify_all()
        if self._thread is None or not self._thread.is_alive():
            self._thread = start_thread(self._THREAD, self._work)
        return self._thread is not None

    def end(self, patience: float | None = 0.0) -> None:
        """Make the thread end after what it has to do; wait that long for it, with None as long as it takes."""
        with self._changed:
            self.ending = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience)

    def _work(self) -> None:
        while (job := self._await()) is not None:
            self._run(job)

    def _await(self) -> _K | None:
        with self._changed:
            idle_at = time.monotonic() + self.IDLE_SECONDS
            while True:
                found = self._next()
                left, job = found or (idle_at - time.monotonic(), None)
                if job is not None:
                    return job
                if found is None and (self.ending or left <= 0):
                    self._thread = None
                    return None
                self._changed.wait(left)


_living: weakref.WeakSet[Jobs[Any]] = weakref.WeakSet()


def _at_exit() -> None:
    end = time.monotonic() + _EXIT_SECONDS
    for service in list(_living):
        if not service.ending:
            service._finish(max(0.0, end - time.monotonic()))  # noqa: SLF001 the same module


atexit.register(_at_exit)
