"""Rules for sections that the agents of a user share, where each update of an agent writes its user's sections.

The agent's ledger says what its update wrote (SummaryShared). The user's ledger receives that, once for each commit.
"""

from __future__ import annotations

from backstory.ledger.core.commands import MoveSections, ShareSummaries
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    CandidateRejected,
    LedgerEvent,
    NewSummary,
    Section,
    SectionsMoved,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    UpdateFailed,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.rules.document import section_event


def receive_summaries(memory: Memory, command: ShareSummaries) -> list[LedgerEvent]:
    """Return the events with which a user's memory receives an agent's sections.

    Raises:
        ConflictError: This commit of the agent was received before, or nothing after it where its ledger was cut.
    """
    if command.cut:
        if memory.received.get(command.agent, 0) <= command.seq:
            raise ConflictError(f"of agent {command.agent} nothing was received after commit {command.seq}")
        return [SummariesReceived(command.agent, command.seq, memory.seq, cut=True)]
    if memory.received.get(command.agent, 0) >= command.seq:
        raise ConflictError(f"the sections of commit {command.seq} of agent {command.agent} were received already")
    received = SummariesReceived(command.agent, command.seq, command.basis, command.thread)
    if (barrier := memory.barrier_after(command.basis)) is None:
        return [received, *(_received(memory, candidate) for candidate in command.summaries)]
    seq, kind = barrier
    late = f"a {kind} at commit {seq} came after the sections this answer was made on (commit {command.basis})"
    if kind == "redaction":
        return [received, UpdateFailed("basis", f"{late}; its {len(command.summaries)} sections are not kept")]
    return [received, *(CandidateRejected(candidate, "basis", late) for candidate in command.summaries)]


def _received(memory: Memory, candidate: NewSummary) -> LedgerEvent:
    stated = section_event(memory, candidate, "")
    if isinstance(stated, SummaryUpdated) and stated.after.updated_at < stated.before.updated_at:
        return CandidateRejected(candidate, "older", f"the section was written later, at {stated.before.updated_at}")
    return stated


def move_sections(memory: Memory, command: MoveSections) -> list[LedgerEvent]:
    """Return the events with which an agent gives up its own sections: the newer ones are shared, all are emptied.

    Raises:
        ConflictError: It gave them up before.
    """
    if memory.moved:
        raise ConflictError("this agent's own sections were moved already")
    events: list[LedgerEvent] = [SectionsMoved(command.basis)]
    for name in DOCUMENT_SECTIONS:
        own, theirs = memory.section(name), command.users.get(name, Section())
        if own == Section():
            continue
        events.append(SummaryUpdated(name, own, Section()))
        newer = own.updated_at > theirs.updated_at and own.summary != theirs.summary
        if own.summary and newer and name not in command.barred:
            events.append(SummaryShared(name, own.summary, command.basis, own.updated_at))
    return events
