"""Keys of the configuration as `Backstory.open` takes them, so that a type checker finds a wrong one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

__all__ = ["SettingKeys"]


class SettingKeys(TypedDict, total=False):
    """Single configuration keys; docs/reference/configuration.md describes each. A test compares with the settings."""

    enabled: bool
    injection_enabled: bool
    mode: Literal["middleware", "tool"]
    storage_path: str | None
    storage_class: str
    event_store: str | None
    strict_user_scope: bool
    shared_summaries: bool
    agent_reads: Literal["both", "fallback", "own"]
    file_lock_timeout_seconds: float
    transcript_retention_days: int | None
    debounce_seconds: float
    max_wait_seconds: float
    answer_wait_seconds: float
    min_seconds_between_calls: float
    max_attempts: int
    workers: int
    queue_max_depth: int
    shutdown_flush_timeout_seconds: float
    model_name: str | None
    prompts_dir: str | None
    patterns_dir: str | None
    prompt_max_tokens: int
    max_facts: int
    max_facts_limit: int
    fact_confidence_threshold: float
    gate_enabled: bool
    dedup_key: Literal["visible", "normalized", "casefold", "exact"]
    said_again_share: float
    evidence: Literal["any", "user"]
    free_categories: bool
    categories: Sequence[Mapping[str, object]]
    instructions: str
    fact_eviction_policy: Literal["confidence", "hybrid"]
    eviction_confidence_weight: float
    eviction_confirmation_weight: float
    eviction_access_weight: float
    eviction_confirmation_half_life_days: float
    eviction_access_half_life_days: float
    eviction_correction_reserved_fraction: float
    eviction_correction_reserved_max: int
    staleness_review_enabled: bool
    staleness_age_days: int
    staleness_min_candidates: int
    staleness_max_removals_per_cycle: int
    staleness_protected_categories: Sequence[str]
    staleness_max_lifetime_multiplier: float
    staleness_max_extension_days: int
    consolidation_enabled: bool
    consolidation_min_facts: int
    consolidation_max_groups_per_cycle: int
    consolidation_max_sources: int
    summary_min_turns: int
    summary_min_tokens: int
    summary_max_chars: int
    max_injection_tokens: int
    token_counting: Literal["tiktoken", "char"]
    guaranteed_categories: Sequence[str]
    guaranteed_token_budget: int
    similarity_weight: float
    confidence_weight: float
    max_context_turns: int
    context_found_share: float
    context_turns: bool
    embedding_model: str | None
    embedding_base_url: str | None
    search_min_similarity: float | None
    search_top_k: int
    redis_url: str | None
    redis_ttl_seconds: int
    witness: str | None
    proxy_upstream: str | None
    anthropic_base_url: str | None
    proxy_history: Literal["newest", "all"]
    hooks_leave_out: Sequence[str]
