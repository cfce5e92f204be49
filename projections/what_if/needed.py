"""Refusals of a commit: what was refused, and the policy value at which each candidate would have been accepted.

The value is found by deciding the commit's command again on the memory before it, with one value of the policy changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import Command, candidates_of
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import RefusedError
from backstory.ledger.core.events import (
    Candidate,
    CandidateRejected,
    Consolidation,
    Edit,
    Event,
    Extension,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Unread,
    UpdateProposed,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import DEDUP_KEYS, EVIDENCE, PolicyValue, policy_key
from backstory.ledger.rules.decide import decide
from backstory.ledger.rules.screening import merged_confidence
from backstory.projections.history.refusals import content_of
from backstory.projections.history.views import value_in_words
from backstory.projections.what_if.counterfactual import command_of

LIFTED_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "threshold": ("fact_confidence_threshold",),
        "cap": ("max_facts",),
        "gone": ("max_facts",),
        "duplicate": ("dedup_key",),
        "unchanged": ("dedup_key",),
        "gate": ("gate_enabled",),
        "removed_by_hand": ("said_again_share",),
        "assistant_only": ("evidence",),
        "topic": ("instructions",),
        "removal_refused": ("gate_enabled",),
        "replacement_refused": ("fact_confidence_threshold", "max_facts", "gate_enabled", "dedup_key", "evidence"),
        "disabled": ("staleness_review_enabled", "consolidation_enabled"),
        "not_due": ("staleness_min_candidates", "staleness_age_days", "staleness_protected_categories"),
        "sources": ("consolidation_min_facts", "consolidation_max_sources", "staleness_protected_categories"),
        "limit": ("staleness_max_removals_per_cycle", "consolidation_max_groups_per_cycle"),
    }
)
"""The policy keys that are tried for a rule, in this order. No policy lifts the rules that are not here.

