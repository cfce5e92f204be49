"""How far each of many scopes has come: read straight off its log, and nothing of it is kept."""

from __future__ import annotations

from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import read_commits

__all__ = ["tally"]


def tally(store: EventStore, scope: Scope, stream: str) -> tuple[int, int] | None:
    """Return a ledger's last seq and its live facts; None where its first commit says that it is another scope's.

    Raises:
        CorruptLogError: at the first line that is not what was written.
    """
    fold = Fold(Memory())
    for commit in read_commits(store, stream, until=store.durable_head(stream)):
        if commit.seq == 1 and (commit.cause.user, commit.cause.agent) != (scope.user, scope.agent):
            return None
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return fold.seq, len(fold.facts)
