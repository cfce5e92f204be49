"""Who may be in memory: threshold, duplicates and the cap.

Pure functions, used by every command that lets facts in or takes the rules anew.
"""

from __future__ import annotations

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
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import CATEGORIES
from backstory.ledger.rules.ranking import Ranking

__all__ = [
    "Admission",
    "Dropped",
    "Newcomer",
    "Verdict",
    "admit",
    "admitted",
    "newborn",
    "refusals_of",
    "sweep",
]

Newcomer: TypeAlias = tuple[NewFact | Consolidation, Fact]
"""A candidate, and the fact that it would become."""


class Verdict(msgspec.Struct, frozen=True):
    """Why a candidate is refused: the rule's name, and what happened in words."""

    rule: str
    detail: str


class Dropped(msgspec.Struct, frozen=True):
    """A fact that has to go: by which rule, and what it was ranked by."""

    fact: Fact
    rule: str
    detail: str


class Admission(msgspec.Struct, frozen=True):
    """What became of a batch: facts that enter, facts that give way, and refusals by place."""

    added: tuple[Newcomer, ...]
    evicted: tuple[Dropped, ...]
    refused: dict[str, Verdict]


# Getters, since these are asked of every fact of a full memory.
_content: Callable[[Fact], str] = attrgetter("content")
_id: Callable[[Fact], str] = attrgetter("id")


def _dedup(
    newcomers: Sequence[Newcomer],
    held: Mapping[str, str],
    refused: dict[str, Verdict],
    keys: Mapping[str, str],
) -> None:
    """Refuse what a live fact already says, and of several newcomers that say the same all but the strongest."""
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
            loser, winner = (candidate, other[0])
            if fact.confidence > other[1].confidence:
                loser, winner = (other[0], candidate)
                best[key] = (candidate, fact)
            refused[loser.place] = Verdict("duplicate", f"{winner.place} of the same update says this")


def _cap(
    staying: Collection[Fact], ranking: Ranking, newcomers: Sequence[Newcomer], refused: dict[str, Verdict]
) -> tuple[Dropped, ...]:
    """Refuse the newcomers that would not survive the cap; return the facts of old that give way to the others."""
    cap = ranking.policy.max_facts
    entering = [(candidate, fact) for candidate, fact in newcomers if candidate.place not in refused]
    over = len(staying) + len(entering) - cap
    if over <= 0 or not entering:
        return ()
    leaving = {fact.id for fact in ranking.overflow([*staying, *(fact for _, fact in entering)])}
    for candidate, fact in entering:
        if fact.id in leaving:
            refused[candidate.place] = Verdict(
                "cap", f"memory holds {cap} facts at most, and the others rank above it ({ranking.spelled(fact)})"
            )
    # Where not enough may go, people's facts alone fill the memory: the last to come find no room.
    settled = [candidate for candidate, fact in entering if fact.id not in leaving]
    for candidate in settled[len(settled) - (over - len(leaving)) :]:
        refused[candidate.place] = Verdict("cap", f"memory holds {cap} facts at most, and none of them may be evicted")
    return tuple([Dropped(fact, "cap", ranking.spelled(fact)) for fact in staying if fact.id in leaving])


