"""Expiry: takes facts out of memory at the moment that they state, in the background."""

from __future__ import annotations

import logging
import threading
import weakref
from datetime import timedelta

from backstory.ledger.concurrency.forks import register, start_thread
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.log.clock import Clock
from backstory.ledger.log.writer import Writer

_log = logging.getLogger(__name__)

_AFTER_FAILURE = timedelta(minutes=1)
_LOOK_SECONDS = 30.0
"""How long it waits at most: the clock may be set meanwhile."""


class Expiry:
    """Commits an `expiry` in each memory in use when the next of its facts lapses; safe for threads and forks.

    It holds no memory alive. One that nothing uses is served without such facts all the same, and the next commit in it
    takes them out.

    Args:
        clock: tells what has lapsed.
        background: whether a thread does it at the moment; it starts with the first fact that will lapse.
    """

    def __init__(self, clock: Clock, *, background: bool) -> None:
        self._clock = clock
        self._background = background
        self._due: weakref.WeakKeyDictionary[Writer, str] = weakref.WeakKeyDictionary()
        self._closed = False
        self.renew()
        register(self)

    def renew(self) -> None:
        """Begin anew in a forked child; the parent takes out what it was reminded of."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due = weakref.WeakKeyDictionary()

    def note(self, writer: Writer, moment: str) -> None:
        """Note when the next fact of a memory lapses, as commits spell it."""
        with self._changed:
            if self._closed:
                return
            self._due[writer] = moment
            if self._background and self._thread is None:
                self._thread = start_thread("backstory-expiry", self._run)
            self._changed.notify_all()

    def run_due(self) -> int:
        """Take out everything that has lapsed by now, in this thread; returns how many commits that took."""
        now = spell_moment(self._clock.now())
        with self._changed:
            due = [writer for writer, moment in self._due.items() if moment <= now]
            for writer in due:
                del self._due[writer]
        return sum(self._expire(writer) for writer in due)

    def _expire(self, writer: Writer) -> bool:
        try:
            return writer.expire_lapsed() is not None
        except BackstoryError as error:
            _log.warning("%s: what has lapsed is hidden, and not taken out of memory yet: %s", writer.scope, error)
            with self._changed:
                self._due[writer] = spell_moment(self._clock.now() + _AFTER_FAILURE)
            return False

    def close(self) -> None:
        """End the thread; what has lapsed by then is taken out by the next commit."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while self._waited():
            try:
                self.run_due()
            except Exception:  # noqa: BLE001 one memory must not end the thread
                _log.exception("what has lapsed is hidden, and not taken out of memory yet")

    def _waited(self) -> bool:
        """Wait for the next moment, or for news of one; return False at the end."""
        with self._changed:
            if not self._closed:
                self._changed.wait(self._pause())
            return not self._is_closed()

    def _is_closed(self) -> bool:
        return self._closed

    def _pause(self) -> float:
        """Return how many seconds it is to the next moment, as far as is known now."""
        now = self._clock.now()
        moments = (parse_moment(moment) for moment in self._due.values())
        waits = [(moment - now).total_seconds() for moment in moments if moment is not None]
        return max(0.0, min([*waits, _LOOK_SECONDS]))
