"""History views: the lines of the log, and the difference between two memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import TAGS, TIMES
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.events import (
    CandidateRejected,
    Edit,
    Erased,
    ErasureEvent,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    PolicyChanged,
    Redacted,
    Reinforcement,
    Removal,
    SectionEvent,
    SectionsMoved,
    SettingEvent,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    TurnEvent,
    UpdateEvent,
    UpdateFailed,
)
from backstory.ledger.core.kinds import RemovalReason
from backstory.ledger.core.memory import Memory, birth
from backstory.ledger.core.policy import POLICY_KEYS, Category, PolicyValue
from backstory.ledger.core.summaries import SummaryKey


class LogEntry(msgspec.Struct, frozen=True):
    """One commit with a one-line summary."""

    seq: int
    at: str
    hash: str
    cause: Cause
    summary: str
    events: tuple[Event, ...]


class Revision(msgspec.Struct, frozen=True):
    """A fact that differs between two memories."""

    before: Fact
    after: Fact


class SectionChange(msgspec.Struct, frozen=True):
    """A section whose text differs; the text of a section that was never written is empty."""

    section: str
    before: str
    after: str


class Diff(msgspec.Struct, frozen=True):
    """The difference between two memories; `added` facts are in the second one only.

    `ended` says of removed facts that were not wrong until when they were true, by id.
    """

    added: tuple[Fact, ...]
    removed: tuple[Fact, ...]
    revised: tuple[Revision, ...]
    sections: tuple[SectionChange, ...]
    ended: dict[str, str] = {}

    @property
    def empty(self) -> bool:
        """Whether there is no difference."""
        return not (self.added or self.removed or self.revised or self.sections)


def diff(a: Memory, b: Memory) -> Diff:
    """Compare the facts and sections of two memories."""
    names = sorted({*a.sections, *b.sections})
    # What is the same in both is left out before anything is sorted: of thousands of facts few differ.
    kept = [(a.facts[fact.id], fact) for fact in b.facts.values() if fact.id in a.facts]
    revised = [Revision(before, after) for before, after in kept if before is not after and before != after]
    return Diff(
        added=tuple(sorted((fact for fact in b.facts.values() if fact.id not in a.facts), key=birth)),
        removed=tuple(sorted((fact for fact in a.facts.values() if fact.id not in b.facts), key=birth)),
        revised=tuple(sorted(revised, key=lambda revision: birth(revision.after))),
        sections=tuple(
            SectionChange(name, a.section(name).summary, b.section(name).summary)
            for name in names
            if a.section(name).summary != b.section(name).summary
        ),
    )


def entry(commit: Commit) -> LogEntry:
    """Return the log's entry for a commit."""
    return LogEntry(commit.seq, commit.at, commit.hash, commit.cause, _summary_line(commit), commit.events)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


# What changed, in words.


