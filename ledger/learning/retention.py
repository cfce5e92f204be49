"""How long words are kept: turns past their time are erased, with proof, once nothing is to be learned from them."""

from __future__ import annotations

import logging
import weakref
from datetime import datetime, timedelta

from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import UnavailableError
from backstory.ledger.core.events import Redacted
from backstory.ledger.log.clock import Clock
from backstory.ledger.log.writer import Writer

__all__ = ["Retention"]

_log = logging.getLogger(__name__)

_LOOK_AGAIN = timedelta(hours=1)


class Retention:
    """Erases what is older than `days` days; to look means to read a transcript, so it looks once an hour at most."""

    def __init__(self, days: int, clock: Clock) -> None:
        self._kept = timedelta(days=days)
        self._clock = clock
        self._looked: weakref.WeakKeyDictionary[Writer, datetime] = weakref.WeakKeyDictionary()
        self._mutex = ForkLock()

    def tidy(self, writer: Writer) -> None:
        """Erase a scope's turns whose time has come; where that cannot be done now it is tried again later."""
        now = self._clock.now()
        with self._mutex:
            looked = self._looked.get(writer)
            if looked is not None and looked <= now < looked + _LOOK_AGAIN:
                return
            self._looked[writer] = now
        try:
            commit = writer.expire(now - self._kept)
        except UnavailableError as error:
            _log.warning("%s: turns past their time are not erased yet: %s", writer.scope, error)
        else:
            if commit is not None:
                turns = sum(isinstance(event, Redacted) and event.n is not None for event in commit.events)
                _log.info("%s: commit %d erased %d turns past their time", writer.scope, commit.seq, turns)
