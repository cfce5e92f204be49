"""Retention: erases turns past their retention period, once nothing remains to be learned from them."""

from __future__ import annotations

import logging
from datetime import timedelta

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.errors import UnavailableError
from backstory.ledger.core.events import Redacted
from backstory.ledger.log.writer import Writer

_log = logging.getLogger(__name__)

_CHECK_EVERY = timedelta(hours=1)


class Retention:
    """Erases turns older than `days` days; checks a scope at most once an hour, because that reads its transcript."""

    def __init__(self, days: int, clock: Clock) -> None:
        self._period = timedelta(days=days)
        self._clock = clock

    def apply(self, writer: Writer) -> None:
        """Erase a scope's expired turns; where the store is unavailable, a later call tries again."""
        now = self._clock.now()
        checked = writer.retained_at
        if checked is not None and checked <= now < checked + _CHECK_EVERY:
            return
        writer.retained_at = now
        try:
            commit = writer.expire(now - self._period)
        except UnavailableError as error:
            _log.warning("%s: expired turns are not erased yet: %s", writer.scope, error)
        else:
            if commit is not None:
                turns = sum(isinstance(event, Redacted) and event.n is not None for event in commit.events)
                _log.info("%s: commit %d erased %d expired turns", writer.scope, commit.seq, turns)
