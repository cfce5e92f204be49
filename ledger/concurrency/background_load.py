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
        self._what = what
        self._value = until
        self._load = load
        self._begun = False
        self._mutex = threading.Lock()
        self._over = threading.Event()
        self._wanted = threading.Event()

    @property
    def value(self) -> _T:
        """The loaded value, or the fallback."""
        return self._value

    def begin(self) -> None:
        """Start the load, unless it was started before."""
        with self._mutex:
            begun, self._begun = self._begun, True
        if begun:
            return
        if start_thread("backstory-later", self._run) is None:
            _log.debug("%s is not loaded: no thread can start", self._what)
            self._over.set()

    def wait(self, timeout: float | None = None) -> _T:
        """Wait for the load, at most `timeout` seconds, and return the value or the fallback; 0 only begins it."""
        if timeout != 0:
            self._wanted.set()
        self.begin()
        self._over.wait(timeout)
        return self._value

    def _run(self) -> None:
        self._wanted.wait(_GRACE_SECONDS)
        try:
            self._value = self._load()
        except Exception as error:  # noqa: BLE001 a broken library must not break a prompt
            _log.warning("%s cannot be loaded, so the fallback is used: %s", self._what, error)
        finally:
            self._over.set()

    def renew(self) -> None:
        """Begin anew in a child of this process: a thread that was loading is not there."""
        self._mutex = threading.Lock()
        if not self._over.is_set():
            self._begun = False
            self._over = threading.Event()
            self._wanted = threading.Event()
