"""Review rules: which facts have outlived their lifetime or the time they state; which categories may be merged."""

from __future__ import annotations

from collections import defaultdict

from backstory.ledger.core.commands import RemoveFact
from backstory.ledger.core.events import Fact, FactRemoved, Removal
from backstory.ledger.core.memory import Memory, has_lapsed
from backstory.ledger.core.moments import days_since, ends
from backstory.ledger.core.policy import Policy, is_protected, named_category, rule_category


def review_from(fact: Fact) -> str:
    """Return the moment from which a fact's lifetime runs: when it was last confirmed, else when it was created."""
    return max(fact.confirmed_at or "", fact.created_at)


def lifetime(fact: Fact, policy: Policy) -> int:
    """Return for how many days a fact is not reviewed."""
    if fact.expected_valid_days is not None:
        return fact.expected_valid_days
    named = named_category(fact.category, policy)
    return policy.staleness_age_days if named is None or named.lifetime is None else named.lifetime


def longest_lifetime(policy: Policy) -> int:
    """Return the longest lifetime, in days, that a model may give a new fact."""
    return int(policy.staleness_age_days * policy.staleness_max_lifetime_multiplier)


def is_stale(fact: Fact, policy: Policy, at: str) -> bool:
    """Whether a fact is due for review: older than its lifetime, not entered by hand, not of a protected category."""
    return not fact.by_hand and not is_protected(fact.category, policy) and _is_outlived(fact, policy, at)


def _is_outlived(fact: Fact, policy: Policy, at: str) -> bool:
    return days_since(review_from(fact), at) > lifetime(fact, policy)


def _changeable(memory: Memory) -> list[Fact]:
    """Return the facts that a model may review and merge, oldest first: not by hand, of no protected category."""
    categories = {fact.category for fact in memory.facts.values()}
    protected = {category for category in categories if is_protected(category, memory.policy)}
    return [fact for fact in memory.in_order() if not fact.by_hand and fact.category not in protected]


def is_past(fact: Fact, at: str) -> bool:
    """Whether what a fact says was over at a moment: such a fact never stands in memory."""
    return fact.valid_until is not None and ends(fact.valid_until) <= at


def ends_later(removal: Removal | RemoveFact, at: str) -> bool:
    """Whether a removal says that a fact holds until a time that is still to come."""
    return removal.ended and removal.valid_until is not None and ends(removal.valid_until) > at


def expiry(memory: Memory, at: str) -> list[FactRemoved]:
    """Return the removals of the facts that have lapsed at a moment: expired, or else ended."""
    return [
        FactRemoved(fact, "expired" if fact.expires_at is not None and ends(fact.expires_at) <= at else "ended")
        for fact in memory.facts.values()
        if has_lapsed(fact, at)
    ]


def stale_facts(memory: Memory, at: str) -> list[Fact]:
    """Return the facts due for review, oldest first; none if they are fewer than `staleness_min_candidates`."""
    policy = memory.policy
    if not policy.staleness_review_enabled:
        return []
    stale = [fact for fact in _changeable(memory) if _is_outlived(fact, policy, at)]
    return stale if len(stale) >= policy.staleness_min_candidates else []


def fragmented(memory: Memory) -> dict[str, list[Fact]]:
    """Return the facts that may be merged, by category, the largest category first; never facts entered by hand."""
    policy = memory.policy
    if not policy.consolidation_enabled:
        return {}
    by_category: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in _changeable(memory):
        by_category[rule_category(fact.category, policy)].append(fact)
    full = {name: facts for name, facts in by_category.items() if len(facts) >= policy.consolidation_min_facts}
    return dict(sorted(full.items(), key=lambda item: (-len(item[1]), item[0])))
