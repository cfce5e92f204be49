"""What may enter memory and how much of it may stay: a frozen value, recorded whenever it changes."""

from __future__ import annotations

import msgspec

from ledger.errors import ConfigError

__all__ = ["CATEGORIES", "POLICY_KEYS", "Policy", "check_policy"]

CATEGORIES = ("preference", "knowledge", "context", "behavior", "goal", "correction")
"""What a fact may be about; a model's category outside these is stored as `context`, the proposal keeps its word."""


class Policy(msgspec.Struct, frozen=True):
    """The rules in force.

    `max_facts` live facts at most; a model's fact needs `fact_confidence_threshold` (0 to 1); when the cap bites,
    `fact_eviction_policy` ranks who stays.
    """

    max_facts: int = 100
    fact_confidence_threshold: float = 0.7
    fact_eviction_policy: str = "confidence"


POLICY_KEYS = tuple(Policy.__struct_fields__)
_MAX_FACTS = range(1, 1_000_001)
_EVICTION = ("confidence",)


def check_policy(policy: Policy) -> Policy:
    """Return the policy, or say which value is outside its range.

    Configuration narrows `max_facts` to 10 to 500; the ledger itself takes any cap from 1.

    Raises:
        ConfigError: a value outside its range.
    """
    if isinstance(policy.max_facts, bool) or policy.max_facts not in _MAX_FACTS:
        raise ConfigError(f"max_facts is {policy.max_facts}; it is a number from 1 to {_MAX_FACTS.stop - 1}")
    if not 0 <= policy.fact_confidence_threshold <= 1:
        raise ConfigError(f"fact_confidence_threshold is {policy.fact_confidence_threshold}; it lies from 0 to 1")
    if policy.fact_eviction_policy not in _EVICTION:
        raise ConfigError(
            f"fact_eviction_policy is {policy.fact_eviction_policy!r}; it is one of {', '.join(_EVICTION)}"
        )
    return policy
