"""Which commits a graph is about: the newest, those of a thread and what became of it, those about a fact."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import FactAdded, FactRemoved
from backstory.ledger.core.memory import Memory
from backstory.projections.history.moment import Moment
from backstory.projections.history.views import facts_of


class Log(Protocol):
    """What is asked about a ledger; an index answers it."""

    def memory(self) -> Memory:
        """Return the memory at the ledger's head."""

    def newest(self, since: int = 1) -> Iterator[Commit]:
        """Yield the commits back to a seq, the newest first."""

    def first_since(self, moment: Moment) -> int:
        """Return the seq of the first commit of a time or a later one."""

    def commits_about(self, fact_id: str) -> Iterator[Commit]:
        """Yield the commits that tell of a fact, in order."""

    def commits_of(self, thread: str, *, newest_first: bool = False) -> Iterator[Commit]:
        """Yield the commits that a thread is the cause of, or whose turns they erase."""


class Choice(msgspec.Struct, frozen=True):
    """What the graph is narrowed to, and at most how many updates it shows: the newest of them."""

    thread: str | None = None
    fact: str | None = None
    since: Moment | None = None
    limit: int = 200


class Chosen(msgspec.Struct, frozen=True):
    """The commits to draw, oldest first, and how many were left out for the limit.

    `whole` are the seqs of those of which everything is drawn; of the others it is what is about `facts`. Where `facts`
    is None everything is.
    """

    commits: tuple[Commit, ...]
    left_out: int
    whole: frozenset[int] = frozenset()
    facts: frozenset[str] | None = None


class Kinship(msgspec.Struct, frozen=True):
    """A fact that was superseded by another, or merged into it."""

    source: str
    target: str
    merged: bool


def kinships(commit: Commit) -> Iterator[Kinship]:
    """Yield which facts of a commit took the place of which, as far as its events tell; some may come twice."""
    by_place = {event.place: event.fact.id for event in commit.events if isinstance(event, FactAdded) and event.place}
    for event in commit.events:
        if not isinstance(event, FactRemoved):
            continue
        if event.reason == "consolidated" and event.detail:
            yield Kinship(event.fact.id, event.detail, merged=True)
        elif event.replacement is not None and (by := by_place.get(f"newFacts/{event.replacement}")) is not None:
            yield Kinship(event.fact.id, by, merged=False)
    for event in commit.events:
        # What was merged stays named in the merged fact, also where the removal was erased since, or was elsewhere.
        if isinstance(event, FactAdded) and event.fact.seq == commit.seq:
            for source in event.fact.consolidated_from:
                yield Kinship(source, event.fact.id, merged=True)


def choose(log: Log, choice: Choice, until: int) -> Chosen:
    """Find the commits, up to the one with the seq `until`, that a graph is about."""
    first = max(1, 1 if choice.since is None else log.first_since(choice.since))
    if choice.fact is not None:
        return _about(log, choice.fact, choice, first, until)
    if choice.thread is not None:
        return _of(log, choice.thread, choice, first, until)
    newest = (commit for commit in log.newest(first) if commit.seq <= until)
    commits = tuple(islice(newest, choice.limit))[::-1]
    there_are = max(0, until - first + 1)
    return Chosen(commits, there_are - len(commits))


def _about(log: Log, fact_id: str, choice: Choice, first: int, until: int) -> Chosen:
    """What is known of a fact, of what it was made of or took the place of, and of what took its place, on and on."""
    found: dict[int, Commit] = {}
    seen = {fact_id}
    asked = [fact_id]
    while asked:
        about = asked.pop()
        for commit in log.commits_about(about):
            if commit.seq > until:
                break
            found[commit.seq] = commit
            for kin in kinships(commit):
                if about in (kin.source, kin.target):
                    new = {kin.source, kin.target} - seen
                    seen |= new
                    asked += new
    if choice.thread is not None:
        found = {seq: commit for seq, commit in found.items() if commit.cause.thread == choice.thread}
    seqs = sorted(seq for seq in found if seq >= first)
    kept = seqs[max(0, len(seqs) - choice.limit) :]
    return Chosen(tuple(found[seq] for seq in kept), len(seqs) - len(kept), facts=frozenset(seen))


def _of(log: Log, thread: str, choice: Choice, first: int, until: int) -> Chosen:
    """What was learned from a thread, and what other updates did to that."""
    seqs: list[int] = []
    found: dict[int, Commit] = {}
    for commit in log.commits_of(thread, newest_first=True):
        if commit.seq < first:
            break
        if commit.seq <= until:
            seqs.append(commit.seq)
            if len(found) < choice.limit:
                found[commit.seq] = commit
    whole = frozenset(found)
    facts = {fact for commit in found.values() for event in commit.events for fact in facts_of(event)}
    for fact in sorted(facts):
        for commit in log.commits_about(fact):
            if first <= commit.seq <= until:
                found.setdefault(commit.seq, commit)
    return Chosen(
        tuple(found[seq] for seq in sorted(found)), len(seqs) - len(whole), whole=whole, facts=frozenset(facts)
    )
