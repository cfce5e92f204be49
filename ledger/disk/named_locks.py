"""Locks by name among the threads of a process, each of which stands for a lock among processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.errors import LockTimeoutError

__all__ = ["Hold", "NamedLocks", "held_elsewhere", "polled"]

_T = TypeVar("_T")

_POLL_SECONDS = (0.0005, 0.02)


class Hold:
    """One lock among the threads of this process; the one that has it may take it again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.users = 0
        """How many threads have it or wait for it."""
        self.depth = 0


_H = TypeVar("_H", bound=Hold)


class NamedLocks(Generic[_H]):
    """Locks by name, re-entrant in a thread; the first thread that takes one takes it from other processes as well.

    Args:
        make: Makes the hold of a name.
    """

    def __init__(self, make: Callable[[str], _H]) -> None:
        self._make = make
        self._forget()

    def _forget(self) -> None:
        """Hold nothing, as in a forked child: what is held is the parent's."""
        self._guard = threading.RLock()
        self._holds: dict[str, _H] = {}

    def _lock(self, hold: _H, timeout: float) -> None:
        """Take a lock from other processes, or raise LockTimeoutError; 0 seconds are no wait at all."""
        raise NotImplementedError

    def _unlock(self, hold: _H) -> None:
        """Give a lock back to other processes."""
        raise NotImplementedError

    def _take(self, name: str, timeout: float) -> _H:
        """Take a lock, or take it again; the caller gives it back.

        Raises:
            LockTimeoutError: Another thread or process keeps it.
        """
        hold = self._acquired(name, timeout)
        try:
            if hold.depth == 0:
                self._lock(hold, timeout)
        except BaseException:
            self._release(hold)
            raise
        hold.depth += 1
        return hold

    def _give_back(self, hold: _H) -> None:
        """Give a lock back as often as it was taken."""
        try:
            hold.depth -= 1
            if hold.depth == 0:
                self._unlock(hold)
        finally:
            self._release(hold)

    @contextmanager
    def among_threads(self, name: str, timeout: float) -> Iterator[_H]:
        """Keep the other threads of this process off, and only these.

        Raises:
            LockTimeoutError: Another thread keeps it.
        """
        hold = self._acquired(name, timeout)
        try:
            yield hold
        finally:
            self._release(hold)

    def _acquired(self, name: str, timeout: float) -> _H:
        with self._guard:
            hold = self._holds.get(name)
            if hold is None:
                hold = self._holds[name] = self._make(name)
            hold.users += 1
        try:
            if hold.lock.acquire(timeout=timeout):
                return hold
        except BaseException:
            self._left(hold)
            raise
        self._left(hold)
        raise LockTimeoutError(f"{name} is still locked by another thread after {timeout:g} s: try again")

    def _release(self, hold: _H) -> None:
        hold.lock.release()
        self._left(hold)

    def _left(self, hold: _H) -> None:
        """Count one user less, and drop a lock without users."""
        with self._guard:
            hold.users -= 1
            if not hold.users and self._holds.get(hold.name) is hold:
                del self._holds[hold.name]


def held_elsewhere(name: str, timeout: float) -> LockTimeoutError:
    """Return the error for a lock that another process has kept for `timeout` seconds; 0 if it was not waited for."""
    if not timeout:
        return LockTimeoutError(f"{name} is held by another process just now: try again")
    return LockTimeoutError(
        f"{name} is held by another process after {timeout:g} s: end that process, or raise file_lock_timeout_seconds"
    )


def polled(attempt: Callable[[], _T | None], timeout: float, clock: Clock) -> _T | None:
    """Return what an attempt returns, made again while that is None, for `timeout` seconds including the attempts."""
    waited, pause, end = 0.0, _POLL_SECONDS[0], time.monotonic() + timeout
    while (found := attempt()) is None and waited < timeout and time.monotonic() < end:
        clock.sleep(pause)
        waited += pause
        pause = min(pause * 2, _POLL_SECONDS[1])
    return found
