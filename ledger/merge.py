"""Letting a model's update in.

Removals come before adds, and both before the cap. Evictions are written before the facts that make them necessary, so
that no prefix of a commit's events ever exceeds the cap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ledger.admission import Verdict, admit, admitted, newborn, refusals_of
from ledger.commands import Extract
from ledger.events import (
    Candidate,
    CandidateRejected,
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
from ledger.uploads import is_upload_event, scrub_uploads

__all__ = ["merge_update", "too_late"]

_MAX_CONFIRMATIONS = 1_000
_NOT_ENABLED = frozenset({"staleFactsToRemove", "staleFactsToExtend", "factsToConsolidate"})


def merge_update(memory: Memory, command: Extract) -> list[LedgerEvent]:
    """Settle every candidate of a model's answer, each in exactly one event."""
    proposal = command.proposal
    events: list[LedgerEvent] = [UpdateProposed(command.basis, proposal.digest, proposal.size, command.shown)]
    if (barrier := too_late(memory, command)) is not None:
        if barrier.rule == "redaction":
            return [_left_out(proposal.candidates, barrier)]
        return events + _discard(proposal.candidates, barrier)
    refused = {
        candidate.place: verdict
        for candidate in proposal.candidates
        if (verdict := _screen(memory, candidate, command))
    }
    refused |= _repeated(proposal.candidates, refused)
    removals = [c for c in proposal.candidates if isinstance(c, Removal)]
    newcomers = [
        (c, newborn(memory, c, command.at, command.thread)) for c in proposal.candidates if isinstance(c, NewFact)
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
    events += admitted(admission, stated=False)
    return events + refusals_of(proposal.candidates, refused)


def too_late(memory: Memory, command: Extract) -> Verdict | None:
    """Say why an answer came too late to be used, if it did."""
    seq, kind = max((memory.barriers.get(kind, 0), kind) for kind in BARRIERS)
    if (erased := memory.barriers.get("redaction", 0)) > command.basis:
        # Whatever else came between: this one forbids to keep a word of the answer.
        seq, kind = erased, "redaction"
    if seq > command.basis:
        return Verdict(
            kind, f"a {kind} at commit {seq} came after the memory this answer was made on (commit {command.basis})"
        )
    if command.covered:
        return Verdict("covered", "another update covered these turns first")
    return None


def _left_out(candidates: Sequence[Candidate], barrier: Verdict) -> LedgerEvent:
    """What was erased must not come back in the words of an answer that was under way, nor in the digest of it."""
    return UpdateFailed("basis", f"{barrier.detail}; its {len(candidates)} candidates are not kept")


def _discard(candidates: Sequence[Candidate], barrier: Verdict) -> list[LedgerEvent]:
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
