"""Replay: rebuilds the memory at any moment by folding the log; nothing is decided again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits, read_durable_commits

Moment = int | str
"""A seq, or a time as commits spell it."""


def fold(commits: Iterable[Commit]) -> Memory:
    """Fold commits, from the first on, into a memory."""
    state = Fold(Memory())
    for commit in commits:
        state.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return state.memory()


def replay(store: EventStore, scope: Scope) -> Memory:
    """Rebuild today's memory from the log alone.

    Raises:
        CorruptLogError: a line is damaged.
    """
    return fold(read_commits(store, scope.stream(LEDGER)))


def memory_at(store: EventStore, scope: Scope, moment: Moment) -> Memory:
    """Rebuild the memory after a commit or at a time.

    Raises:
        NotFoundError: the ledger does not have the commit.
    """
    state = Fold(Memory())
    for commit in read_commits(store, scope.stream(LEDGER)):
        if commit.seq > moment if isinstance(moment, int) else commit.at > moment:
            break
        state.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    if isinstance(moment, int) and state.seq < moment:
        raise NotFoundError(f"there is no commit {moment}: the ledger of {scope} ends at {state.seq}")
    return state.memory()


def memories_when(store: EventStore, scope: Scope, last_updated: str) -> Iterator[Memory]:
    """Rebuild the memories whose document has this `lastUpdated`; several commits may have the same time."""
    state = Fold(Memory())
    for commit in read_commits(store, scope.stream(LEDGER)):
        if commit.at > last_updated:
            break
        state.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        if state.changed_at == last_updated:
            yield state.memory()


def count_scope(store: EventStore, scope: Scope, stream: str) -> tuple[int, int] | None:
    """Return a ledger's last seq and the number of its live facts.

    Returns:
        None where the first commit belongs to another scope.

    Raises:
        CorruptLogError: a line is damaged.
    """
    fold = Fold(Memory())
    for commit in read_durable_commits(store, stream):
        if commit.seq == 1 and (commit.cause.user, commit.cause.agent) != (scope.user, scope.agent):
            return None
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return fold.seq, len(fold.facts)
