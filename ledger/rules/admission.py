"""Admission of facts: ids, threshold, duplicates and the cap, for every command that adds facts or changes the policy.

An id is `fact_SEQ_PLACE`, from the commit that added the fact and the fact's place in its proposal. An import keeps the
ids of its document, and one of them may name a commit that is still to come. Every commit up to the highest one named
so (event IdsReserved) gives its facts second ids, `fact_SEQ_PLACE_2`, which no import may bring. So no id is given
twice. This depends on the document alone, not on what of it is refused: under another policy a fact has the same id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TypeAlias

import msgspec

from backstory.ledger.core.commands import merged_fields, proposed_fields
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Fact,
    FactAdded,
    FactRemoved,
    LedgerEvent,
    NewFact,
    Removal,
)
from backstory.ledger.core.kinds import Rule
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import kept_category
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.review import ends_later, is_past

Newcomer: TypeAlias = tuple[NewFact | Consolidation, Fact]
"""A candidate and the fact that it would become."""

_GIVEN = re.compile(r"fact_(\d{1,12})_.+", re.ASCII | re.DOTALL)
"""Ids that name a commit. No ledger has commits with more than twelve digits."""
_SECOND = re.compile(r"fact_\d{1,12}_\d+_2", re.ASCII)


def given_id(seq: int, place: int, *, second: bool = False) -> str:
    """Return the id that commit `seq` gives the fact at a place of its proposal."""
    return f"fact_{seq}_{place}_2" if second else f"fact_{seq}_{place}"


def commit_named(fact_id: str) -> int:
    """Return the commit that an id names, 0 if it names none."""
    found = _GIVEN.fullmatch(fact_id)
    return 0 if found is None else int(found[1])


def is_reserved(fact_id: str, seq: int) -> bool:
    """Whether a commit after `seq` may give this id, so that no import may bring it."""
    return commit_named(fact_id) > seq and _SECOND.fullmatch(fact_id) is not None


class Verdict(msgspec.Struct, frozen=True):
    """Why a candidate is refused: the name of the rule, and the reason in words."""

    rule: Rule
    detail: str


class Admission(msgspec.Struct, frozen=True):
    """The outcome for a batch: facts that enter, facts that are evicted, and refusals by the candidate's place."""

    added: tuple[Newcomer, ...]
    evicted: tuple[FactRemoved, ...]
    refused: dict[str, Verdict]
    past: frozenset[str] = frozenset()
    """The places of added facts whose time was over already: they end where they are added."""


# Getters are faster than lambdas, and these run for every fact of a full memory.
_content: Callable[[Fact], str] = attrgetter("content")
_by_hand: Callable[[Fact], bool] = attrgetter("by_hand")


def _dedup(
    newcomers: Sequence[Newcomer],
    held: Mapping[str, str],
    refused: dict[str, Verdict],
    keys: Mapping[str, str],
) -> None:
    """Refuse newcomers that repeat a live fact, and all but the most confident of those that repeat each other.

    `held` holds the ids of the facts that stay, by dedup key; `keys` the dedup key of each newcomer's fact, by id.
    """
    best: dict[str, Newcomer] = {}
    for candidate, fact in newcomers:
        if candidate.place in refused:
            continue
        key = keys[fact.id]
        if (holder := held.get(key)) is not None:
            refused[candidate.place] = Verdict("duplicate", f"{holder} already says this")
        elif (other := best.get(key)) is None:
            best[key] = (candidate, fact)
        else:
            loser, winner = candidate, other[0]
            if fact.confidence > other[1].confidence:
                loser, winner = winner, loser
                best[key] = (candidate, fact)
            refused[loser.place] = Verdict("duplicate", f"{winner.place} of the same update says this")


