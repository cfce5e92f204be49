"""Letting proposals in: a model's update, a person's fact, an imported document.

Removals come before adds, and both before the cap. Evictions are written before the facts that make them necessary, so
that no prefix of a commit's events ever exceeds the cap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ledger.admission import Admission, Verdict, admit, overflow
from ledger.commands import AddFact, EditFact, Extract, ImportDocument, proposed_fields
from ledger.dedup import dedup_key
from ledger.events import (
    Candidate,
    CandidateRejected,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Section,
    SummaryUpdated,
    Unread,
    UpdateFailed,
    UpdateProposed,
)
from ledger.memory import BARRIERS, Memory
from ledger.policy import CATEGORIES
from ledger.uploads import is_upload_event, scrub_uploads

__all__ = ["add_by_hand", "edit_by_hand", "merge_document", "merge_update", "replace_document", "too_late"]

_MAX_CONFIRMATIONS = 1_000
_NOT_ENABLED = frozenset({"staleFactsToRemove", "staleFactsToExtend", "factsToConsolidate"})


def _newborn(memory: Memory, candidate: NewFact, at: str, source: str) -> Fact:
    """Make the fact that a candidate would become; its id comes from the commit's seq and the candidate's place."""
    seq, index = memory.seq + 1, _index(candidate.place)
    return Fact(
        id=f"fact_{seq}_{index}",
        content=candidate.content,
        category=candidate.category if candidate.category in CATEGORIES else "context",
        confidence=candidate.confidence,
        created_at=candidate.at or at,
        source=candidate.source or source,
        seq=seq,
        place=index,
        by_hand=candidate.by_hand,
        source_error=candidate.source_error,
        expected_valid_days=candidate.expected_valid_days,
        evidence=candidate.evidence,
    )


def _index(place: str) -> int:
    return int(place.rpartition("/")[2])


# A model's update.


def merge_update(memory: Memory, command: Extract) -> list[LedgerEvent]:
    """Settle every candidate of a model's answer, each in exactly one event."""
    proposal = command.proposal
    events: list[LedgerEvent] = [UpdateProposed(command.basis, proposal.digest, proposal.size, command.shown)]
    if (barrier := too_late(memory, command)) is not None:
        return events + _discard(proposal.candidates, barrier)
    refused = {
        candidate.place: verdict
        for candidate in proposal.candidates
        if (verdict := _screen(memory, candidate, command))
    }
    refused |= _repeated(proposal.candidates, refused)
    removals = [c for c in proposal.candidates if isinstance(c, Removal)]
    newcomers = [
        (c, _newborn(memory, c, command.at, command.thread)) for c in proposal.candidates if isinstance(c, NewFact)
    ]
    admission = admit(memory, newcomers, removals, refused)
    going = {removal.id for removal in removals if removal.place not in admission.refused}
    going |= {dropped.fact.id for dropped in admission.evicted}
    refused = admission.refused | {
        c.place: Verdict("gone", f"{c.id} leaves memory in the same update")
        for c in proposal.candidates
        if isinstance(c, Reinforcement) and c.place not in admission.refused and c.id in going
    }
    events += _settled(memory, proposal.candidates, refused, command)
    events += _admitted(admission, stated=False)
    return events + _refusals(proposal.candidates, refused)


def too_late(memory: Memory, command: Extract) -> Verdict | None:
    """Say why an answer came too late to be used, if it did."""
    if command.covered:
        return Verdict("covered", "another update covered these turns first")
    seq, kind = max((memory.barriers.get(kind, 0), kind) for kind in BARRIERS)
    if seq > command.basis:
        return Verdict(
            kind, f"a {kind} at commit {seq} came after the memory this answer was made on (commit {command.basis})"
        )
    return None


def _discard(candidates: Sequence[Candidate], barrier: Verdict) -> list[LedgerEvent]:
    # What was erased must not come back in the words of an answer that was under way.
    if barrier.rule == "redaction":
        return [UpdateFailed("basis", f"{barrier.detail}; its {len(candidates)} candidates are not kept")]
    rule = "covered" if barrier.rule == "covered" else "basis"
    return [CandidateRejected(candidate, rule, barrier.detail) for candidate in candidates]


