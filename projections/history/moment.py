"""Memory at any moment, rebuilt by folding the log; nothing is decided again.

A moment is shown as a window of its facts, its sections, and what the commit at that moment changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.events import DOCUMENT_SECTIONS, Fact, FactRemoved
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import same_category
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.erasure.content import folded
from backstory.ledger.log.commits import read_commits, read_durable_commits
from backstory.projections.history.views import Diff, Revision, SectionChange, entry

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
        CorruptLogError: A line is damaged.
    """
    return fold(read_commits(store, scope.stream(LEDGER)))


def memories_when(store: EventStore, scope: Scope, last_updated: str) -> Iterator[Memory]:
    """Rebuild the memories whose document has this `lastUpdated`; several commits may have the same time."""
    return changed_at(Fold(Memory()), read_commits(store, scope.stream(LEDGER)), last_updated)


def changed_at(state: Fold, commits: Iterable[Commit], time: str) -> Iterator[Memory]:
    """Fold on, up to a time, and yield the memories that were changed last at that time."""
    for commit in commits:
        if commit.at > time:
            return
        state.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        if state.changed_at == time:
            yield state.memory()


def count_scope(store: EventStore, scope: Scope, stream: str, at: str) -> tuple[int, int] | None:
    """Return a ledger's last seq and the number of its facts that are served at a moment.

    Returns:
        None where the first commit belongs to another scope.

    Raises:
        CorruptLogError: A line is damaged.
    """
    fold = Fold(Memory())
    for commit in read_durable_commits(store, stream):
        if commit.seq == 1 and (commit.cause.user, commit.cause.agent) != (scope.user, scope.agent):
            return None
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return fold.seq, len(fold.memory().standing_at(at).facts)


FactOrder = Literal["born", "confidence", "content", "category"]
"""What facts are sorted by. Facts that are equal in it stay in the order of their births."""


class FactWindow(msgspec.Struct, frozen=True):
    """Some of the facts that match a question: those from `offset` on; `total` counts all that match."""

    total: int
    offset: int
    items: tuple[Fact, ...]


class SectionText(msgspec.Struct, frozen=True):
    """A section of the document; text and time are empty if it was never written."""

    section: str
    summary: str
    updated_at: str


class CommitChange(msgspec.Struct, frozen=True):
    """What one commit changed: the ids of added facts, removed facts as they were, and what differs of the rest.

    `evicted` are the ids of those removed facts that made room for others.
    """

    added: tuple[str, ...]
    removed: tuple[Fact, ...]
    revised: tuple[Revision, ...]
    sections: tuple[SectionChange, ...]
    evicted: tuple[str, ...] = ()

    @classmethod
    def of(cls, diff: Diff, commit: Commit | None) -> CommitChange:
        """Return the change that a difference states, which a commit made."""
        events = () if commit is None else commit.events
        evicted = tuple(one.fact.id for one in events if isinstance(one, FactRemoved) and one.reason == "cap")
        return cls(tuple(fact.id for fact in diff.added), diff.removed, diff.revised, diff.sections, evicted)


class MemoryMoment(msgspec.Struct, frozen=True):
    """Memory after a commit, and what that commit changed.

    `summary` describes the commit in a line; `cause` is None and `summary` empty for the empty memory before the first
    commit. `sections` are all sections of the document, in its order. `count` is the number of all facts, `categories`
    counts them by category, `tags` by tag.
    """

    seq: int
    at: str
    cause: Cause | None
    summary: str
    sections: tuple[SectionText, ...]
    facts: FactWindow
    categories: dict[str, int]
    tags: dict[str, int]
    count: int
    changed: CommitChange


class FactQuery(msgspec.Struct, frozen=True):
    """Which facts of a moment to return, and in what order."""

    sort: FactOrder = "born"
    descending: bool = False
    category: str | None = None
    contains: str | None = None
    tags: tuple[str, ...] = ()
    offset: int = 0
    limit: int = 100


_KEYS: dict[FactOrder, Callable[[Fact], float | str]] = {
    "confidence": lambda fact: fact.confidence,
    "content": lambda fact: folded(fact.content),
    "category": lambda fact: fact.category,
}


def memory_moment(memory: Memory, commit: Commit | None, changed: Diff, query: FactQuery) -> MemoryMoment:
    """Return a memory as a window of its facts.

    Args:
        memory: The memory.
        commit: The commit that it stands at; None for the empty memory.
        changed: The difference between the memory before that commit and the memory after it.
        query: Which facts to return.
    """
    found = matching(memory, query)
    counts = Counter(fact.category for fact in memory.facts.values())
    return MemoryMoment(
        memory.seq,
        memory.at,
        None if commit is None else commit.cause,
        "" if commit is None else entry(commit).summary,
        tuple(
            SectionText(name, section.summary, section.updated_at)
            for name in DOCUMENT_SECTIONS
            for section in (memory.section(name),)
        ),
        FactWindow(len(found), query.offset, tuple(found[query.offset : query.offset + query.limit])),
        dict(sorted(counts.items())),
        dict(sorted(Counter(tag for fact in memory.facts.values() for tag in fact.tags).items())),
        len(memory.facts),
        CommitChange.of(changed, commit),
    )


def matching(memory: Memory, query: FactQuery) -> Sequence[Fact]:
    """Return all facts that match a question, in its order."""
    found = memory.in_order()
    if query.category is not None:
        found = [fact for fact in found if same_category(fact.category, query.category)]
    if query.tags:
        found = [fact for fact in found if fact.has(query.tags)]
    if query.contains:
        wanted = folded(query.contains)
        found = [fact for fact in found if wanted in folded(fact.content)]
    if query.sort == "born":
        return found[::-1] if query.descending else found
    # Sorting is stable, also in reverse.
    return sorted(found, key=_KEYS[query.sort], reverse=query.descending)
