"""Scope counts: a scope's last seq and number of facts, read from its log without keeping anything in memory."""

from __future__ import annotations

from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import read_commits


def count_scope(store: EventStore, scope: Scope, stream: str) -> tuple[int, int] | None:
    """Return a ledger's last seq and the number of its live facts.

    Returns:
        None where the first commit belongs to another scope.

    Raises:
        CorruptLogError: a line is damaged.
    """
    fold = Fold(Memory())
    for commit in read_commits(store, stream, until=store.durable_head(stream)):
        if commit.seq == 1 and (commit.cause.user, commit.cause.agent) != (scope.user, scope.agent):
            return None
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return fold.seq, len(fold.facts)