def _screen(memory: Memory, candidate: Candidate, command: Extract) -> Verdict | None:
    """Refuse what can be refused by looking at one candidate alone."""
    match candidate:
        case _ if candidate.place.partition("/")[0] in _NOT_ENABLED:
            return Verdict("disabled", "this kind of change is not enabled")
        case Unread():
            return Verdict("malformed", candidate.detail)
        case NewFact():
            return _screen_fact(memory, candidate)
        case NewSummary():
            return _screen_summary(memory, candidate)
        case Removal() | Reinforcement():
            return _screen_reference(memory, candidate, command)
        case _:
            return Verdict("malformed", "a model cannot ask for this")


def _screen_fact(memory: Memory, candidate: NewFact) -> Verdict | None:
    threshold = memory.policy.fact_confidence_threshold
    if not candidate.content:
        return Verdict("empty", "the fact has no text")
    if is_upload_event(candidate.content):
        return Verdict("upload", "that a file was uploaded is no fact about the user")
    if candidate.confidence < threshold:
        return Verdict("threshold", f"confidence {candidate.confidence:g} is under the threshold of {threshold:g}")
    return None


def _screen_summary(memory: Memory, candidate: NewSummary) -> Verdict | None:
    if not candidate.summary:
        return Verdict("empty", "the section's new text is empty")
    text, _ = scrub_uploads(candidate.summary)
    if not text:
        return Verdict("upload", "nothing but uploads was said in it")
    if text == memory.section(candidate.place).summary:
        return Verdict("unchanged", "the section already says exactly this")
    return None


def _screen_reference(memory: Memory, candidate: Removal | Reinforcement, command: Extract) -> Verdict | None:
    fact = memory.facts.get(candidate.id)
    if fact is None:
        return Verdict("unknown_fact", "no live fact has this id")
    if fact.seq > command.basis if command.shown is None else fact.id not in command.shown:
        return Verdict("unknown_fact", "the model was not shown this fact")
    if fact.by_hand:
        return Verdict("by_hand", "a person entered this fact; only a person changes it")
    return None


