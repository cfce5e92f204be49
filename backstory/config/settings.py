"""Settings model: every configuration key, its default and range; docs/reference/configuration.md describes them.

The ranges in words are for error messages and that page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.policy import (
    CATEGORIES,
    MAX_INSTRUCTIONS,
    Category,
    Policy,
    check_policy,
    read_categories,
)
from backstory.witness.destinations import destination_of

DEFAULT_MODEL = "gpt-5-mini"
"""The model without `model_name` and `$BACKSTORY_MODEL`."""

NO_EMBEDDER = "none"
"""The configured name for search by words alone."""

WEIGHTS = ("eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight")
"""The weights of the `hybrid` eviction policy; they add up to 1."""

_LARGEST_MEMORY = 500
_LARGEST_LEDGER = 1_000_000
"""The largest cap that the ledger supports."""
_BASE_URL = re.compile(r"https?://[^\s/?#]+[^\s?#]*")
_REDIS_URL = re.compile(r"(?:rediss?://[^\s/]+|unix:/)\S*")
_LONGEST_TTL_SECONDS = 30 * 86_400
_LONGEST_DAYS = 365_000
"""A thousand years; the calendar does not reach much further back."""


def _parted(value: object) -> object:
    """Split a comma-separated list, as in the environment."""
    return [part for word in value.split(",") if (part := word.strip())] if isinstance(value, str) else value


def _as_here(value: object) -> object:
    """Map DeerFlow's name of a policy to ours."""
    return "hybrid" if value == "hybrid-v1" else value


AgentReads = Literal["both", "fallback", "own"]
"""What an agent reads of its user's facts: them beside its own, them until it has a memory of its own, or none."""

Names = Annotated[tuple[str, ...], BeforeValidator(_parted)]


def _named(value: object) -> tuple[Category, ...]:
    """Read the operator's categories; what is wrong with one is an error of the key."""
    try:
        return check_policy(msgspec.structs.replace(Policy(), categories=read_categories(value))).categories
    except ConfigError as error:
        raise ValueError(str(error)) from error


NamedCategories = Annotated[tuple[InstanceOf[Category], ...], BeforeValidator(_named)]


