"""Eviction ranking: the total order in which facts leave a full memory.

The policy `confidence` ranks by confidence alone. `hybrid` weighs confidence, the age of the last confirmation (or half
the weight for the age of the fact) and recent use; it also reserves some room for the best corrections. Of equal facts
the newer one ranks higher, then the one later in the proposal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import TypeAlias

from backstory.ledger.core.events import Access, Fact
from backstory.ledger.core.moments import days_since
from backstory.ledger.core.policy import Policy

Rank: TypeAlias = tuple[bool, float, str, int, int]

# A getter is faster than a lambda, and this runs for every fact of a full memory. Facts entered by hand rank highest.
_by_confidence: Callable[[Fact], Rank] = attrgetter("by_hand", "confidence", "created_at", "seq", "place")

_FULL_HEAT = 8.0
"""The heat at which recent use counts in full."""


class Ranking:
    """The eviction order under a policy at the time `at`; `heat` is the recent use of facts, by id."""

    def __init__(self, policy: Policy, at: str, heat: Mapping[str, Access]) -> None:
        self.policy = policy
        self.at = at
        self._usage = heat
        self._hybrid = policy.fact_eviction_policy == "hybrid"
        self.key: Callable[[Fact], Rank] = self._weighed if self._hybrid else _by_confidence
        """Returns a fact's rank; lower ranks are evicted first."""

    def _weighed(self, fact: Fact) -> Rank:
        return (fact.by_hand, self._score(fact), fact.created_at, fact.seq, fact.place)

    def _score(self, fact: Fact) -> float:
        policy = self.policy
        return (
            policy.eviction_confidence_weight * fact.confidence
            + policy.eviction_confirmation_weight * self._freshness(fact)
            + policy.eviction_access_weight * self._warmth(fact)
        )

    def _freshness(self, fact: Fact) -> float:
        half_life = self.policy.eviction_confirmation_half_life_days
        if fact.confirmed_at is not None:
            return decayed(fact.confirmed_at, self.at, half_life)
        return 0.5 * decayed(fact.created_at, self.at, half_life)

    def _warmth(self, fact: Fact) -> float:
        access = self._usage.get(fact.id)
        if access is None:
            return 0.0
        left = access.heat * decayed(access.at, self.at, self.policy.eviction_access_half_life_days)
        return min(1.0, math.log1p(left) / math.log1p(_FULL_HEAT))

    def spelled(self, fact: Fact) -> str:
        """Return in words what a fact is ranked by."""
        created = f"created {fact.created_at}"
        if not self._hybrid:
            return f"confidence {fact.confidence:g}, {created}"
        return (
            f"score {self._score(fact):.4f} (confidence {fact.confidence:g}, confirmation {self._freshness(fact):.4f}, "
            f"access {self._warmth(fact):.4f}), {created}"
        )

    def overflow(self, facts: Iterable[Fact], *, by_hand_too: bool = False) -> list[Fact]:
        """Return the facts to evict so that at most `max_facts` stay, lowest rank first.

        Facts entered by hand are evicted only if `by_hand_too`, after all others. The result is shorter than needed if
        too few facts may be evicted.
        """
        present = list(facts)
        over = len(present) - self.policy.max_facts
        if over <= 0:
            return []
        reserved = self._reserved(present)
        pool = [fact for fact in present if (by_hand_too or not fact.by_hand) and fact.id not in reserved]
        return nsmallest(over, pool, key=self.key)

    def _reserved(self, facts: Collection[Fact]) -> set[str]:
        """Return the ids of the corrections that stay whatever their rank, as far as facts by hand leave room."""
        policy = self.policy
        if not self._hybrid:
            return set()
        slots = min(
            policy.eviction_correction_reserved_max,
            math.ceil(policy.max_facts * policy.eviction_correction_reserved_fraction),
        )
        by_hand = sum(fact.by_hand for fact in facts)
        corrections = [fact for fact in facts if fact.category == "correction"]
        best = nlargest(slots, corrections, key=self.key)
        room = max(0, policy.max_facts - by_hand)
        return {fact.id for fact in [fact for fact in best if not fact.by_hand][:room]}


def decayed(moment: str, at: str, half_life: float) -> float:
    """Return what is left at a later time of 1, which halves in `half_life` days."""
    return math.exp2(-days_since(moment, at) / half_life)