def admit(
    memory: Memory,
    newcomers: Sequence[Newcomer],
    ranking: Ranking,
    removals: Sequence[Removal] = (),
    refused: Mapping[str, Verdict] | None = None,
) -> Admission:
    """Let newcomers in: removals first, then duplicates, then the cap.

    A removal stands or falls with its replacement, and the sources of a merged fact go only where it enters: so a
    refused newcomer may bring old facts back, whose words and whose room may refuse another; the rounds end because
    each refuses somebody. `refused` holds what earlier rules refused, by place; the result holds those and its own.
    """
    verdicts = dict(refused or {})
    # Once for all rounds: there may be as many as there are candidates.
    everyone = [*memory.facts.values(), *(fact for _, fact in newcomers)]
    contents, notion = map(_content, everyone), repeat(memory.policy.dedup_key)
    keys = dict(zip(map(_id, everyone), map(dedup_key, contents, notion), strict=True))
    while True:
        before = len(verdicts)
        gone = _going(newcomers, removals, verdicts)
        staying = [fact for fact in memory.facts.values() if fact.id not in gone] if gone else memory.facts.values()
        held = {keys[fact.id]: fact.id for fact in staying}
        evicted: tuple[Dropped, ...] = ()
        _dedup(newcomers, held, verdicts, keys)
        _bind_replacements(newcomers, removals, verdicts)
        if len(verdicts) == before:
            evicted = _cap(staying, ranking, newcomers, verdicts)
            _bind_replacements(newcomers, removals, verdicts)
        if len(verdicts) == before:
            break
    added = tuple((candidate, fact) for candidate, fact in newcomers if candidate.place not in verdicts)
    return Admission(added, evicted, verdicts)


def _going(newcomers: Sequence[Newcomer], removals: Sequence[Removal], verdicts: Mapping[str, Verdict]) -> set[str]:
    """Name the facts that make room, as far as nothing is refused yet."""
    gone = {removal.id for removal in removals if removal.place not in verdicts}
    for candidate, _ in newcomers:
        if isinstance(candidate, Consolidation) and candidate.place not in verdicts:
            gone.update(candidate.sources)
    return gone


def _bind_replacements(
    newcomers: Sequence[Newcomer], removals: Sequence[Removal], verdicts: dict[str, Verdict]
) -> None:
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


def sweep(facts: Iterable[Fact], ranking: Ranking, *, by_hand_too: bool) -> list[Dropped]:
    """Return the facts that a policy does not allow to stay together: under the threshold, double, over the cap."""
    policy = ranking.policy
    dropped: list[Dropped] = []
    kept: dict[str, Fact] = {}
    for fact in sorted(facts, key=ranking.key, reverse=True):
        key = dedup_key(fact.content, policy.dedup_key)
        if not fact.by_hand and fact.confidence < policy.fact_confidence_threshold:
            dropped.append(Dropped(fact, "threshold", ranking.spelled(fact)))
        elif key in kept:
            dropped.append(Dropped(fact, "duplicate", f"{kept[key].id} says the same"))
        else:
            kept[key] = fact
    dropped += [
        Dropped(fact, "cap", ranking.spelled(fact)) for fact in ranking.overflow(kept.values(), by_hand_too=by_hand_too)
    ]
    return dropped


def newborn(memory: Memory, candidate: NewFact, at: str, source: str) -> Fact:
    """Make the fact that a candidate would become; its id comes from the commit's seq and the candidate's place."""
    seq, index = memory.seq + 1, int(candidate.place.rpartition("/")[2])
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
        confirmations=candidate.confirmations,
        confirmed_at=candidate.confirmed_at,
        consolidated_from=candidate.consolidated_from,
    )


def admitted(admission: Admission, *, stated: bool) -> list[LedgerEvent]:
    """Spell an admission as events: who gives way, then who enters; `stated` as in `proposed_fields`."""
    events: list[LedgerEvent] = [FactRemoved(d.fact, d.rule, detail=d.detail) for d in admission.evicted]
    for candidate, fact in admission.added:
        if isinstance(candidate, NewFact):
            events.append(FactAdded(fact, candidate.place, proposed_fields(candidate, fact, stated=stated)))
        else:
            events.append(FactAdded(fact, candidate.place, merged_fields(candidate, fact)))
    return events


def refusals_of(candidates: Sequence[Candidate], refused: Mapping[str, Verdict]) -> list[LedgerEvent]:
    """Spell refusals as events, in the order of the proposal."""
    return [
        CandidateRejected(c, refused[c.place].rule, refused[c.place].detail) for c in candidates if c.place in refused
    ]
