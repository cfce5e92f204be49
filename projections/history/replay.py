"""Memory at any moment: the log, folded; nothing is decided on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import read_commits

__all__ = ["Moment", "fold", "memories_when", "memory_at", "read_moment", "replay"]

_LONGEST_SEQ = 18

Moment = int | str
"""A seq, or a time spelled as the logs spell it."""


def read_moment(text: str | int) -> Moment:
    """Read SEQ or TIME.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(text, int):
        if text < 0:
            raise UsageError(f"{text} is no commit: they count from 1, and 0 is the empty memory")
        return text
    if text.strip().isdecimal() and len(text) <= _LONGEST_SEQ:
        return int(text)
    moment = parse_moment(text)
    if moment is None:
        raise UsageError(f"{text!r} is neither a commit's number nor a time in ISO 8601, as 2026-03-12T10:30:00Z")
    return spell_moment(moment)


def fold(commits: Iterable[Commit]) -> Memory:
    """Fold commits, from the first on."""
    state = Fold(Memory())
    for commit in commits:
        state.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return state.memory()


def replay(store: EventStore, scope: Scope) -> Memory:
    """Rebuild today's memory from the log alone.

    Raises:
        CorruptLogError: at the first line that is not what was written.
    """
    return fold(read_commits(store, scope.stream(LEDGER)))


def memory_at(store: EventStore, scope: Scope, moment: Moment) -> Memory:
    """Rebuild the memory after a commit, or as it was at a time.

    Raises:
        NotFoundError: the ledger has no such commit yet.
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
    """Rebuild the memories whose documents state this `lastUpdated`: several commits may bear the same time."""
    state = Fold(Memory())
    for commit in read_commits(store, scope.stream(LEDGER)):
        if commit.at > last_updated:
            break
        state.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        if state.changed_at == last_updated:
            yield state.memory()