A key of another rule may accept a candidate by way of a neighbour, such as the removal of the fact that it doubles:
that is not looked for.
"""

_LOWER = frozenset({"staleness_min_candidates", "staleness_age_days", "consolidation_min_facts"})
"""Numbers of which a lower one accepts more; of the others it is the higher one."""

_ONE_BY_ONE = 8
"""The most values that are tried one by one; of more it is assumed that all looser ones accept, too."""

_MOST_DECISIONS = 300
"""How often a commit is decided again at most."""

_MOST_CANDIDATES = 30_000
"""How many candidates are decided again at most, in all decisions: an import may have refused thousands."""

_FEWEST = 4
"""How often a commit of any size may be decided again."""


class NeededValue(msgspec.Struct, frozen=True):
    """A policy key, and the value of it that is nearest to the one in force and accepts a candidate."""

    key: str
    value: PolicyValue


class ExplainedRefusal(msgspec.Struct, frozen=True):
    """A candidate that a commit refused, and what it would take to accept it.

    Attributes:
        index: where the refusal stands among the events of the commit.
        kind: newFact, removal, newSummary, reinforcement, extension, consolidation, edit, or unread.
        content: what it says, or asks for.
        confidence: its confidence, if it states one.
        rule: the rule that refused it.
        detail: the reason in words.
        fact: the id of the fact that it is about, or of the live fact that says the same.
        needs: the policy value with which the same commit accepts it, everything else unchanged.
        unless: where no value that bears on its rule does, the reason in words.
    """

    index: int
    kind: str
    content: str
    confidence: float | None
    rule: str
    detail: str
    fact: str | None = None
    needs: NeededValue | None = None
    unless: str | None = None


def refusals_of(commit: Commit, before: Memory) -> tuple[ExplainedRefusal, ...]:
    """Return what a commit refused, and what it would take to accept each candidate.

    Args:
        commit: the commit.
        before: the memory that it was decided on.
    """
    refused = [(index, event) for index, event in enumerate(commit.events) if isinstance(event, CandidateRejected)]
    if not refused:
        return ()
    trial = _Trial(commit, before)
    return tuple(trial.judged(index, event) for index, event in refused)


class _ExhaustedError(Exception):
    """The commit was decided again as often as is allowed."""


class _Trial:
    """Decides the command of a commit again, each time with another value of the policy."""

    def __init__(self, commit: Commit, before: Memory) -> None:
        self._before = before
        self._command = command_of(commit)
        self._candidates = candidates_of(commit.events, stated=commit.cause.kind == "import")
        proposed = commit.first(UpdateProposed)
        self._shares = () if proposed is None else tuple(proposed.said_again.values())
        self._most = max(_FEWEST, min(_MOST_DECISIONS, _MOST_CANDIDATES // (1 + len(commit.events))))
        self._outcomes: dict[tuple[str, PolicyValue], Mapping[str, CandidateRejected] | None] = {}
        # Deciding on what an erasure has left gives other events. Their order may differ, as that of sections does.
        repeated = _decided(before, self._command)
        self._repeats = repeated is not None and _in_any_order(repeated) == _in_any_order(commit.events)

    def judged(self, index: int, event: CandidateRejected) -> ExplainedRefusal:
        """Return a refused candidate with what it would take to accept it."""
        needs, unless = None, None
        try:
            needs = self._needed(event) if self._repeats else None
            unless = None if needs is not None else self._reason(event)
        except _ExhaustedError:
            unless = "this commit refused too many candidates to find a value for each"
        candidate = event.candidate
        content = content_of(candidate)
        fact = candidate.id if isinstance(candidate, Removal | Reinforcement | Extension | Edit) else None
        if fact is None and event.rule == "duplicate":
            fact = self._holders.get(self._key(content))
        return ExplainedRefusal(
            index,
            str(candidate.__struct_config__.tag),
            content,
            candidate.confidence if isinstance(candidate, NewFact | Consolidation | Edit) else None,
            event.rule,
            event.detail,
            fact,
            needs,
            unless,
        )

    def _needed(self, event: CandidateRejected) -> NeededValue | None:
        for key in LIFTED_BY.get(event.rule, ()):
            values = self._looser(key)
            value = _nearest(values, partial(self._accepts, event, key))
            if value is not None:
                return NeededValue(key, value)
        return None

    def _reason(self, event: CandidateRejected) -> str:
        """Say why no value accepts a candidate."""
        if not self._repeats:
            return "some of what this commit was decided on was erased since, so it cannot be decided again"
        for key in LIFTED_BY.get(event.rule, ()):
            for value in self._looser(key)[-1:]:
                other = self._refusal(event, key, value)
                if other is not None and other.rule != event.rule:
                    return f"with {key} at {value_in_words(value)}, {other.rule} refuses it: {other.detail}"
        keys = LIFTED_BY.get(event.rule, ())
        if not keys:
            return f"no policy lifts this rule: {event.detail}"
        return f"no other value of {' or '.join(keys)} accepts it: {event.detail}"

    def _looser(self, key: str) -> Sequence[PolicyValue]:
        return looser(key, self._before, self._candidates, self._shares)

    def _accepts(self, event: CandidateRejected, key: str, value: PolicyValue) -> bool:
        return self._refusal(event, key, value) is None

    def _refusal(self, event: CandidateRejected, key: str, value: PolicyValue) -> CandidateRejected | None:
        """Return how a candidate is refused with another value; None where it is accepted."""
        if (key, value) not in self._outcomes:
            if len(self._outcomes) >= self._most:
                raise _ExhaustedError
            self._outcomes[key, value] = self._outcome(key, value)
        outcome = self._outcomes[key, value]
        return event if outcome is None else outcome.get(event.candidate.place)

    def _outcome(self, key: str, value: PolicyValue) -> Mapping[str, CandidateRejected] | None:
        """Return the refusals with another value, by place; None where the whole command is refused."""
        policy = msgspec.structs.replace(self._before.policy, **{key: value})
        events = _decided(msgspec.structs.replace(self._before, policy=policy), self._command)
        if events is None:
            return None
        return {event.candidate.place: event for event in events if isinstance(event, CandidateRejected)}

    @cached_property
    def _holders(self) -> Mapping[str, str]:
        """The ids of the live facts, by what finds duplicates of them."""
        return {self._key(fact.content): fact.id for fact in self._before.facts.values()}

    def _key(self, content: str) -> str:
        return dedup_key(content, self._before.policy.dedup_key)


def _in_any_order(events: Iterable[Event]) -> list[bytes]:
    return sorted(map(msgspec.json.encode, events))


def _decided(memory: Memory, command: Command | None) -> tuple[Event, ...] | None:
    if command is None:
        return None
    try:
        return decide(memory, command)
    except RefusedError:
        return None


def looser(
    key: str, memory: Memory, candidates: Sequence[Candidate], shares: Iterable[float] = ()
) -> Sequence[PolicyValue]:
    """Return the values of a policy key that accept more than the one in force, from the nearest to the loosest.

    Args:
        key: the key.
        memory: the memory, with the policy in force, that is decided on.
        candidates: the candidates that are decided on; they state the values that matter.
        shares: which shares of their words the user has said again.
    """
    known, now = policy_key(key), getattr(memory.policy, key)
    low, high = int(known.minimum or 0), int(known.maximum or 0)
    match key:
        case "fact_confidence_threshold":
            return sorted({value for value in _confidences(memory, candidates) if value < now}, reverse=True)
        case "said_again_share":
            return sorted({value for value in (*shares, 0.0) if value < now}, reverse=True)
        case "max_facts":
            return range(now + 1, min(high, len(memory.facts) + len(candidates)) + 1)
        case "dedup_key":
            return DEDUP_KEYS[DEDUP_KEYS.index(now) + 1 :]
        case "staleness_protected_categories":
            return [tuple(name for name in now if name != left_out) for left_out in now]
        case "gate_enabled":
            return (False,) if now else ()
        case "evidence":
            return EVIDENCE[: EVIDENCE.index(now)]
        case "instructions":
            return ("",) if now else ()
        case _ if known.type == "boolean":
            return () if now else (True,)
        case _:
            return range(now - 1, low - 1, -1) if key in _LOWER else range(now + 1, high + 1)


def _confidences(memory: Memory, candidates: Iterable[Candidate]) -> Iterator[float]:
    """Yield the thresholds that candidates just reach."""
    for candidate in candidates:
        match candidate:
            case NewFact(confidence=confidence):
                yield confidence
            case Edit(id=fact_id, confidence=stated) if fact_id in memory.facts:
                yield memory.facts[fact_id].confidence if stated is None else stated
            case Consolidation(sources=sources):
                known = [memory.facts[source] for source in sources if source in memory.facts]
                if known:
                    yield merged_confidence(candidate, known)
            case Edit() | Removal() | NewSummary() | Reinforcement() | Extension() | Unread():
                pass
            case _:
                assert_never(candidate)


def _nearest(values: Sequence[PolicyValue], accepts: Callable[[PolicyValue], bool]) -> PolicyValue | None:
    """Return the first of the values, from the nearest to the loosest, that accepts; None if none does."""
    if len(values) <= _ONE_BY_ONE:
        return next(filter(accepts, values), None)
    if not accepts(values[-1]):
        return None
    refused, accepted = -1, len(values) - 1
    while accepted - refused > 1:
        middle = (refused + accepted) // 2
        if accepts(values[middle]):
            accepted = middle
        else:
            refused = middle
    return values[accepted]
