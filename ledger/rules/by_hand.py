"""What a person puts in: a fact, a change of one, a whole document."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from backstory.ledger.core.commands import AddFact, EditFact, ImportDocument, proposed_fields
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    NewFact,
    NewSummary,
    Section,
    SummaryUpdated,
    Unread,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import CATEGORIES
from backstory.ledger.rules.admission import Newcomer, Verdict, admit, admitted, newborn, refusals_of
from backstory.ledger.rules.ranking import Ranking

__all__ = [
    "add_by_hand",
    "edit_by_hand",
    "imported",
    "merge_document",
    "replace_document",
    "restated",
    "screen_import",
    "section_stated",
]


def add_by_hand(memory: Memory, command: AddFact) -> list[LedgerEvent]:
    """Enter a person's fact, or refuse it as a duplicate or for want of room."""
    candidate = command.fact
    fact = msgspec.structs.replace(newborn(memory, candidate, command.at, "manual"), by_hand=True)
    admission = admit(memory, [(candidate, fact)], Ranking(memory.policy, command.at, command.heat))
    if (verdict := admission.refused.get(candidate.place)) is not None:
        return [CandidateRejected(candidate, verdict.rule, verdict.detail)]
    return admitted(admission, stated=False)


def edit_by_hand(memory: Memory, command: EditFact) -> list[LedgerEvent]:
    """Change a fact for a person; from then on it is the person's."""
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
    notion = memory.policy.dedup_key
    key = dedup_key(after.content, notion)
    others = (fact for fact in memory.facts.values() if fact.id != before.id)
    holder = next((fact for fact in others if dedup_key(fact.content, notion) == key), None)
    if holder is not None:
        return [CandidateRejected(edit, "duplicate", f"{holder.id} already says this")]
    restated = {
        name: value
        for name in ("content", "category", "confidence")
        if (value := getattr(edit, name)) is not None and value == getattr(before, name)
    }
    return [FactRevised(before, after, "edited", edit.place, restated)]


# A document.


def imported(memory: Memory, candidate: NewFact, at: str, taken: Collection[str]) -> Fact:
    """Make a document's fact; an id it states is kept unless it is taken or a later commit could give it."""
    fact = newborn(memory, candidate, at, "import")
    if candidate.id and candidate.id not in taken and not _could_be_ours(candidate.id, memory.seq):
        return msgspec.structs.replace(fact, id=candidate.id)
    return fact


def _could_be_ours(fact_id: str, seq: int) -> bool:
    """Whether a later commit may give this id; one of hexadecimal digits, as DeerFlow gives, never has two numbers."""
    prefix, _, rest = fact_id.partition("_")
    number, _, place = rest.partition("_")
    return prefix == "fact" and bool(place) and number.isdecimal() and int(number) > seq


def screen_import(memory: Memory, candidate: Candidate) -> Verdict | None:
    """Tell why an item of a document is refused whatever else is in it; None where it is not."""
    match candidate:
        case Unread():
            return Verdict("malformed", candidate.detail)
        case NewFact() if not candidate.content:
            return Verdict("empty", "the fact has no text")
        case NewFact() if not candidate.by_hand:
            threshold = memory.policy.fact_confidence_threshold
            if candidate.confidence < threshold:
                return Verdict(
                    "threshold", f"confidence {candidate.confidence:g} is under the threshold of {threshold:g}"
                )
    return None


def section_stated(memory: Memory, candidate: NewSummary, at: str) -> CandidateRejected | SummaryUpdated:
    """Make a section what a document says; `at` is when, where the document does not say it."""
    before = memory.section(candidate.place)
    after = Section(candidate.summary, (candidate.at or at) if candidate.summary else "")
    if after.summary == before.summary:
        return CandidateRejected(candidate, "unchanged", "the section already says exactly this")
    return SummaryUpdated(candidate.place, before, after, candidate.place)