def _cap(
    staying: Collection[Fact], ranking: Ranking, newcomers: Sequence[Newcomer], refused: dict[str, Verdict]
) -> tuple[FactRemoved, ...]:
    """Refuse the newcomers that would not survive the cap; return the removals of those that the others evict."""
    cap = ranking.policy.max_facts
    entering = [
        (candidate, fact)
        for candidate, fact in newcomers
        if candidate.place not in refused and not is_past(fact, ranking.at)
    ]
    over = len(staying) + len(entering) - cap
    if over <= 0 or not entering:
        return ()
    full = Verdict("cap", f"memory holds {cap} facts at most, and all of them were entered by hand")
    protected = sum(map(_by_hand, staying)) >= cap
    leaving = {fact.id for fact in ranking.overflow([*staying, *(fact for _, fact in entering)])}
    for candidate, fact in entering:
        if fact.id in leaving:
            ranked = f"memory holds {cap} facts at most, and the others rank above it ({ranking.spelled(fact)})"
            refused[candidate.place] = full if protected else Verdict("cap", ranked)
    # If too few facts may be evicted, the last newcomers are refused as well.
    entered = [candidate for candidate, fact in entering if fact.id not in leaving]
    for candidate in entered[len(entered) - (over - len(leaving)) :]:
        refused[candidate.place] = full
    return tuple([FactRemoved(fact, "cap", detail=ranking.spelled(fact)) for fact in staying if fact.id in leaving])


def admit(
    memory: Memory,
    newcomers: Sequence[Newcomer],
    ranking: Ranking,
    removals: Sequence[Removal] = (),
    refused: Mapping[str, Verdict] | None = None,
) -> Admission:
    """Decide which newcomers enter memory: removals first, then duplicates, then the cap.

    A refused newcomer may bring live facts back: a removal is refused with its replacement, and the sources of a merged
    fact leave only if the merged fact enters. Those facts may in turn refuse another newcomer. So the rules run in
    rounds until one refuses nothing.

    Args:
        memory: the state that the newcomers would enter.
        newcomers: candidates and their facts, in the order of the proposal.
        ranking: the order in which facts are evicted.
        removals: the removals of the same proposal.
        refused: what earlier rules refused, by place.

    Returns:
        The outcome; its refusals include those of `refused`.
    """
    verdicts = dict(refused or {})
    facts, mode = memory.facts.values(), memory.policy.dedup_key
    # Computed once, because there may be as many rounds as candidates.
    live = list(map(dedup_key, map(_content, facts), repeat(mode)))
    keys = {fact.id: dedup_key(fact.content, mode) for _, fact in newcomers}
    past = {candidate.place: fact for candidate, fact in newcomers if is_past(fact, ranking.at)}
    # The same may have been true in several periods, so what is over repeats no live fact.
    keys |= {fact.id: f"{keys[fact.id]}\0{fact.valid_from}\0{fact.valid_until}" for fact in past.values()}
    while True:
        before = len(verdicts)
        leaving = leaving_ids(newcomers, removals, verdicts, ranking.at)
        staying = [fact for fact in facts if fact.id not in leaving] if leaving else facts
        held = {key: fact_id for key, fact_id in zip(live, memory.facts, strict=True) if fact_id not in leaving}
        evicted: tuple[FactRemoved, ...] = ()
        _dedup(newcomers, held, verdicts, keys)
        _bind_replacements(newcomers, removals, verdicts)
        if len(verdicts) == before:
            evicted = _cap(staying, ranking, newcomers, verdicts)
            _bind_replacements(newcomers, removals, verdicts)
        if len(verdicts) == before:
            break
    added = tuple((candidate, fact) for candidate, fact in newcomers if candidate.place not in verdicts)
    return Admission(added, evicted, verdicts, frozenset(past))


def leaving_ids(
    newcomers: Sequence[Newcomer], removals: Sequence[Removal], verdicts: Mapping[str, Verdict], at: str
) -> set[str]:
    """Return the ids of the facts that are removed or merged by a candidate that is not refused so far."""
    leaving = {removal.id for removal in removals if removal.place not in verdicts and not ends_later(removal, at)}
    for candidate, _ in newcomers:
        if isinstance(candidate, Consolidation) and candidate.place not in verdicts:
            leaving.update(candidate.sources)
    return leaving


