"""What is loaded beside everything else, so that nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from backstory.ledger.concurrency.forks import register, start_thread

__all__ = ["BackgroundLoad"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_GRACE_SECONDS = 0.1
"""A library that is being loaded lets nothing else run, so whoever has begun it gets away first."""


class BackgroundLoad(Generic[_T]):
    """A value that is `until` something until `load` has returned a better one, which is tried once.

    `what` names it in the log. Safe for threads and forks; nobody waits for the load but whoever calls `wait`.
    """

    def __init__(self, what: str, until: _T, load: Callable[[], _T]) -> None:
        self._what = what
        self._value = until
        self._load = load
        self._begun = False
        self._mutex = threading.Lock()
        self._over = threading.Event()
        self._wanted = threading.Event()
        register(self)

    @property
    def value(self) -> _T:
        """The best there is by now."""
        return self._value

    def begin(self) -> None:
        """Have it loaded by a thread, unless that was tried before."""
        with self._mutex:
            begun, self._begun = self._begun, True
        if begun:
            return
        if start_thread("backstory-later", self._run) is None:
            _log.debug("%s is not loaded: no thread can start", self._what)
            self._over.set()

    def wait(self, timeout: float | None = None) -> _T:
        """Wait until the load is over, for so many seconds at most, and return the best there is then."""
        self._wanted.set()
        self.begin()
        self._over.wait(timeout)
        return self._value

    def _run(self) -> None:
        self._wanted.wait(_GRACE_SECONDS)
        try:
            self._value = self._load()
        except Exception as error:  # noqa: BLE001 what is wrong with a library must not reach a prompt
            _log.warning("%s cannot be loaded, so it is done without: %s", self._what, error)
        finally:
            self._over.set()

    def renew(self) -> None:
        """Begin anew in a child of this process: a thread that was loading is not there."""
        self._mutex = threading.Lock()
        if not self._over.is_set():
            self._begun = False
            self._over = threading.Event()
            self._wanted = threading.Event()
