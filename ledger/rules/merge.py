"""Letting a model's update in.

Removals come before adds, and both before the cap. Evictions are written before the facts that make them necessary, so
that no prefix of a commit's events ever exceeds the cap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from backstory.ledger.core.commands import Extract, Fields, labels_of
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Extension,
    Fact,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Section,
    SummaryUpdated,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import BARRIERS, Memory
from backstory.ledger.core.policy import Policy
from backstory.ledger.rules.admission import Admission, Newcomer, Verdict, admit, admitted, newborn, refusals_of
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.review import days_since, lifetime, longest_lifetime, review_from
from backstory.ledger.rules.screening import screen
from backstory.ledger.text.uploads import scrub_uploads

__all__ = ["FIRST_MERGED", "merge_update", "too_late"]

_MAX_CONFIRMATIONS = 1_000
FIRST_MERGED = 10_000
"""Merged facts count from here within their commit: a reply holds fewer new facts than that."""


def merge_update(memory: Memory, command: Extract) -> list[LedgerEvent]:
    """Settle every candidate of a model's answer, each in exactly one event."""
    proposal = command.proposal
    told = UpdateProposed(command.basis, proposal.digest, proposal.size, command.shown, command.stale)
    if (barrier := too_late(memory, command)) is not None:
        if barrier.rule == "redaction":
            return [_left_out(proposal.candidates, barrier)]
        return [told, *_discard(proposal.candidates, barrier)]
    ranking = Ranking(memory.policy, command.at, command.heat)
    refused = screen(memory, command, ranking)
    removals = [c for c in proposal.candidates if isinstance(c, Removal)]
    newcomers = [newcomer for c in proposal.candidates for newcomer in _newcomers(memory, c, command, refused)]
    admission = admit(memory, newcomers, ranking, removals, refused)
    refused = admission.refused | _outlived(proposal.candidates, admission, removals)
    standing = (candidate for candidate in proposal.candidates if candidate.place not in refused)
    return [
        told,
        *_settled(memory, standing, command),
        *_sources_of(memory, admission),
        *admitted(admission, stated=False),
        *refusals_of(proposal.candidates, refused),
    ]


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


def _newcomers(
    memory: Memory, candidate: Candidate, command: Extract, refused: dict[str, Verdict]
) -> tuple[Newcomer, ...]:
    """Return the fact that a candidate would become; none where it is no fact, or none can be made of it."""
    if isinstance(candidate, NewFact):
        fact = newborn(memory, candidate, command.at, command.thread)
        longest = longest_lifetime(memory.policy)
        if fact.expected_valid_days is not None and fact.expected_valid_days > longest:
            fact = msgspec.structs.replace(fact, expected_valid_days=longest)
        return ((candidate, fact),)
    if isinstance(candidate, Consolidation) and candidate.place not in refused:
        return ((candidate, _merged(memory, candidate, command)),)
    return ()


def _merged(memory: Memory, candidate: Consolidation, command: Extract) -> Fact:
    """Make the fact that takes the place of its sources.

    It is as certain as the best of them at most, as old as the youngest, and up for review when the first of them is.
    """
    sources = [memory.facts[source] for source in candidate.sources]
    index = FIRST_MERGED + int(candidate.place.rpartition("/")[2])
    most_certain = max(fact.confidence for fact in sources)
    stated = most_certain if candidate.confidence is None else candidate.confidence
    youngest = max(map(review_from, sources))
    left = min(lifetime(fact, memory.policy) - days_since(review_from(fact), youngest) for fact in sources)
    errors = dict.fromkeys(fact.source_error for fact in sources if fact.source_error)
    return Fact(
        id=f"fact_{memory.seq + 1}_{index}",
        content=candidate.content,
        category=sources[0].category,
        confidence=min(stated, most_certain),
        created_at=youngest,
        source=command.thread,
        seq=memory.seq + 1,
        place=index,
        source_error="\n".join(errors) or None,
        expected_valid_days=min(max(1, int(left)), longest_lifetime(memory.policy)),
        evidence=tuple(dict.fromkeys(chain.from_iterable(fact.evidence for fact in sources))),
        confirmations=max(fact.confirmations for fact in sources),
        consolidated_from=candidate.sources,
    )


def _outlived(candidates: Sequence[Candidate], admission: Admission, removals: Sequence[Removal]) -> dict[str, Verdict]:
    """Refuse to confirm or extend what leaves memory in the same update."""
    going = {removal.id for removal in removals if removal.place not in admission.refused}
    going |= {dropped.fact.id for dropped in admission.evicted}
    for candidate, _ in admission.added:
        if isinstance(candidate, Consolidation):
            going.update(candidate.sources)
    return {
        c.place: Verdict("gone", f"{c.id} leaves memory in the same update")
        for c in candidates
        if isinstance(c, Reinforcement | Extension) and c.place not in admission.refused and c.id in going
    }


def _sources_of(memory: Memory, admission: Admission) -> list[LedgerEvent]:
    """Take out what was merged, before what it was merged into comes in."""
    return [
        FactRemoved(memory.facts[source], "consolidated", detail=fact.id)
        for candidate, fact in admission.added
        if isinstance(candidate, Consolidation)
        for source in candidate.sources
    ]


def _settled(memory: Memory, standing: Iterable[Candidate], command: Extract) -> Iterator[LedgerEvent]:
    """Spell what each candidate does that stands and is no new fact; two may revise one fact, one after the other."""
    facts = dict(memory.facts)
    for candidate in standing:
        match candidate:
            case NewSummary():
                yield _rewritten(memory, candidate, command)
            case Removal():
                yield _removed(facts[candidate.id], candidate)
            case Reinforcement():
                event = _confirmed(facts[candidate.id], candidate, command)
                facts[candidate.id] = event.after
                yield event
            case Extension():
                event = _extended(facts[candidate.id], candidate, command, memory.policy)
                facts[candidate.id] = event.after
                yield event
            case _:
                pass


def _rewritten(memory: Memory, candidate: NewSummary, command: Extract) -> SummaryUpdated:
    section, proposed = candidate.place, candidate.summary
    text, scrubbed = scrub_uploads(proposed)
    before, after = memory.section(section), Section(text, command.at)
    return SummaryUpdated(section, before, after, section, proposed if scrubbed else None, labels_of(candidate))


def _removed(fact: Fact, candidate: Removal) -> FactRemoved:
    return FactRemoved(
        fact,
        "stale" if candidate.place.startswith("stale") else "model",
        candidate.place,
        candidate.reason,
        candidate.replacement,
        labels=labels_of(candidate),
    )


def _confirmed(fact: Fact, candidate: Reinforcement, command: Extract) -> FactRevised:
    confirmations = min(fact.confirmations + 1, _MAX_CONFIRMATIONS)
    after = msgspec.structs.replace(fact, confirmations=confirmations, confirmed_at=command.at)
    return FactRevised(fact, after, "confirmed", candidate.place, {**labels_of(candidate)})


def _extended(fact: Fact, candidate: Extension, command: Extract, policy: Policy) -> FactRevised:
    """Leave a fact alone for so many days from now; what was asked for cannot be told from what came of it."""
    passed = int(days_since(review_from(fact), command.at))
    days = min(passed + candidate.days, policy.staleness_max_extension_days)
    after = msgspec.structs.replace(fact, expected_valid_days=days)
    told: Fields = {"days": candidate.days, **labels_of(candidate)}
    if candidate.reason is not None:
        told["reason"] = candidate.reason
    return FactRevised(fact, after, "extended", candidate.place, told)
