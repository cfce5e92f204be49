"""Rules for changes of single facts: by hand, or by a model's tool, which changes nothing that a person entered."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.commands import EDITABLE, TAGS, TIMES, AddFact, EditFact, RemoveFact
from backstory.ledger.core.dedup import dedup_key, mark_key
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import (
    TOOL_SOURCE,
    CandidateRejected,
    Fact,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    Removal,
    Spoken,
)
from backstory.ledger.core.kinds import RemovalReason
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import kept_category
from backstory.ledger.rules.admission import Verdict, admit, admitted, newborn, refusals_of
from backstory.ledger.rules.marks import erased_refusal, removed_by_hand
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.review import ends_later
from backstory.ledger.rules.screening import PROTECTED, ending_verdict, period_verdict, screen_fact


def add_fact(memory: Memory, command: AddFact) -> list[LedgerEvent]:
    """Add a fact, or refuse it as a duplicate or because memory is full; a model's also as all facts of a model."""
    candidate, by_model = command.fact, command.by_model
    if by_model and command.erased:
        return [erased_refusal(candidate.place)]
    verdict = _screen(memory, candidate.content, candidate.confidence) if by_model else None
    verdict = verdict or period_verdict(candidate, command.at)
    fact = newborn(memory, candidate, command.at, (command.thread or TOOL_SOURCE) if by_model else "manual")
    fact = msgspec.structs.replace(fact, by_hand=not by_model)
    refused = {} if verdict is None else {candidate.place: verdict}
    ranking = Ranking(memory.policy, command.at, command.heat)
    admission = admit(memory, [(candidate, fact)], ranking, refused=refused)
    return admitted(admission, stated=False) + refusals_of((candidate,), admission.refused)


def _screen(memory: Memory, content: str, confidence: float) -> Verdict | None:
    return screen_fact(content, confidence, memory.policy) or removed_by_hand(memory, content)


def edit_fact(memory: Memory, command: EditFact) -> list[LedgerEvent]:
    """Change a fact; from then on it counts as entered by hand, unless a model changed it."""
    edit = command.edit
    if command.by_model and command.erased:
        return [erased_refusal(edit.place)]
    before = memory.facts.get(edit.id)
    if before is None:
        return [CandidateRejected(edit, "unknown_fact", "no live fact has this id")]
    after = msgspec.structs.replace(
        before,
        content=before.content if edit.content is None else edit.content,
        category=before.category if edit.category is None else kept_category(edit.category, memory.policy),
        confidence=before.confidence if edit.confidence is None else edit.confidence,
        by_hand=before.by_hand or not command.by_model,
        **{name: stated or None for name in TIMES if (stated := getattr(edit, name)) is not None},
        **{name: stated for name in TAGS if (stated := getattr(edit, name)) is not None},
    )
    if (verdict := period_verdict(after, command.at)) is not None:
        return [CandidateRejected(edit, verdict.rule, verdict.detail)]
    if command.by_model and (verdict := _screen_edit(memory, before, after)) is not None:
        return [CandidateRejected(edit, verdict.rule, verdict.detail)]
    if after == before:
        return [CandidateRejected(edit, "unchanged", "the fact already says exactly this")]
    mode = memory.policy.dedup_key
    key = dedup_key(after.content, mode)
    others = (fact for fact in memory.facts.values() if fact.id != before.id)
    if (holder := next((fact for fact in others if dedup_key(fact.content, mode) == key), None)) is not None:
        return [CandidateRejected(edit, "duplicate", f"{holder.id} already says this")]
    if after.said is not None:
        # What a person or a tool writes has the time of the command.
        role = after.said.role if command.by_model else "user"
        after = msgspec.structs.replace(after, said=Spoken(command.at, role))
    underivable = {
        name: value
        for name in EDITABLE
        if (value := getattr(edit, name)) is not None
        and (getattr(after, name) == getattr(before, name) or (name == "category" and value != after.category))
    }
    marked_after = (
        None if command.by_model or mark_key(after.content) == mark_key(before.content) else command.transcript
    )
    return [FactRevised(before, after, "edited", edit.place, underivable, marked_after)]


def _screen_edit(memory: Memory, before: Fact, after: Fact) -> Verdict | None:
    return PROTECTED if before.by_hand else _screen(memory, after.content, after.confidence)


def remove_fact(memory: Memory, command: RemoveFact) -> list[LedgerEvent]:
    """Remove a fact, or state when it ends; refused if it was entered by hand and a model asks.

    Raises:
        NotFoundError: No live fact has this id.
    """
    if (fact := memory.facts.get(command.fact_id)) is None:
        raise NotFoundError(f"there is no live fact {command.fact_id}; `fact list` shows the live facts")
    until = command.valid_until
    verdict = PROTECTED if command.by_model and fact.by_hand else ending_verdict(fact, command)
    if verdict is not None:
        asked = Removal(place="facts/0", id=fact.id, ended=command.ended, valid_until=until)
        return [CandidateRejected(asked, verdict.rule, verdict.detail)]
    if ends_later(command, command.at):
        after = msgspec.structs.replace(fact, valid_until=until, by_hand=fact.by_hand or not command.by_model)
        return [FactRevised(fact, after, "ending")]
    if command.by_model:
        return [FactRemoved(fact, "ended" if command.ended else "model", valid_until=until)]
    reason: RemovalReason = "ended" if command.ended else "hand"
    return [FactRemoved(fact, reason, marked_after=command.transcript, valid_until=until)]
