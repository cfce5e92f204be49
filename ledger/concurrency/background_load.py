"""Background load: a value with a fallback that is used until a thread has loaded it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from backstory.ledger.concurrency.jobs import Jobs

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_GRACE_SECONDS = 0.1
"""Importing a library blocks other threads, so the load waits for the caller of `begin` to return."""


class BackgroundLoad(Jobs[Literal[True]], Generic[_T]):
    """A value that is loaded once, in the background; safe for threads and forks. Only `wait` blocks.

    Args:
        what: the name of the value in the log.
        until: the value until the load has ended, and after a failure.
        load: returns the value.
    """

    _THREAD = "backstory-load"
    IDLE_SECONDS = 0.0

    def __init__(self, what: str, until: _T, load: Callable[[], _T]) -> None:
        self._what = what
        self._value = until
        self._load = load
        self._over = False
        super().__init__()

    def renew(self) -> None:
        """Begin anew in a child of this process: a thread that was loading is not there."""
        super().renew()
        self._at: float | None = None
        """When to load, by the machine's monotonic clock; None before `begin`."""

    @property
    def value(self) -> _T:
        """The loaded value, or the fallback."""
        return self._value

    def begin(self) -> None:
        """Start the load, unless it was started before."""
        if self._over or self._at is not None:
            return
        with self._changed:
            self._at = self._at or time.monotonic() + _GRACE_SECONDS
            if not self._wake():
                _log.debug("%s is not loaded: no thread can start", self._what)
                self._over = True

    def wait(self, timeout: float | None = None) -> _T:
        """Wait for the load, at most `timeout` seconds, and return the value or the fallback; 0 only begins it."""
        self.begin()
        if timeout != 0:
            with self._changed:
                self._at = 0.0
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._over, timeout)
        return self._value

    def _next(self) -> tuple[float, Literal[True] | None] | None:
        if self._over or self._at is None:
            return None
        left = self._at - time.monotonic()
        return left, True if left <= 0 else None

    def _run(self, _: Literal[True], /) -> None:
        try:
            self._value = self._load()
        except Exception as error:  # noqa: BLE001 a broken library must not break a prompt
            _log.warning("%s cannot be loaded, so the fallback is used: %s", self._what, error)
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()
