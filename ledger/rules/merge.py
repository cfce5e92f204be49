"""Rules for a model's update: every candidate of its answer ends in exactly one event.

Screening refuses what it can without competition (`screening`), then admission decides who enters (`admission`).
Evictions are written before the facts that need the room, so that no prefix of a commit's events exceeds the cap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import Extract, labels_of
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    Extension,
    Fact,
    FactRemoved,
    FactRevised,
    Fields,
    LedgerEvent,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Section,
    Spoken,
    SummaryShared,
    SummaryUpdated,
    Unread,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.kinds import Overtaking, RemovalReason, Rule
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.moments import days_since
from backstory.ledger.core.policy import Policy, rule_category
from backstory.ledger.rules.admission import (
    Admission,
    Newcomer,
    Verdict,
    admit,
    admitted,
    given_id,
    leaving_ids,
    newborn,
    refusals_of,
)
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.review import ends_later, lifetime, longest_lifetime, review_from
from backstory.ledger.rules.screening import merged_confidence, screen, without_never
from backstory.ledger.text.tags import joined_attributes, joined_tags
from backstory.ledger.text.uploads import scrub_uploads

_MAX_CONFIRMATIONS = 1_000
FIRST_MERGED = 10_000
"""The birth rank of the first merged fact in its commit; a reply holds fewer new facts than this."""


class Overtaken(msgspec.Struct, frozen=True):
    """What came before an answer: a barrier, or another update that covered its turns; and the same in words."""

    by: Overtaking
    detail: str


def merge_update(memory: Memory, command: Extract) -> list[LedgerEvent]:
    """Return the events of a model's answer: one that records the answer, then one for each candidate."""
    command = without_never(command, memory.policy.instructions)
    proposal = command.proposal
    proposed = UpdateProposed(
        command.basis,
        proposal.digest,
        proposal.size,
        command.shown,
        command.stale,
        command.users,
        command.said_again,
        command.answered,
        command.cited,
    )
    if (late := too_late(memory, command)) is not None:
        if late.by == "redaction":
            # Neither the words of the answer nor its digest may bring back what was erased.
            count = len(proposal.candidates)
            return [UpdateFailed("basis", f"{late.detail}; its {count} candidates are not kept")]
        rule: Rule = "covered" if late.by == "covered" else "basis"
        return [proposed, *(CandidateRejected(c, rule, late.detail) for c in proposal.candidates)]
    ranking = Ranking(memory.policy, command.at, command.heat)
    refused = screen(memory, command, ranking)
    removals = [c for c in proposal.candidates if isinstance(c, Removal)]
    newcomers = [newcomer for c in proposal.candidates for newcomer in _newcomers(memory, c, command, refused)]
    admission = admit(memory, newcomers, ranking, removals, refused)
    refused = admission.refused | _refuse_leaving(proposal.candidates, admission, removals, command.at)
    accepted = (candidate for candidate in proposal.candidates if candidate.place not in refused)
    doubles = _doubles(command, admission)
    repeated = _repeated(memory, command, doubles)
    events = [
        msgspec.structs.replace(proposed, repeated={fact.id: fact.rests_on for fact in repeated}),
        *_changes({**memory.facts, **{fact.id: fact for fact in repeated}}, memory, accepted, command),
        *_merged_sources(memory, admission),
        *admitted(admission, stated=False),
    ]
    return [*events, *_tagged(memory, events, doubles), *refusals_of(proposal.candidates, refused)]


def too_late(memory: Memory, command: Extract) -> Overtaken | None:
    """Return why an answer came too late to be used; None if it did not."""
    if command.users_erased is not None:
        return Overtaken(
            "redaction",
            f"a redaction at commit {command.users_erased} of the user's memory came after the sections this answer "
            f"was made on (commit {command.users})",
        )
    if (barrier := memory.barrier_after(command.basis)) is not None:
        seq, kind = barrier
        return Overtaken(
            kind, f"a {kind} at commit {seq} came after the memory this answer was made on (commit {command.basis})"
        )
    if command.covered:
        return Overtaken("covered", "another update covered these turns first")
    return None