def value_in_words(value: PolicyValue) -> str:
    """Format a policy value as a configuration file does: true, 90, correction."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return repr(int(value)) if value.is_integer() else repr(value)
        case tuple():
            return ", ".join(one.name if isinstance(one, Category) else one for one in value) or "none"
        case _:
            return str(value) or "none"


def policy_in_words(event: PolicyChanged, most: int) -> str:
    """Name the policy values that changed, at most `most` of them, and count the others."""
    before, after = event.before, event.after
    if before is None:
        return "policy set"
    changed = [key for key in POLICY_KEYS if getattr(before, key) != getattr(after, key)]
    changes = [
        f"{key} {value_in_words(getattr(before, key))} -> {value_in_words(getattr(after, key))}"
        for key in changed[:most]
    ]
    if len(changed) > most:
        changes.append(f"{_counted(len(changed) - most, 'more rule', 'more rules')} changed")
    return ", ".join(changes) or "policy unchanged"


def revision_in_words(before: Fact, after: Fact) -> str:
    """Describe how a fact changed; its content is named only where it changed."""
    return "; ".join(_differences(before, after))


def _differences(before: Fact, after: Fact) -> Iterator[str]:
    if before == after:
        yield "unchanged"
        return
    if msgspec.structs.replace(before, said=after.said) == after:
        yield f"rests on words of {after.rests_on.at}"
        return
    described = {"content", "category", "confidence", "expected_valid_days", "confirmations", "confirmed_at", "said"}
    described |= {*TIMES, *TAGS}
    if before.content != after.content:
        yield f"{before.content} -> {after.content}"
    if (before.category, before.confidence) != (after.category, after.confidence):
        yield " -> ".join(f"{fact.category}, {fact.confidence:.2f}" for fact in (before, after))
    if before.expected_valid_days != after.expected_valid_days:
        yield _lifetime(before.expected_valid_days, after.expected_valid_days)
    if before.confirmations != after.confirmations:
        yield _confirmed(after.confirmations)
    elif before.confirmed_at != after.confirmed_at:
        yield f"last confirmed at {after.confirmed_at or 'an unknown time'}"
    for name, word in (("valid_from", "from"), ("valid_until", "until"), ("expires_at", "expires")):
        stated = getattr(after, name)
        if getattr(before, name) != stated:
            yield f"{word} {stated or 'unknown'}"
    yield from _labels(before, after)
    others = [n for n in Fact.__struct_fields__ if n not in described and getattr(before, n) != getattr(after, n)]
    if others:
        yield f"changed in {', '.join(others)}"


def _labels(before: Fact, after: Fact) -> Iterator[str]:
    if before.tags != after.tags:
        yield f"tags {', '.join(after.tags) or 'none'}"
    if before.attributes != after.attributes:
        yield f"attributes {', '.join(after.spelled_attributes) or 'none'}"


def _lifetime(before: int | None, after: int | None) -> str:
    # "none": the policy's default applies, which neither memory states.
    return "lifetime " + " -> ".join(
        "none" if days is None else _counted(days, "day", "days") for days in (before, after)
    )


def _confirmed(times: int) -> str:
    if not times:
        return "no longer confirmed"
    return "confirmed once" if times == 1 else f"confirmed {times} times"


# The line of a commit.

_RULES_SHOWN = 3
_THINGS = frozenset({"duplicate", "upload", "unknown_fact"})
"""Rules named after the refused thing: their names have a plural."""
_LEFT: dict[RemovalReason, str] = {"cap": "evicted", "stale": "out of date", "ended": "ended", "expired": "expired"}
"""Reasons for removals that are counted apart, in words."""


def _summary_line(commit: Commit) -> str:
    count = Counter(type(event) for event in commit.events)
    rules = Counter(event.rule for event in commit.events if isinstance(event, CandidateRejected))
    failed = [event for event in commit.events if isinstance(event, UpdateFailed)]
    parts = _moved(commit.events)
    parts += _summaries(event for event in commit.events if isinstance(event, SummaryUpdated))
    parts += _shared(commit.events)
    if rules:
        parts.append("refused " + ", ".join(_refused(n, rule) for rule, n in sorted(rules.items())))
    if commit.seq > 1:
        changes = [event for event in commit.events if isinstance(event, PolicyChanged)]
        parts += [policy_in_words(event, _RULES_SHOWN) for event in changes]
    if count[Redacted]:
        parts.append(f"{_counted(count[Redacted], 'content', 'contents')} erased")
    if count[Erased]:
        parts.append(f"{_counted(count[Erased], 'event', 'events')} erased since")
    parts += [f"failed ({event.reason}): {event.detail}" for event in failed]
    return ", ".join(parts) or ("the empty memory" if commit.seq == 1 else "nothing changed")


def _moved(events: Sequence[Event]) -> list[str]:
    """Count the facts that were added, removed and changed, by kind of change."""
    removed = [event for event in events if isinstance(event, FactRemoved)]
    # A merged fact is counted with its sources, which name it even after it was erased.
    merged = {event.detail for event in removed if event.reason == "consolidated"}
    added = sum(isinstance(event, FactAdded) and event.fact.id not in merged for event in events)
    reasons = Counter(event.reason for event in removed)
    changes = Counter(event.change for event in events if isinstance(event, FactRevised))
    counts = [(reasons.pop(reason, 0), words) for reason, words in _LEFT.items()]
    counts += [(reasons.pop("consolidated", 0), f"merged into {len(merged)}")]
    counts += [(changes.pop(change, 0), change) for change in ("confirmed", "extended")]
    others, revised = reasons.total(), changes.total()
    parts = [f"+{_counted(added, 'fact', 'facts')}"] if added else []
    parts += [f"-{_counted(others, 'fact', 'facts')}"] if others else []
    parts += [f"{number} {words}" for number, words in counts if number]
    parts += [f"{_counted(revised, 'fact', 'facts')} revised"] if revised else []
    return parts


def _summaries(updated: Iterable[SummaryUpdated]) -> Iterator[str]:
    """Count the rewritten sections of the document, and the thread summaries that were added and removed."""
    sections = added = removed = 0
    for event in updated:
        if SummaryKey.of(event.section) is None:
            sections += 1
        elif event.after.summary:
            added += 1
        else:
            removed += 1
    if sections:
        yield _counted(sections, "section", "sections")
    if added:
        yield f"+{_counted(added, 'thread summary', 'thread summaries')}"
    if removed:
        yield f"-{_counted(removed, 'thread summary', 'thread summaries')}"


def _shared(events: Sequence[Event]) -> Iterator[str]:
    """Describe what an agent shared with its user, or a user's memory received from an agent."""
    if shared := sum(isinstance(event, SummaryShared) for event in events):
        yield f"{_counted(shared, 'section', 'sections')} shared with the user"
    if any(isinstance(event, SectionsMoved) for event in events):
        yield "own sections given up"
    for event in events:
        if isinstance(event, SummariesReceived) and event.cut:
            yield f"ledger of agent {event.agent} was cut off after commit {event.seq}"
        elif isinstance(event, SummariesReceived):
            thread = f", thread {event.thread}" if event.thread else ""
            yield f"from commit {event.seq} of agent {event.agent}{thread}"


def _refused(count: int, rule: str) -> str:
    return f"{count} {rule}s" if count > 1 and rule in _THINGS else f"{count} {rule}"


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
        case SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
            return ()
        case _:
            assert_never(event)
