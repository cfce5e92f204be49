"""Policy: the limits and switches that decide what enters memory and what stays; recorded whenever it changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.kinds import DedupKey, EvictionRanking, RequiredEvidence
from backstory.ledger.core.sanitize import MAX_NAME, clip

CATEGORIES = ("preference", "knowledge", "context", "behavior", "goal", "correction")
"""The categories that the rules know by name. They treat a free one as `context`."""

EVICTIONS: tuple[EvictionRanking, ...] = ("confidence", "hybrid")
"""The rankings by which the cap evicts."""

DEDUP_KEYS: tuple[DedupKey, ...] = ("visible", "normalized", "casefold", "exact")
"""The modes of `dedup_key`, from the one that finds most duplicates to the one that finds fewest."""

EVIDENCE: tuple[RequiredEvidence, ...] = ("any", "user")
"""The values of `evidence`: whose words a model's fact may rest on."""

MAX_INSTRUCTIONS = 4_000
"""The most characters in `instructions`, and in the description of a category."""
_MOST_CATEGORIES = 50


class Category(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A category that the policy names, beside the six or in place of one of them.

    Attributes:
        name: its name.
        description: what belongs to it, for the model.
        lifetime: after how many days its facts are reviewed, unless a fact states its own; None: `staleness_age_days`.
        protected: whether its facts are never reviewed and never merged.
        guaranteed: whether its facts come first in the context block, within `guaranteed_token_budget`.
    """

    name: str
    description: str = ""
    lifetime: int | None = None
    protected: bool = False
    guaranteed: bool = False


PolicyValue: TypeAlias = int | float | str | bool | tuple[str | Category, ...]


class Policy(msgspec.Struct, frozen=True):
    """The policy in force; field names and defaults are those of the configuration.

    Memory holds at most `max_facts` facts; `fact_eviction_policy` ranks which of them stay, `hybrid` by the weights and
    half-lives (days). A model's fact needs a confidence of `fact_confidence_threshold` (0 to 1). `gate_enabled` refuses
    what a model does not label as a lasting statement about the user. `dedup_key` is the mode that finds duplicates. A
    fact is due for review after its own lifetime, or after `staleness_age_days`. Facts of a category are merged if it
    has at least `consolidation_min_facts`. What a person took away comes back if a user's later turn has this share of
    its content words, `said_again_share` (0 to 1; 0: always). With `evidence` at `user` a fact that rests on an
    assistant's words alone is refused. With `free_categories` a fact keeps a category that is not one of CATEGORIES;
    otherwise it becomes `context`. `categories` are named by the operator, and `instructions`
    say in words what is to be remembered. Lifetimes and extensions are in days.

    A log that was written before a key existed is read with its default here. FIRST is what a new log begins with.
    """

    max_facts: int = 100
    fact_confidence_threshold: float = 0.7
    fact_eviction_policy: EvictionRanking = "confidence"
    eviction_confidence_weight: float = 0.65
    eviction_confirmation_weight: float = 0.25
    eviction_access_weight: float = 0.1
    eviction_confirmation_half_life_days: float = 90
    eviction_access_half_life_days: float = 30
    eviction_correction_reserved_fraction: float = 0.1
    eviction_correction_reserved_max: int = 10
    gate_enabled: bool = True
    dedup_key: DedupKey = "visible"
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
    said_again_share: float = 0.6
    evidence: RequiredEvidence = "any"
    free_categories: bool = False
    categories: tuple[Category, ...] = ()
    instructions: str = ""


FIRST = Policy(free_categories=True)
"""The policy of a new ledger, unless configured otherwise."""

EARLIER: Mapping[str, PolicyValue] = MappingProxyType({"dedup_key": "normalized", "free_categories": False})
"""Values that were the defaults of keys before those of FIRST; a ledger that has them still gets the new ones."""

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
"""Ranges of whole numbers, wider than those of the configuration (there max_facts is 10 to 500)."""
_REAL = {
    "fact_confidence_threshold": (0, 1),
    "eviction_confidence_weight": (0, 1),
    "eviction_confirmation_weight": (0, 1),
    "eviction_access_weight": (0, 1),
    "eviction_confirmation_half_life_days": (1, 3650),
    "eviction_access_half_life_days": (1, 3650),
    "eviction_correction_reserved_fraction": (0, 1),
    "staleness_max_lifetime_multiplier": (1, 100),
    "said_again_share": (0, 1),
}
_CHOICES = {"fact_eviction_policy": EVICTIONS, "dedup_key": DEDUP_KEYS, "evidence": EVIDENCE}
_LONGEST_DAYS = 36_500
_SWITCHES = ("gate_enabled", "staleness_review_enabled", "consolidation_enabled", "free_categories")
_WEIGHTS = ("eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight")


class PolicyKey(msgspec.Struct, frozen=True):
    """What a policy key takes, as `check_policy` checks it.

    Attributes:
        key: its name.
        type: the kind of its value; a list has some of `choices`, a choice is one of them; `categories` are objects
            with the fields of Category.
        minimum: the smallest number, None where it is none.
        maximum: the largest number, likewise.
        choices: the values of a choice or of a list.
        default: the value unless configured.
    """

    key: str
    type: Literal["integer", "number", "boolean", "choice", "list", "text", "categories"]
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    default: PolicyValue


def policy_key(key: str) -> PolicyKey:
    """Return what a policy key takes."""
    default: PolicyValue = getattr(FIRST, key)
    if key in _WHOLE:
        return PolicyKey(key, "integer", *_WHOLE[key], (), default)
    if key in _REAL:
        return PolicyKey(key, "number", *_REAL[key], (), default)
    if key in _SWITCHES:
        return PolicyKey(key, "boolean", None, None, (), default)
    if key in _CHOICES:
        return PolicyKey(key, "choice", None, None, _CHOICES[key], default)
    if key == "instructions":
        return PolicyKey(key, "text", None, MAX_INSTRUCTIONS, (), default)
    if key == "categories":
        return PolicyKey(key, "categories", None, None, (), default)
    return PolicyKey(key, "list", None, None, CATEGORIES, default)


def check_policy(policy: Policy) -> Policy:
    """Check every value of a policy and return the policy.

    Raises:
        ConfigError: A value has the wrong type or is outside its range.
    """
    for name, (low, high) in (_WHOLE | _REAL).items():
        value = getattr(policy, name)
        kind, noun = (int, "a whole number") if name in _WHOLE else (int | float, "a number")
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise ConfigError(f"{name} must be {noun} from {low} to {high}, got {value!r}")
    for name, choices in _CHOICES.items():
        if (value := getattr(policy, name)) not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    for name in _SWITCHES:
        if not isinstance(value := getattr(policy, name), bool):
            raise ConfigError(f"{name} must be true or false, got {value!r}")
    named = policy.staleness_protected_categories
    if not isinstance(named, tuple) or not all(name in CATEGORIES for name in named):
        raise ConfigError(
            f"staleness_protected_categories must be a list of categories ({', '.join(CATEGORIES)}), got {named!r}"
        )
    _check_words(policy)
    total = sum(getattr(policy, name) for name in _WEIGHTS)
    if not math.isclose(total, 1, abs_tol=1e-9):
        raise ConfigError(f"{', '.join(_WEIGHTS)} must add up to 1, got {total:g}")
    return policy


def _check_words(policy: Policy) -> None:
    text = policy.instructions
    if not isinstance(text, str) or len(text) > MAX_INSTRUCTIONS:
        raise ConfigError(f"instructions must be a text of at most {MAX_INSTRUCTIONS:,} characters")
    named = policy.categories
    if not isinstance(named, tuple) or not all(isinstance(one, Category) for one in named):
        raise ConfigError(f"categories must be a list of categories with a name each, got {named!r}")
    if len(named) > _MOST_CATEGORIES:
        raise ConfigError(f"categories may name {_MOST_CATEGORIES} at most, got {len(named)}")
    seen: set[str] = set()
    for one in named:
        _check_category(one)
        if one.name.casefold() in seen:
            raise ConfigError(f"categories names {one.name!r} twice: name each category once")
        seen.add(one.name.casefold())


def _check_category(category: Category) -> None:
    name, days = category.name, category.lifetime
    if not name.strip() or name != " ".join(name.split()) or len(name) > MAX_NAME:
        raise ConfigError(f"the name of a category must be one line of 1 to {MAX_NAME} characters, got {name[:40]!r}")
    if len(category.description) > MAX_INSTRUCTIONS:
        raise ConfigError(f"the description of category {name} must have at most {MAX_INSTRUCTIONS:,} characters")
    if days is not None and not 1 <= days <= _LONGEST_DAYS:
        raise ConfigError(f"the lifetime of category {name} must be 1 to {_LONGEST_DAYS} days, got {days}")


def read_categories(stated: object) -> tuple[Category, ...]:
    """Read the value of `categories`: names, objects with the fields of Category, or both; a text is a list of names.

    A text that begins with a bracket is read as JSON.

    Raises:
        ConfigError: It is none of these.
    """
    items: object = stated
    if isinstance(stated, str):
        try:
            is_json = stated.lstrip().startswith("[")
            items = msgspec.json.decode(stated) if is_json else [name for name in stated.split(",") if name.strip()]
        except msgspec.DecodeError as error:
            raise ConfigError(f"categories cannot be read as JSON: {error}") from error
    if not isinstance(items, list | tuple):
        raise ConfigError(f"categories must be a list of names or of objects with a name, got {stated!r}")
    return tuple(map(_category, items))


def _category(stated: object) -> Category:
    if isinstance(stated, Category):
        return stated
    try:
        return msgspec.convert({"name": stated.strip()} if isinstance(stated, str) else stated, Category)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"a category must be a name or an object with name, description, lifetime, protected and guaranteed; "
            f"{stated!r} is not: {error}"
        ) from error


# Categories.

_OTHER = "context"
"""The category of a fact that states none, and how the rules treat a category that they do not know."""


def read_category(stated: str) -> str:
    """Return a category as it is kept: without blanks around it, a known one in lower case, `context` for an empty one.

    A free one that is too long is cut.
    """
    name = stated.strip()
    if name.casefold() in CATEGORIES:
        return name.casefold()
    return clip(name, MAX_NAME) or _OTHER


def named_category(category: str, policy: Policy) -> Category | None:
    """Return what the policy says of a category; None where it does not name it."""
    # The rules ask this of every fact, and most policies name none: a generator would cost more than the rest.
    for one in policy.categories:
        if same_category(one.name, category):
            return one
    return None


def kept_category(proposed: str, policy: Policy) -> str:
    """Return the category that a fact gets: as the policy spells it, as proposed, or `context`.

    `context` it is where the policy neither names the proposed one nor has free categories.
    """
    if proposed in CATEGORIES:
        return proposed
    if (named := named_category(proposed, policy)) is not None:
        return named.name
    return proposed if policy.free_categories and proposed else _OTHER


def rule_category(category: str, policy: Policy) -> str:
    """Return the category as which the rules treat one."""
    if category in CATEGORIES:
        return category
    named = named_category(category, policy)
    return _OTHER if named is None else named.name


def is_protected(category: str, policy: Policy) -> bool:
    """Whether facts of a category are never reviewed and never merged."""
    named = named_category(category, policy)
    return (named is not None and named.protected) or (
        rule_category(category, policy) in policy.staleness_protected_categories
    )


def same_category(one: str, other: str) -> bool:
    """Whether two categories are the same, whatever their case."""
    return one == other or one.casefold() == other.casefold()