def _newcomers(
    memory: Memory, candidate: Candidate, command: Extract, refused: dict[str, Verdict]
) -> tuple[Newcomer, ...]:
    """Return a candidate with the fact that it would become; empty if it is not one that makes a fact."""
    if isinstance(candidate, NewFact):
        fact = newborn(memory, candidate, command.at, command.thread)
        longest = longest_lifetime(memory.policy)
        if fact.expected_valid_days is not None and fact.expected_valid_days > longest:
            fact = msgspec.structs.replace(fact, expected_valid_days=longest)
        fact = msgspec.structs.replace(fact, said=command.spoken(candidate.evidence))
        return ((candidate, fact),)
    if isinstance(candidate, Consolidation) and candidate.place not in refused:
        return ((candidate, _merged(memory, candidate, command)),)
    return ()


def _merged(memory: Memory, candidate: Consolidation, command: Extract) -> Fact:
    """Return the fact that replaces its sources.

    It has at most the highest confidence among them, the latest date, and the earliest date of review.
    """
    sources = [memory.facts[source] for source in candidate.sources]
    index = FIRST_MERGED + int(candidate.place.rpartition("/")[2])
    latest = max(map(review_from, sources))
    days_left = min(lifetime(fact, memory.policy) - days_since(review_from(fact), latest) for fact in sources)
    categories = {fact.category for fact in sources}
    errors = dict.fromkeys(fact.source_error for fact in sources if fact.source_error)
    return Fact(
        id=given_id(memory.seq + 1, index, second=memory.seq < memory.named_ahead),
        content=candidate.content,
        category=categories.pop() if len(categories) == 1 else rule_category(sources[0].category, memory.policy),
        confidence=merged_confidence(candidate, sources),
        created_at=latest,
        source=command.thread,
        seq=memory.seq + 1,
        place=index,
        source_error="\n".join(errors) or None,
        expected_valid_days=min(max(1, int(days_left)), longest_lifetime(memory.policy)),
        evidence=tuple(dict.fromkeys(chain.from_iterable(fact.evidence for fact in sources))),
        confirmations=max(fact.confirmations for fact in sources),
        consolidated_from=candidate.sources,
        # They are the same in all of them.
        valid_from=sources[0].valid_from,
        valid_until=sources[0].valid_until,
        expires_at=sources[0].expires_at,
        tags=joined_tags(*(fact.tags for fact in sources)),
        attributes=joined_attributes(fact.attributes for fact in sources),
        said=Spoken.of_all(fact.rests_on for fact in sources) if any(fact.said for fact in sources) else None,
    )


def _refuse_leaving(
    candidates: Sequence[Candidate], admission: Admission, removals: Sequence[Removal], at: str
) -> dict[str, Verdict]:
    """Refuse to confirm or extend facts that leave memory in the same update."""
    leaving = leaving_ids(admission.added, removals, admission.refused, at)
    leaving |= {dropped.fact.id for dropped in admission.evicted}
    return {
        c.place: Verdict("gone", f"{c.id} leaves memory in the same update")
        for c in candidates
        if isinstance(c, Reinforcement | Extension) and c.place not in admission.refused and c.id in leaving
    }


def _merged_sources(memory: Memory, admission: Admission) -> list[LedgerEvent]:
    """Return the removals of the facts that were merged; they precede the facts they were merged into."""
    return [
        FactRemoved(memory.facts[source], "consolidated", detail=fact.id)
        for candidate, fact in admission.added
        if isinstance(candidate, Consolidation)
        for source in candidate.sources
    ]


def _doubles(command: Extract, admission: Admission) -> list[NewFact]:
    """Return the candidates that say what a fact says already."""
    return [
        candidate
        for candidate in command.proposal.candidates
        if isinstance(candidate, NewFact) and candidate.place in admission.refused
        if admission.refused[candidate.place].rule == "duplicate"
    ]


def _tagged(memory: Memory, events: Iterable[LedgerEvent], doubles: Iterable[NewFact]) -> list[LedgerEvent]:
    """Return the revisions that give facts the tags of the candidates that repeat them."""
    tagged = [candidate for candidate in doubles if candidate.tags]
    if not tagged:
        return []
    fold, mode = Fold(memory), memory.policy.dedup_key
    for event in events:
        fold.apply(event)
    before = {dedup_key(fact.content, mode): fact for fact in fold.facts.values() if not fact.by_hand}
    after = dict(before)
    for candidate in tagged:
        key = dedup_key(candidate.content, mode)
        if (fact := after.get(key)) is not None:
            after[key] = msgspec.structs.replace(fact, tags=joined_tags(fact.tags, candidate.tags))
    return [FactRevised(before[key], fact, "tagged") for key, fact in after.items() if fact != before[key]]