def _imported_section(memory: Memory, candidate: NewSummary, command: ImportDocument) -> LedgerEvent:
    stated = section_stated(memory, candidate, command.at)
    if command.replace or isinstance(stated, CandidateRejected):
        return stated
    before, after = stated.before, stated.after
    if not after.summary:
        return CandidateRejected(candidate, "empty", "the document says nothing here, and merging takes nothing away")
    if before.summary and after.updated_at <= before.updated_at:
        return CandidateRejected(candidate, "older", f"the section was written later, at {before.updated_at}")
    return stated


def _sections(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    return [_imported_section(memory, c, command) for c in command.candidates if isinstance(c, NewSummary)]


def merge_document(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    """Take a document in beside what is there."""
    taken = set(memory.facts)
    newcomers: list[Newcomer] = []
    for candidate in command.candidates:
        if isinstance(candidate, NewFact):
            fact = imported(memory, candidate, command.at, taken)
            taken.add(fact.id)
            newcomers.append((candidate, fact))
    refused = {c.place: verdict for c in command.candidates if (verdict := screen_import(memory, c))}
    ranking = Ranking(memory.policy, command.at, command.heat)
    admission = admit(memory, newcomers, ranking, refused=refused)
    events = _sections(memory, command) + admitted(admission, stated=True)
    return events + refusals_of(command.candidates, admission.refused)


def replace_document(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    """Make memory what a document says, by the fewest events that lead there."""
    refused: dict[str, Verdict] = {}
    chosen = _chosen(memory, command, refused)
    ranking = Ranking(memory.policy, command.at, command.heat)
    crowded = {fact.id for fact in ranking.overflow((fact for _, fact in chosen), by_hand_too=True)}
    events: list[LedgerEvent] = []
    for candidate, fact in chosen:
        before = memory.facts.get(fact.id)
        if fact.id in crowded:
            refused[candidate.place] = Verdict("cap", f"memory holds {memory.policy.max_facts} facts at most")
        elif before is None:
            events.append(FactAdded(fact, candidate.place, proposed_fields(candidate, fact, stated=True)))
        elif before == fact:
            refused[candidate.place] = Verdict("unchanged", f"{fact.id} already says exactly this")
        else:
            told = proposed_fields(candidate, fact, stated=True)
            events.append(FactRevised(before, fact, "edited", candidate.place, told))
    staying = {fact.id for _, fact in chosen} - crowded
    leaving: list[LedgerEvent] = [FactRemoved(f, "import") for f in memory.facts.values() if f.id not in staying]
    return [*leaving, *_sections(memory, command), *events, *refusals_of(command.candidates, refused)]


def _chosen(memory: Memory, command: ImportDocument, refused: dict[str, Verdict]) -> list[tuple[NewFact, Fact]]:
    """Tell what each fact of a document becomes: the live fact it names, changed where it differs, or a new one."""
    chosen: list[tuple[NewFact, Fact]] = []
    said: dict[str, str] = {}
    taken: set[str] = set()
    for candidate in command.candidates:
        if (verdict := screen_import(memory, candidate)) is not None:
            refused[candidate.place] = verdict
        elif isinstance(candidate, NewFact):
            live = memory.facts.get(candidate.id or "")
            fact = (
                restated(live, candidate)
                if live is not None and live.id not in taken
                else imported(memory, candidate, command.at, taken | set(memory.facts))
            )
            key = dedup_key(fact.content, memory.policy.dedup_key)
            if key in said:
                refused[candidate.place] = Verdict("duplicate", f"{said[key]} of the same document says this")
                continue
            said[key] = candidate.place
            taken.add(fact.id)
            chosen.append((candidate, fact))
    return chosen


def restated(live: Fact, candidate: NewFact) -> Fact:
    """Return a live fact as a document states it; its birth, its time and its source stay."""
    return msgspec.structs.replace(
        live,
        content=candidate.content,
        category=candidate.category if candidate.category in CATEGORIES else "context",
        confidence=candidate.confidence,
        source_error=candidate.source_error,
        expected_valid_days=candidate.expected_valid_days,
        by_hand=live.by_hand or candidate.by_hand,
        confirmations=max(live.confirmations, candidate.confirmations),
        confirmed_at=candidate.confirmed_at or live.confirmed_at,
        consolidated_from=candidate.consolidated_from or live.consolidated_from,
    )
