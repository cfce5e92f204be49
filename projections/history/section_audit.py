"""Audit of a section: every change of its text, the update that wrote the text of today, and the turns it read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    CandidateRejected,
    ErasureEvent,
    FactEvent,
    NewSummary,
    Redacted,
    Section,
    SectionEvent,
    SettingEvent,
    SummariesReceived,
    SummaryUpdated,
    TurnEvent,
    UpdateEvent,
)
from backstory.ledger.core.memory import Memory
from backstory.projections.history.audit import Evidence, Logs, evidence_in


class SectionHistoryItem(msgspec.Struct, frozen=True):
    """One event of a section.

    Attributes:
        seq: the commit.
        at: its time.
        type: the event.
        cause: the kind of the commit; `share` where an agent's update wrote the section.
        detail: the new text; of a refusal the rule, its reason and the text.
        agent: the agent whose update wrote it.
        agent_seq: the commit of that update in the agent's ledger.
        thread: the conversation it was learned from.
        model: the model that wrote it.
        actor: who asked for it.
    """

    seq: int
    at: str
    type: str
    cause: str
    detail: str
    agent: str | None = None
    agent_seq: int | None = None
    thread: str | None = None
    model: str | None = None
    actor: str | None = None


class WhySection(msgspec.Struct, frozen=True):
    """The origin of a section's text.

    Attributes:
        section: the name of the section.
        text: its text; empty where it was emptied.
        updated_at: when the text was written.
        written: the event that wrote the text, or None where it was emptied or put back by an erasure.
        evidence: the turns that the update read.
        history: the section's events, in order.
    """

    section: str
    text: str
    updated_at: str
    written: SectionHistoryItem | None
    evidence: tuple[Evidence, ...]
    history: tuple[SectionHistoryItem, ...]


def section_named(name: str) -> str | None:
    """Return the section that a name means, in any case and also without its group; None if it means none."""
    wanted = name.casefold()
    return next(
        (full for full in DOCUMENT_SECTIONS if wanted in (full.casefold(), full.casefold().split(".")[1])), None
    )


def why_section(
    commits: Iterable[Commit], memory: Memory, name: str, logs_of: Callable[[str | None], Logs]
) -> WhySection:
    """Explain the text of a section.

    Args:
        commits: the ledger, from its first commit.
        memory: the memory at the ledger's head.
        name: the name of the section.
        logs_of: returns the logs of one of the user's agents, or of the memory itself for None.

    Raises:
        UsageError: There is no section of this name.
        NotFoundError: The section was never written.
    """
    section = section_named(name)
    if section is None:
        raise UsageError(f"{name!r} is no section: give one of {', '.join(DOCUMENT_SECTIONS)}")
    now = memory.section(section)
    history: list[SectionHistoryItem] = []
    written: SectionHistoryItem | None = None
    origin: Commit | None = None
    for commit in commits:
        for item, after in _items(commit, section) if commit.seq <= memory.seq else ():
            history.append(item)
            # An undo brings a text back that another commit wrote.
            if after == now and now.summary and commit.cause.kind not in ("revert", "rollback", "redaction"):
                written, origin = item, commit
    if not history:
        raise NotFoundError(f"section {section} was never written")
    evidence = () if written is None or origin is None else tuple(_evidence(written, origin, logs_of))
    return WhySection(section, now.summary, now.updated_at, written, evidence, tuple(history))


def _items(commit: Commit, section: str) -> Iterator[tuple[SectionHistoryItem, Section | None]]:
    received = commit.first(SummariesReceived)
    for event in commit.events:
        after: Section | None = None
        match event:
            case SummaryUpdated(section=name) if name == section:
                detail, after = event.after.summary, event.after
            case CandidateRejected(candidate=NewSummary(place=place, summary=summary)) if place == section:
                detail = f"refused: {event.rule}, {event.detail}: {summary}"
            case Redacted(section=name) if name == section:
                detail = f"its text in commit {event.seq} was erased"
            case FactEvent() | SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
                continue
            case _:
                assert_never(event)
        cause = commit.cause
        item = SectionHistoryItem(
            commit.seq,
            commit.at,
            type(event).__name__,
            cause.kind,
            detail,
            None if received is None else received.agent,
            None if received is None else received.seq,
            cause.thread if received is None else received.thread,
            cause.model,
            cause.actor,
        )
        yield item, after


def _evidence(written: SectionHistoryItem, origin: Commit, logs_of: Callable[[str | None], Logs]) -> Iterator[Evidence]:
    """Yield the turns that an update read; for an agent's they are in the agent's transcript."""
    logs = logs_of(written.agent)
    cause = origin.cause if written.agent_seq is None else logs.commit(written.agent_seq).cause
    if cause.thread is None or cause.turns is None:
        return
    yield from evidence_in(logs, cause.thread, logs.turns(cause.thread, cause.turns))
