"""Background load: a value with a fallback that is used until a thread has loaded it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from backstory.ledger.concurrency.forks import start_thread

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_GRACE_SECONDS = 0.1
"""Importing a library blocks other threads, so the load waits for the caller of `begin` to return."""


class BackgroundLoad(Generic[_T]):
    """A value that is loaded once, in the background; safe for threads and forks. Only `wait` blocks.

    Args:
        what: the name of the value in the log.
        until: the value until the load has ended, and after a failure.
        load: returns the value.
    """

    def __init__(self, what: str, until: _T, load: Callable[[], _T]) -> None:
        self.value = until
        """The loaded value, or the fallback."""
        self._what = what
        self._load = load
        self._over = False
        self.renew()

    def renew(self) -> None:
        """Begin anew in a child of this process: a thread that was loading is not there."""
        self._begun = threading.Lock()
        """Taken by the first who begins, and kept."""
        self._hurry, self._ended = threading.Event(), threading.Event()

    def begin(self) -> None:
        """Start the load, unless it was started before."""
        if self._over or not self._begun.acquire(blocking=False):
            return
        if start_thread("backstory-load", self._work) is None:
            _log.debug("%s is not loaded: no thread can start", self._what)
            self._end()

    def wait(self, timeout: float | None = None) -> _T:
        """Wait for the load, at most `timeout` seconds, and return the value or the fallback; 0 only begins it."""
        self.begin()
        if timeout != 0 and not self._over:
            self._hurry.set()
            self._ended.wait(timeout)
        return self.value

    def _work(self) -> None:
        self._hurry.wait(_GRACE_SECONDS)
        try:
            self.value = self._load()
        except Exception as error:  # noqa: BLE001 a broken library must not break a prompt
            _log.warning("%s cannot be loaded, so the fallback is used: %s", self._what, error)
        finally:
            self._end()

    def _end(self) -> None:
        self._over = True
        self._ended.set()
