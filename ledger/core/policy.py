"""What may enter memory and how much of it may stay: a frozen value, recorded whenever it changes."""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec

from backstory.ledger.core.errors import ConfigError

__all__ = ["CATEGORIES", "DEDUP_KEYS", "EVICTIONS", "POLICY_KEYS", "Policy", "PolicyValue", "check_policy"]

CATEGORIES = ("preference", "knowledge", "context", "behavior", "goal", "correction")
"""What a fact may be about; a model's category outside these is stored as `context`, the proposal keeps its word."""

EVICTIONS = ("confidence", "hybrid")
"""How the cap ranks who stays."""

DEDUP_KEYS = ("normalized", "casefold", "exact")
"""When two facts say the same, from the widest notion to the narrowest."""

PolicyValue: TypeAlias = int | float | str | bool | tuple[str, ...]


class Policy(msgspec.Struct, frozen=True):
    """The rules in force; names, defaults and ranges are those of the configuration.

    `max_facts` live facts at most; a model's fact needs `fact_confidence_threshold` (0 to 1); when the cap bites,
    `fact_eviction_policy` ranks who stays, `hybrid` by the weights and half-lives (days) given. `gate_enabled` keeps
    out what a model labels as no lasting statement about the user; `dedup_key` says when two facts say the same. A
    fact is up for review after its own lifetime, else `staleness_age_days`; a category of at least
    `consolidation_min_facts` may be merged. Lifetimes and extensions are in days.
    """

    max_facts: int = 100
    fact_confidence_threshold: float = 0.7
    fact_eviction_policy: str = "confidence"
    eviction_confidence_weight: float = 0.65
    eviction_confirmation_weight: float = 0.25
    eviction_access_weight: float = 0.1
    eviction_confirmation_half_life_days: float = 90
    eviction_access_half_life_days: float = 30
    eviction_correction_reserved_fraction: float = 0.1
    eviction_correction_reserved_max: int = 10
    gate_enabled: bool = True
    dedup_key: str = "normalized"
    staleness_review_enabled: bool = True
    staleness_age_days: int = 90
    staleness_min_candidates: int = 3
    staleness_max_removals_per_cycle: int = 10
    staleness_protected_categories: tuple[str, ...] = ("correction",)
    staleness_max_lifetime_multiplier: float = 20
    staleness_max_extension_days: int = 3650
    consolidation_enabled: bool = False
    consolidation_min_facts: int = 8
    consolidation_max_groups_per_cycle: int = 3
    consolidation_max_sources: int = 8


POLICY_KEYS = tuple(Policy.__struct_fields__)
_WHOLE = {
    "max_facts": (1, 1_000_000),
    "eviction_correction_reserved_max": (0, 100),
    "staleness_age_days": (1, 36_500),
    "staleness_min_candidates": (1, 1_000),
    "staleness_max_removals_per_cycle": (1, 1_000),
    "staleness_max_extension_days": (1, 36_500),
    "consolidation_min_facts": (2, 1_000),
    "consolidation_max_groups_per_cycle": (1, 100),
    "consolidation_max_sources": (2, 100),
}
"""Ranges of whole numbers; configuration narrows them (max_facts from 10 to 500), the ledger itself takes more."""
_REAL = {
    "fact_confidence_threshold": (0, 1),
    "eviction_confidence_weight": (0, 1),
    "eviction_confirmation_weight": (0, 1),
    "eviction_access_weight": (0, 1),
    "eviction_confirmation_half_life_days": (1, 3650),
    "eviction_access_half_life_days": (1, 3650),
    "eviction_correction_reserved_fraction": (0, 1),
    "staleness_max_lifetime_multiplier": (1, 100),
}
_CHOICES = {"fact_eviction_policy": EVICTIONS, "dedup_key": DEDUP_KEYS}
_SWITCHES = ("gate_enabled", "staleness_review_enabled", "consolidation_enabled")
_WEIGHTS = ("eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight")


def check_policy(policy: Policy) -> Policy:
    """Return the policy, or say which value is outside its range.

    Raises:
        ConfigError: a value of the wrong kind or outside its range.
    """
    for name, whole in _WHOLE.items():
        _must_lie(name, getattr(policy, name), *whole, kind=int)
    for name, real in _REAL.items():
        _must_lie(name, getattr(policy, name), *real, kind=(int, float))
    for name, choices in _CHOICES.items():
        if getattr(policy, name) not in choices:
            raise ConfigError(f"{name} is {getattr(policy, name)!r}; it is one of {', '.join(choices)}")
    for name in _SWITCHES:
        if not isinstance(getattr(policy, name), bool):
            raise ConfigError(f"{name} is {getattr(policy, name)!r}; it is true or false")
    named = policy.staleness_protected_categories
    if not isinstance(named, tuple) or not all(name in CATEGORIES for name in named):
        raise ConfigError(
            f"staleness_protected_categories is {named!r}; it lists categories, which are {', '.join(CATEGORIES)}"
        )
    total = sum(getattr(policy, name) for name in _WEIGHTS)
    if not math.isclose(total, 1, abs_tol=1e-9):
        raise ConfigError(f"{', '.join(_WEIGHTS)} come to {total:g} together; they must come to 1")
    return policy


def _must_lie(name: str, value: float, low: float, high: float, *, kind: type | tuple[type, ...]) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        noun = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{name} is {value!r}; it is {noun} from {low} to {high}")
