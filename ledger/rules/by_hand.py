"""Rules for a person's changes of single facts: add, edit, remove."""

from __future__ import annotations

import msgspec

from backstory.ledger.core.commands import AddFact, EditFact, RemoveFact
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import CandidateRejected, FactRemoved, FactRevised, LedgerEvent
from backstory.ledger.core.memory import Memory
from backstory.ledger.rules.admission import admit, admitted, newborn
from backstory.ledger.rules.ranking import Ranking


def add_by_hand(memory: Memory, command: AddFact) -> list[LedgerEvent]:
    """Add a person's fact, or refuse it as a duplicate or because memory is full."""
    candidate = command.fact
    fact = msgspec.structs.replace(newborn(memory, candidate, command.at, "manual"), by_hand=True)
    admission = admit(memory, [(candidate, fact)], Ranking(memory.policy, command.at, command.heat))
    if (verdict := admission.refused.get(candidate.place)) is not None:
        return [CandidateRejected(candidate, verdict.rule, verdict.detail)]
    return admitted(admission, stated=False)


def edit_by_hand(memory: Memory, command: EditFact) -> list[LedgerEvent]:
    """Change a fact; from then on it counts as entered by hand."""
    edit = command.edit
    before = memory.facts.get(edit.id)
    if before is None:
        return [CandidateRejected(edit, "unknown_fact", "no live fact has this id")]
    after = msgspec.structs.replace(
        before,
        content=before.content if edit.content is None else edit.content,
        category=before.category if edit.category is None else edit.category,
        confidence=before.confidence if edit.confidence is None else edit.confidence,
        by_hand=True,
    )
    if after == before:
        return [CandidateRejected(edit, "unchanged", "the fact already says exactly this")]
    mode = memory.policy.dedup_key
    key = dedup_key(after.content, mode)
    others = (fact for fact in memory.facts.values() if fact.id != before.id)
    if (holder := next((fact for fact in others if dedup_key(fact.content, mode) == key), None)) is not None:
        return [CandidateRejected(edit, "duplicate", f"{holder.id} already says this")]
    unchanged = {
        name: value
        for name in ("content", "category", "confidence")
        if (value := getattr(edit, name)) is not None and value == getattr(before, name)
    }
    return [FactRevised(before, after, "edited", edit.place, unchanged)]


def remove_by_hand(memory: Memory, command: RemoveFact) -> list[LedgerEvent]:
    """Remove a fact.

    Raises:
        NotFoundError: no live fact has this id.
    """
    if (fact := memory.facts.get(command.fact_id)) is None:
        raise NotFoundError(f"there is no live fact {command.fact_id}; `fact list` shows the live facts")
    return [FactRemoved(fact, "hand")]