def _bind_replacements(
    newcomers: Sequence[Newcomer], removals: Sequence[Removal], verdicts: dict[str, Verdict]
) -> None:
    """Refuse a removal whose replacement is refused or missing."""
    places = {candidate.place for candidate, _ in newcomers}
    for removal in removals:
        if removal.replacement is None or removal.place in verdicts:
            continue
        place = f"newFacts/{removal.replacement}"
        if place in verdicts:
            verdicts[removal.place] = Verdict(
                "replacement_refused", f"{place} was to replace it and was refused ({verdicts[place].rule})"
            )
        elif place not in places:
            verdicts[removal.place] = Verdict(
                "replacement_refused", f"{place} was to replace it and is not in the reply"
            )


def sweep(facts: Iterable[Fact], ranking: Ranking, *, by_hand_too: bool) -> list[FactRemoved]:
    """Return the removals of the facts that a policy does not let stay.

    They are below the threshold, duplicate, or over the cap. Facts entered by hand are never below the threshold; the
    cap evicts them only if `by_hand_too`.
    """
    policy = ranking.policy
    dropped: list[FactRemoved] = []
    kept: dict[str, Fact] = {}
    for fact in sorted(facts, key=ranking.key, reverse=True):
        key = dedup_key(fact.content, policy.dedup_key)
        if not fact.by_hand and fact.confidence < policy.fact_confidence_threshold:
            dropped.append(FactRemoved(fact, "threshold", detail=ranking.spelled(fact)))
        elif key in kept:
            dropped.append(FactRemoved(fact, "duplicate", detail=f"{kept[key].id} says the same"))
        else:
            kept[key] = fact
    dropped += [
        FactRemoved(fact, "cap", detail=ranking.spelled(fact))
        for fact in ranking.overflow(kept.values(), by_hand_too=by_hand_too)
    ]
    return dropped


def newborn(memory: Memory, candidate: NewFact, at: str, source: str) -> Fact:
    """Return the fact that a candidate would become.

    Its id comes from the commit's seq and the candidate's place, so another policy gives it the same id. `at` and
    `source` are used where the candidate states none.
    """
    seq, index = memory.seq + 1, int(candidate.place.rpartition("/")[2])
    return Fact(
        id=given_id(seq, index, second=seq <= memory.named_ahead),
        content=candidate.content,
        category=kept_category(candidate.category, memory.policy),
        confidence=candidate.confidence,
        created_at=candidate.at or at,
        source=candidate.source or source,
        seq=seq,
        place=index,
        by_hand=candidate.by_hand,
        source_error=candidate.source_error,
        expected_valid_days=candidate.expected_valid_days,
        evidence=candidate.evidence,
        confirmations=candidate.confirmations,
        confirmed_at=candidate.confirmed_at,
        consolidated_from=candidate.consolidated_from,
        valid_from=candidate.valid_from,
        valid_until=candidate.valid_until,
        expires_at=candidate.expires_at,
        tags=candidate.tags,
        attributes=candidate.attributes,
    )


def admitted(admission: Admission, *, stated: bool) -> list[LedgerEvent]:
    """Return the events of an admission: the evicted facts, then those that enter; `stated` as in `proposed_fields`."""
    events: list[LedgerEvent] = [*admission.evicted]
    for candidate, fact in admission.added:
        if isinstance(candidate, NewFact):
            events.append(FactAdded(fact, candidate.place, proposed_fields(candidate, fact, stated=stated)))
            if candidate.place in admission.past:
                events.append(FactRemoved(fact, "ended"))
        else:
            events.append(FactAdded(fact, candidate.place, merged_fields(candidate, fact)))
    return events


def refusals_of(candidates: Sequence[Candidate], refused: Mapping[str, Verdict]) -> list[LedgerEvent]:
    """Return refusals as events, in the order of the proposal."""
    return [
        CandidateRejected(c, refused[c.place].rule, refused[c.place].detail) for c in candidates if c.place in refused
    ]