def _repeated(candidates: Sequence[Candidate], refused: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """Refuse the second and later mention of one fact by the same kind of change."""
    seen: dict[tuple[type, str], str] = {}
    repeated: dict[str, Verdict] = {}
    for candidate in candidates:
        if isinstance(candidate, Removal | Reinforcement) and candidate.place not in refused:
            first = seen.setdefault((type(candidate), candidate.id), candidate.place)
            if first != candidate.place:
                repeated[candidate.place] = Verdict("repeated", f"{first} already asks for this")
    return repeated


def _settled(
    memory: Memory, candidates: Sequence[Candidate], refused: Mapping[str, Verdict], command: Extract
) -> list[LedgerEvent]:
    events: list[LedgerEvent] = []
    for candidate in candidates:
        if candidate.place in refused:
            continue
        match candidate:
            case NewSummary(place=section, summary=proposed):
                text, scrubbed = scrub_uploads(proposed)
                after = Section(text, command.at)
                events.append(
                    SummaryUpdated(section, memory.section(section), after, section, proposed if scrubbed else None)
                )
            case Removal():
                fact = memory.facts[candidate.id]
                events.append(FactRemoved(fact, "model", candidate.place, candidate.reason, candidate.replacement))
            case Reinforcement():
                fact = memory.facts[candidate.id]
                after_fact = msgspec.structs.replace(
                    fact, confirmations=min(fact.confirmations + 1, _MAX_CONFIRMATIONS), confirmed_at=command.at
                )
                events.append(FactRevised(fact, after_fact, "confirmed", candidate.place))
            case _:
                pass
    return events


def _admitted(admission: Admission, *, stated: bool) -> list[LedgerEvent]:
    events: list[LedgerEvent] = [FactRemoved(d.fact, d.rule, detail=d.detail) for d in admission.evicted]
    events += [
        FactAdded(fact, candidate.place, proposed_fields(candidate, fact, stated=stated))
        for candidate, fact in admission.added
    ]
    return events


# A person's fact.


def add_by_hand(memory: Memory, command: AddFact) -> list[LedgerEvent]:
    """Enter a person's fact, or refuse it as a duplicate or for want of room."""
    candidate = command.fact
    fact = msgspec.structs.replace(_newborn(memory, candidate, command.at, "manual"), by_hand=True)
    admission = admit(memory, [(candidate, fact)])
    if (verdict := admission.refused.get(candidate.place)) is not None:
        return [CandidateRejected(candidate, verdict.rule, verdict.detail)]
    return _admitted(admission, stated=False)


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
    key = dedup_key(after.content)
    holder = next((f for f in memory.facts.values() if f.id != before.id and dedup_key(f.content) == key), None)
    if holder is not None:
        return [CandidateRejected(edit, "duplicate", f"{holder.id} already says this")]
    restated = {
        name: value
        for name in ("content", "category", "confidence")
        if (value := getattr(edit, name)) is not None and value == getattr(before, name)
    }
    return [FactRevised(before, after, "edited", edit.place, restated)]


# A document.


def _imported(memory: Memory, candidate: NewFact, at: str, taken: set[str]) -> Fact:
    """Make a document's fact; an id it states is kept unless it is taken or a later commit could give it."""
    fact = _newborn(memory, candidate, at, "import")
    if candidate.id and candidate.id not in taken and not _could_be_ours(candidate.id, memory.seq):
        return msgspec.structs.replace(fact, id=candidate.id)
    return fact


def _could_be_ours(fact_id: str, seq: int) -> bool:
    prefix, _, rest = fact_id.partition("_")
    number = rest.partition("_")[0]
    return prefix == "fact" and number.isdecimal() and int(number) > seq


def _screen_import(memory: Memory, candidate: Candidate) -> Verdict | None:
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


def _imported_section(memory: Memory, candidate: NewSummary, command: ImportDocument) -> LedgerEvent:
    before = memory.section(candidate.place)
    after = Section(candidate.summary, (candidate.at or command.at) if candidate.summary else "")
    if after.summary == before.summary:
        return CandidateRejected(candidate, "unchanged", "the section already says exactly this")
    if not command.replace and not after.summary:
        return CandidateRejected(candidate, "empty", "the document says nothing here, and merging takes nothing away")
    if not command.replace and before.summary and after.updated_at <= before.updated_at:
        return CandidateRejected(candidate, "older", f"the section was written later, at {before.updated_at}")
    return SummaryUpdated(candidate.place, before, after, candidate.place)


def _sections(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    return [_imported_section(memory, c, command) for c in command.candidates if isinstance(c, NewSummary)]


def merge_document(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    """Take a document in beside what is there."""
    taken = set(memory.facts)
    newcomers = []
    for candidate in command.candidates:
        if isinstance(candidate, NewFact):
            fact = _imported(memory, candidate, command.at, taken)
            taken.add(fact.id)
            newcomers.append((candidate, fact))
    refused = {c.place: verdict for c in command.candidates if (verdict := _screen_import(memory, c))}
    admission = admit(memory, newcomers, refused=refused)
    events = _sections(memory, command) + _admitted(admission, stated=True)
    return events + _refusals(command.candidates, admission.refused)


def replace_document(memory: Memory, command: ImportDocument) -> list[LedgerEvent]:
    """Make memory what a document says, by the fewest events that lead there."""
    refused: dict[str, Verdict] = {}
    chosen = _chosen(memory, command, refused)
    crowded = {fact.id for fact in overflow((fact for _, fact in chosen), memory.policy.max_facts, by_hand_too=True)}
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
    return [*leaving, *_sections(memory, command), *events, *_refusals(command.candidates, refused)]


def _chosen(memory: Memory, command: ImportDocument, refused: dict[str, Verdict]) -> list[tuple[NewFact, Fact]]:
    """Tell what each fact of a document becomes: the live fact it names, changed where it differs, or a new one."""
    chosen: list[tuple[NewFact, Fact]] = []
    said: dict[str, str] = {}
    taken: set[str] = set()
    for candidate in command.candidates:
        if (verdict := _screen_import(memory, candidate)) is not None:
            refused[candidate.place] = verdict
        elif isinstance(candidate, NewFact):
            live = memory.facts.get(candidate.id or "")
            fact = (
                _restated(live, candidate)
                if live is not None and live.id not in taken
                else _imported(memory, candidate, command.at, taken | set(memory.facts))
            )
            key = dedup_key(fact.content)
            if key in said:
                refused[candidate.place] = Verdict("duplicate", f"{said[key]} of the same document says this")
                continue
            said[key] = candidate.place
            taken.add(fact.id)
            chosen.append((candidate, fact))
    return chosen


def _restated(live: Fact, candidate: NewFact) -> Fact:
    return msgspec.structs.replace(
        live,
        content=candidate.content,
        category=candidate.category if candidate.category in CATEGORIES else "context",
        confidence=candidate.confidence,
        source_error=candidate.source_error,
        expected_valid_days=candidate.expected_valid_days,
    )


def _refusals(candidates: Sequence[Candidate], refused: Mapping[str, Verdict]) -> list[LedgerEvent]:
    return [
        CandidateRejected(c, refused[c.place].rule, refused[c.place].detail) for c in candidates if c.place in refused
    ]
