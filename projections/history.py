"""What happened: the log, and the difference between two moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ledger.commit import Cause, Commit
from ledger.events import (
    CandidateRejected,
    Edit,
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    PolicyChanged,
    Redacted,
    Reinforcement,
    Removal,
    SummaryUpdated,
    UpdateFailed,
)
from ledger.memory import Memory

__all__ = ["Diff", "LogEntry", "Revision", "SectionChange", "concerns", "diff", "entry", "facts_of"]


class LogEntry(msgspec.Struct, frozen=True):
    """One commit, with its content summed up in a line."""

    seq: int
    at: str
    hash: str
    cause: Cause
    summary: str
    events: tuple[Event, ...]


class Revision(msgspec.Struct, frozen=True):
    """A fact that is in both memories, changed."""

    before: Fact
    after: Fact


class SectionChange(msgspec.Struct, frozen=True):
    """A section whose text differs; an empty text is a section never written."""

    section: str
    before: str
    after: str


class Diff(msgspec.Struct, frozen=True):
    """What the second memory has that the first has not is added."""

    added: tuple[Fact, ...]
    removed: tuple[Fact, ...]
    revised: tuple[Revision, ...]
    sections: tuple[SectionChange, ...]

    @property
    def empty(self) -> bool:
        """Whether both say the same."""
        return not (self.added or self.removed or self.revised or self.sections)


def diff(a: Memory, b: Memory) -> Diff:
    """Compare two memories: facts and sections."""
    names = sorted({*a.sections, *b.sections})
    return Diff(
        added=tuple(fact for fact in b.in_order() if fact.id not in a.facts),
        removed=tuple(fact for fact in a.in_order() if fact.id not in b.facts),
        revised=tuple(Revision(a.facts[f.id], f) for f in b.in_order() if f.id in a.facts and a.facts[f.id] != f),
        sections=tuple(
            SectionChange(name, a.section(name).summary, b.section(name).summary)
            for name in names
            if a.section(name).summary != b.section(name).summary
        ),
    )


def entry(commit: Commit) -> LogEntry:
    """Spell a commit for the log."""
    return LogEntry(commit.seq, commit.at, commit.hash, commit.cause, _summed_up(commit), commit.events)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _summed_up(commit: Commit) -> str:
    count = Counter(type(event) for event in commit.events)
    rules = Counter(event.rule for event in commit.events if isinstance(event, CandidateRejected))
    failed = [event for event in commit.events if isinstance(event, UpdateFailed)]
    parts = [
        f"{sign}{_counted(count[kind], 'fact', 'facts')}"
        for kind, sign in ((FactAdded, "+"), (FactRemoved, "-"))
        if count[kind]
    ]
    if count[FactRevised]:
        parts.append(f"{_counted(count[FactRevised], 'fact', 'facts')} revised")
    if count[SummaryUpdated]:
        parts.append(_counted(count[SummaryUpdated], "section", "sections"))
    if rules:
        parts.append("refused " + ", ".join(f"{n} {rule}" for rule, n in sorted(rules.items())))
    if count[PolicyChanged] and commit.seq > 1:
        parts.append("policy changed")
    if count[Redacted]:
        parts.append(f"{_counted(count[Redacted], 'content', 'contents')} erased")
    if count[Erased]:
        parts.append(f"{_counted(count[Erased], 'event', 'events')} erased since")
    parts += [f"failed ({event.reason}): {event.detail}" for event in failed]
    return ", ".join(parts) or ("the empty memory" if commit.seq == 1 else "nothing changed")


def concerns(commit: Commit, fact_id: str) -> list[Event]:
    """Return the events of a commit that are about a fact."""
    return [event for event in commit.events if fact_id in facts_of(event)]


def facts_of(event: Event) -> Iterable[str]:
    """Return the ids of the facts that an event is about."""
    match event:
        case FactAdded(fact=fact) | FactRemoved(fact=fact):
            return (fact.id,)
        case FactRevised(after=after):
            return (after.id,)
        case CandidateRejected(candidate=Removal(id=fact_id) | Reinforcement(id=fact_id) | Edit(id=fact_id)):
            return (fact_id,)
        case Redacted(fact=str(fact_id)):
            return (fact_id,)
        case _:
            return ()