def _repeated(memory: Memory, command: Extract, doubles: Sequence[NewFact]) -> list[Fact]:
    """Return the facts that duplicates repeat, if that changes what they rest on."""
    if command.answered is None or not doubles:
        return []
    mode = memory.policy.dedup_key
    holders = {dedup_key(fact.content, mode): fact for fact in memory.facts.values() if not fact.by_hand}
    for candidate in doubles:
        key = dedup_key(candidate.content, mode)
        if (fact := holders.get(key)) is not None:
            holders[key] = _resting(fact, command.spoken(candidate.evidence))
    return [fact for fact in holders.values() if fact != memory.facts[fact.id]]


def _resting(fact: Fact, spoken: Spoken | None) -> Fact:
    """Return a fact that rests on these words, too."""
    said = None if spoken is None else Spoken.of_all((fact.rests_on, spoken))
    return fact if said in (None, fact.rests_on) else msgspec.structs.replace(fact, said=said)


def _changes(
    facts: dict[str, Fact], memory: Memory, accepted: Iterable[Candidate], command: Extract
) -> Iterator[LedgerEvent]:
    """Yield the events of the accepted candidates that make no new fact.

    Two candidates may revise one fact, so the second has to see in `facts` what the first made of it.
    """
    for candidate in accepted:
        match candidate:
            case NewSummary():
                yield _rewritten(memory, candidate, command)
            case Removal() if ends_later(candidate, command.at):
                ending = _ending(facts[candidate.id], candidate)
                facts[candidate.id] = ending.after
                yield ending
            case Removal():
                yield _removed(facts[candidate.id], candidate, command)
            case Reinforcement():
                event = _confirmed(facts[candidate.id], candidate, command)
                facts[candidate.id] = event.after
                yield event
            case Extension():
                event = _extended(facts[candidate.id], candidate, command, memory.policy)
                facts[candidate.id] = event.after
                yield event
            case NewFact() | Consolidation() | Edit() | Unread():
                pass
            case _:
                assert_never(candidate)


def _rewritten(memory: Memory, candidate: NewSummary, command: Extract) -> SummaryUpdated | SummaryShared:
    section = candidate.place
    text, scrubbed = scrub_uploads(candidate.summary)
    proposed, labels = candidate.summary if scrubbed else None, labels_of(candidate)
    if command.users is not None:
        return SummaryShared(section, text, command.users, None, section, proposed, labels)
    before, after = memory.section(section), Section(text, command.at)
    return SummaryUpdated(section, before, after, section, proposed, labels)


def _ending(fact: Fact, candidate: Removal) -> FactRevised:
    """State when a fact will end; it stays in memory until then."""
    after = msgspec.structs.replace(fact, valid_until=candidate.valid_until)
    proposed: Fields = {**labels_of(candidate)}
    for name in ("reason", "replacement"):
        if (stated := getattr(candidate, name)) is not None:
            proposed[name] = stated
    return FactRevised(fact, after, "ending", candidate.place, proposed)


def _removed(fact: Fact, candidate: Removal, command: Extract) -> FactRemoved:
    spoken = command.spoken()
    wrong: RemovalReason = "stale" if candidate.place.startswith("stale") else "model"
    return FactRemoved(
        fact,
        "ended" if candidate.ended else wrong,
        candidate.place,
        candidate.reason,
        candidate.replacement,
        labels=labels_of(candidate),
        valid_until=candidate.valid_until,
        said_at=None if spoken is None else spoken.at,
    )


def _confirmed(fact: Fact, candidate: Reinforcement, command: Extract) -> FactRevised:
    confirmations = min(fact.confirmations + 1, _MAX_CONFIRMATIONS)
    after = msgspec.structs.replace(
        _resting(fact, command.spoken()), confirmations=confirmations, confirmed_at=command.at
    )
    return FactRevised(fact, after, "confirmed", candidate.place, {**labels_of(candidate)})


def _extended(fact: Fact, candidate: Extension, command: Extract, policy: Policy) -> FactRevised:
    """Postpone a fact's review; the event keeps the days asked for, which cannot be derived from the result."""
    passed = int(days_since(review_from(fact), command.at))
    days = min(passed + candidate.days, policy.staleness_max_extension_days)
    after = msgspec.structs.replace(fact, expected_valid_days=days)
    proposed: Fields = {"days": candidate.days, **labels_of(candidate)}
    if candidate.reason is not None:
        proposed["reason"] = candidate.reason
    return FactRevised(fact, after, "extended", candidate.place, proposed)
