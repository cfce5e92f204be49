"""Retention: erases turns past their retention period, once nothing remains to be learned from them."""

from __future__ import annotations

import logging
from datetime import timedelta

from backstory.ledger.core.errors import UnavailableError
from backstory.ledger.core.events import Redacted
from backstory.ledger.log.writer import Writer

_log = logging.getLogger(__name__)

_CHECK_EVERY = timedelta(hours=1)


def erase_old_turns(writer: Writer, days: int | None) -> None:
    """Erase a scope's turns that are older than `days` days, at most once an hour: that reads the transcript.

    Where the store is unavailable, a later call tries again. None keeps the turns.
    """
    if days is None:
        return
    now, checked = writer.clock.now(), writer.retained_at
    if checked is not None and checked <= now < checked + _CHECK_EVERY:
        return
    writer.retained_at = now
    try:
        commit = writer.expire(now - timedelta(days=days))
    except UnavailableError as error:
        _log.warning("%s: expired turns are not erased yet: %s", writer.scope, error)
    else:
        if commit is not None:
            turns = sum(isinstance(event, Redacted) and event.n is not None for event in commit.events)
            _log.info("%s: commit %d erased %d expired turns", writer.scope, commit.seq, turns)