class ModelSettings(BaseModel):
    """The model for extraction; its `api_key` overrides `OPENAI_API_KEY`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    provider: Literal["openai"] = "openai"
    model: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    base_url: str | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)


class Settings(BaseModel):
    """All configuration keys. The names contain the units: seconds, days, tokens, chars."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), hide_input_in_errors=True)

    enabled: bool = True
    injection_enabled: bool = True
    mode: Literal["middleware", "tool"] = "middleware"

    storage_path: str | None = None
    storage_class: str = ""
    event_store: str = "jsonl:"
    strict_user_scope: bool = False
    shared_summaries: bool = False
    agent_reads: AgentReads = "both"
    file_lock_timeout_seconds: float = Field(default=10, ge=1, le=120)
    transcript_retention_days: int | None = Field(default=None, ge=1, le=_LONGEST_DAYS)

    debounce_seconds: float = Field(default=30, ge=0, le=300)
    max_wait_seconds: float = Field(default=300, ge=1, le=86_400)
    answer_wait_seconds: float = Field(default=600, ge=0, le=86_400)
    min_seconds_between_calls: float = Field(default=0.5, ge=0, le=60)
    max_attempts: int = Field(default=5, ge=1, le=100)
    workers: int = Field(default=2, ge=1, le=32)
    queue_max_depth: int = Field(default=1000, ge=0)
    shutdown_flush_timeout_seconds: float = Field(default=30, ge=1, le=300)

    model_name: str | None = None
    model: ModelSettings = ModelSettings()
    prompts_dir: str | None = None
    patterns_dir: str | None = None
    prompt_max_tokens: int = Field(default=24_000, ge=4_000, le=1_000_000)

    max_facts: int = Field(default=100, ge=10)
    max_facts_limit: int = Field(default=_LARGEST_MEMORY, ge=_LARGEST_MEMORY, le=_LARGEST_LEDGER)
    fact_confidence_threshold: float = Field(default=0.7, ge=0, le=1)
    gate_enabled: bool = True
    dedup_key: Literal["visible", "normalized", "casefold", "exact"] = "visible"
    said_again_share: float = Field(default=0.6, ge=0, le=1)
    evidence: Literal["any", "user"] = "any"
    free_categories: bool = True
    categories: NamedCategories = ()
    instructions: str = Field(default="", max_length=MAX_INSTRUCTIONS)

    fact_eviction_policy: Annotated[Literal["confidence", "hybrid"], BeforeValidator(_as_here)] = "confidence"
    eviction_confidence_weight: float = Field(default=0.65, ge=0, le=1)
    eviction_confirmation_weight: float = Field(default=0.25, ge=0, le=1)
    eviction_access_weight: float = Field(default=0.10, ge=0, le=1)
    eviction_confirmation_half_life_days: float = Field(default=90, ge=1, le=3650)
    eviction_access_half_life_days: float = Field(default=30, ge=1, le=3650)
    eviction_correction_reserved_fraction: float = Field(default=0.10, ge=0, le=1)
    eviction_correction_reserved_max: int = Field(default=10, ge=0, le=100)

    staleness_review_enabled: bool = True
    staleness_age_days: int = Field(default=90, ge=30, le=365)
    staleness_min_candidates: int = Field(default=3, ge=1, le=50)
    staleness_max_removals_per_cycle: int = Field(default=10, ge=1, le=50)
    staleness_protected_categories: Names = ("correction",)
    staleness_max_lifetime_multiplier: float = Field(default=20, ge=1, le=100)
    staleness_max_extension_days: int = Field(default=3650, ge=90, le=36_500)

    consolidation_enabled: bool = False
    consolidation_min_facts: int = Field(default=8, ge=3, le=30)
    consolidation_max_groups_per_cycle: int = Field(default=3, ge=1, le=10)
    consolidation_max_sources: int = Field(default=8, ge=2, le=20)

    summary_min_turns: int = Field(default=10, ge=0)
    summary_min_tokens: int = Field(default=4000, ge=1)
    summary_max_chars: int = Field(default=1200, ge=1, le=20_000)

    max_injection_tokens: int = Field(default=2000, ge=100, le=8000)
    token_counting: Literal["tiktoken", "char"] = "tiktoken"  # noqa: S105 not that kind of token
    guaranteed_categories: Names = ("correction",)
    guaranteed_token_budget: int = Field(default=500, ge=50, le=2000)
    similarity_weight: float = Field(default=0.6, ge=0, le=1)
    confidence_weight: float = Field(default=0.4, ge=0, le=1)
    max_context_turns: int = Field(default=3, ge=1, le=20)
    context_found_share: float = Field(default=0.7, ge=0, le=1)
    context_turns: bool = True

    embedding_model: str | None = None
    embedding_base_url: str | None = None
    search_min_similarity: float | None = Field(default=None, ge=0, le=1)
    search_top_k: int = Field(default=5, ge=1)

    redis_url: str | None = None
    redis_ttl_seconds: int = Field(default=1800, ge=1, le=_LONGEST_TTL_SECONDS)

    witness: str | None = None

    proxy_upstream: str | None = None
    anthropic_base_url: str | None = None
    proxy_history: Literal["newest", "all"] = "newest"

    hooks_leave_out: Names = ()

    @property
    def named_model(self) -> str:
        """The name of the model for extraction."""
        return self.model.model or self.model_name or DEFAULT_MODEL

    @property
    def prompts(self) -> Path | None:
        """The folder of prompts; None for the packaged ones."""
        return Path(self.prompts_dir) if self.prompts_dir else None

    @property
    def patterns(self) -> Path | None:
        """The folder of patterns; None for the packaged ones."""
        return Path(self.patterns_dir) if self.patterns_dir else None

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse booleans for numbers: YAML reads `workers: yes` as true, and pydantic reads that as 1."""
        field = cls.model_fields[info.field_name] if info.field_name else None
        if isinstance(value, bool) and field is not None and field.annotation is not bool:
            raise PydanticCustomError("boolean", "it must not be a boolean")
        return value

    @field_validator("staleness_protected_categories", "guaranteed_categories")
    @classmethod
    def _are_categories(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            if word not in CATEGORIES:
                raise ValueError(f"{word!r} is not a category; use {', '.join(CATEGORIES)}")
        return value

    @field_validator("hooks_leave_out")
    @classmethod
    def _are_absolute(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for folder in value:
            if not folder.startswith(("/", "~")):
                raise ValueError(f"{folder!r} is no absolute path; begin it with / or ~")
        return value

    @field_validator("witness")
    @classmethod
    def _is_a_destination(cls, value: str | None) -> str | None:
        if value:
            destination_of(value)
        return value

    @field_validator("proxy_upstream", "anthropic_base_url")
    @classmethod
    def _is_a_base_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and not _BASE_URL.fullmatch(value):
            usual = "openai.com/v1" if info.field_name == "proxy_upstream" else "anthropic.com"
            raise ValueError(f"it must be the base URL of a server, such as https://api.{usual}")
        return value

    @field_validator("redis_url")
    @classmethod
    def _is_of_redis(cls, value: str | None) -> str | None:
        if value and not _REDIS_URL.fullmatch(value):
            raise ValueError("it must be an address of Redis, such as redis://cache.example.com:6379/0")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.max_facts > self.max_facts_limit:
            raise _disagreement(
                {"max_facts": self.max_facts}, f"it must be from 10 to max_facts_limit, {self.max_facts_limit}"
            )
        weights = {key: getattr(self, key) for key in WEIGHTS}
        if not math.isclose(sum(weights.values()), 1, rel_tol=0, abs_tol=1e-9):
            raise _disagreement(weights, f"together they must add up to 1, not to {sum(weights.values()):.12g}")
        return self


def _disagreement(values: Mapping[str, object], rule: str) -> PydanticCustomError:
    """Create the error for values that are valid alone, but not together."""
    return PydanticCustomError("disagreement", "{rule}", {"values": dict(values), "rule": rule})


def kind_of(key: str) -> str:
    """Spell the type and range of a value, such as `a whole number from 1 to 32`; empty for an unknown key."""
    field = _field(key)
    if field is None:
        return ""
    kind = _without_none(field.annotation)
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        if key.startswith("hooks_leave_out"):
            return "a path" if "." in key else "a list of paths"
        return f"{'one' if '.' in key else 'a list'} of {', '.join(CATEGORIES)}"
    names = {int: "a whole number", float: "a number", str: "a string", ModelSettings: "keys with values"}
    name = names.get(kind, "") if isinstance(kind, type) else ""
    low, high, most = (_bound(field, bound) for bound in ("ge", "le", "max_length"))
    if most is not None:
        return f"{name} of at most {most} characters"
    if key == "max_facts":
        return f"{name} from {low} to max_facts_limit, which is {_LARGEST_MEMORY} or more"
    if low is None:
        return name
    return f"{name} from {low} upwards" if high is None else f"{name} from {low} to {high}"


def _bound(field: FieldInfo, name: str) -> object:
    return next((getattr(bound, name) for bound in field.metadata if hasattr(bound, name)), None)


def _without_none(kind: object) -> object:
    if get_origin(kind) in (UnionType, Union):
        return next(inner for inner in get_args(kind) if inner is not NoneType)
    return kind


def _field(key: str) -> FieldInfo | None:
    if key.startswith("model."):
        return ModelSettings.model_fields.get(key.removeprefix("model."))
    return Settings.model_fields.get(key.partition(".")[0])
