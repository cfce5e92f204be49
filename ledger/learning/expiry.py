"""Expiry: takes facts out of memory at the moment that they state, in the background."""

from __future__ import annotations

import logging
import weakref
from datetime import timedelta
from typing import Literal

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.jobs import Jobs
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.log.writer import Writer

_log = logging.getLogger(__name__)

_AFTER_FAILURE = timedelta(minutes=1)


class Expiry(Jobs[Literal[True]]):
    """Commits an `expiry` in each memory in use when the next of its facts lapses; safe for threads and forks.

    It holds no memory alive, so no job of the thread is one. A memory that nothing uses is served without such facts
    all the same, and the next commit in it takes them out, as it does after the end and in a forked child.

    Args:
        clock: decides what has lapsed.
        background: whether a thread does it at the moment; it starts with the first fact that will lapse.
    """

    _THREAD = "backstory-expiry"

    def __init__(self, clock: Clock, *, background: bool) -> None:
        self._clock = clock
        super().__init__(workers=int(background))

    def renew(self) -> None:
        """Begin anew in a forked child; the parent takes out what it was reminded of."""
        super().renew()
        self._due: weakref.WeakKeyDictionary[Writer, str] = weakref.WeakKeyDictionary()

    def note(self, writer: Writer, moment: str) -> None:
        """Note when the next fact of a memory lapses, as commits spell it."""
        with self._changed:
            if self.ending:
                return
            self._due[writer] = moment
            self._wake()

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

    def _next(self) -> tuple[float, Literal[True] | None] | None:
        now = self._clock.now()
        moments = (parse_moment(moment) for moment in self._due.values())
        waits = [(moment - now).total_seconds() for moment in moments if moment is not None]
        if self.ending or not waits:
            return None
        return min(waits), None if min(waits) > 0 else True

    def _run(self, _: Literal[True], /) -> None:
        self.run_due()
