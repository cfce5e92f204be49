"""Configuration: defaults, then a YAML file, then the environment, then arguments; later beats earlier.

Each value knows where it came from. An unknown key is an error that names the nearest known one; so is a value outside
its range. The names are DeerFlow's where it has them.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ledger.errors import ConfigError
from ledger.policy import POLICY_KEYS, Policy

__all__ = ["DEFAULT_MODEL", "Loaded", "ModelSettings", "Settings", "base_folder", "load_settings", "policy_values"]

_log = logging.getLogger(__name__)

DEFAULT_MODEL = "gpt-5-mini"
"""What is asked when neither `model_name` nor `$BACKSTORY_MODEL` says otherwise."""

_LARGEST_MEMORY = 500
_PREFIX = "BACKSTORY_"
_NOT_KEYS = frozenset({"HOME", "MODEL", "REQUIRE", "BIN"})
_OTHER_KEYS = frozenset(
    "enabled injection_enabled mode storage_class patterns_dir "  # noqa: SIM905 a page long
    "eviction_confidence_weight eviction_confirmation_weight eviction_access_weight "
    "eviction_confirmation_half_life_days eviction_access_half_life_days eviction_correction_reserved_fraction "
    "eviction_correction_reserved_max staleness_review_enabled staleness_age_days staleness_min_candidates "
    "staleness_max_removals_per_cycle staleness_protected_categories staleness_max_lifetime_multiplier "
    "staleness_max_extension_days consolidation_enabled consolidation_min_facts consolidation_max_groups_per_cycle "
    "consolidation_max_sources summary_min_turns summary_min_tokens summary_max_chars max_injection_tokens "
    "token_counting guaranteed_categories guaranteed_token_budget similarity_weight confidence_weight "
    "max_context_turns embedding_model embedding_base_url search_min_similarity search_top_k redis_url "
    "redis_ttl_seconds".split()
)
"""Keys of the documented configuration that this version knows and does not use; each is reported when it is set."""


class ModelSettings(BaseModel):
    """Which model to ask, spelled out; a key here beats `OPENAI_API_KEY`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    provider: Literal["openai"] = "openai"
    model: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    base_url: str | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)


class Settings(BaseModel):
    """Every key that this version uses; see docs/configuration.md."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), hide_input_in_errors=True)

    storage_path: str | None = None
    event_store: str = "jsonl:"
    strict_user_scope: bool = False
    file_lock_timeout_seconds: float = Field(default=10, ge=1, le=120)
    debounce_seconds: float = Field(default=30, ge=0, le=300)
    max_wait_seconds: float = Field(default=300, ge=1, le=86_400)
    min_seconds_between_calls: float = Field(default=0.5, ge=0, le=60)
    max_attempts: int = Field(default=5, ge=1, le=100)
    workers: int = Field(default=2, ge=1, le=32)
    queue_max_depth: int = Field(default=1000, ge=0)
    shutdown_flush_timeout_seconds: float = Field(default=30, ge=1, le=300)
    model_name: str | None = None
    model: ModelSettings = ModelSettings()
    prompts_dir: str | None = None
    transcript_retention_days: int | None = Field(default=None, ge=1)
    max_facts: int = Field(default=100, ge=10)
    max_facts_limit: int = Field(default=_LARGEST_MEMORY, ge=_LARGEST_MEMORY)
    fact_confidence_threshold: float = Field(default=0.7, ge=0, le=1)
    fact_eviction_policy: Literal["confidence"] = "confidence"

    @model_validator(mode="after")
    def _within_limit(self) -> Settings:
        if self.max_facts > self.max_facts_limit:
            raise ValueError(
                f"max_facts is {self.max_facts}; it lies from 10 to max_facts_limit, {self.max_facts_limit}"
            )
        return self


class Loaded(BaseModel):
    """Settings, and for each key where its value came from: default, file, environment or argument."""

    model_config = ConfigDict(frozen=True)

    settings: Settings
    origin: dict[str, str]


def load_settings(
    config: str | Path | Mapping[str, object] | None = None,
    arguments: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Load the settings from a YAML file (or a mapping), the environment and arguments.

    Raises:
        ConfigError: a file that cannot be read, an unknown key, a value outside its range.
    """
    env = os.environ if environ is None else environ
    layers = [
        ("file", _named(config) if isinstance(config, Mapping) else _from_file(config)),
        ("environment", _from_environment(env)),
        ("argument", {key: value for key, value in (arguments or {}).items() if value is not None}),
    ]
    values: dict[str, object] = {}
    origin = dict.fromkeys(Settings.model_fields, "default")
    for name, layer in layers:
        for key, value in layer.items():
            if _known(key, name):
                values[key] = value
                origin[key] = name
    try:
        return Loaded(settings=Settings.model_validate(values), origin=origin)
    except ValidationError as error:
        raise ConfigError(_told(error, origin)) from error


def _known(key: str, layer: str) -> bool:
    if key in Settings.model_fields:
        return True
    if key in _OTHER_KEYS:
        _log.warning("%s (from the %s) has no effect in this version", key, layer)
        return False
    raise ConfigError(_no_such_key(key, layer))


def _no_such_key(key: str, layer: str) -> str:
    known = [*Settings.model_fields, *_OTHER_KEYS, *(f"model.{name}" for name in ModelSettings.model_fields)]
    nearest = difflib.get_close_matches(key, known, 1, 0.5)
    hint = f"; the nearest is {nearest[0]}" if nearest else ""
    return f"there is no configuration key {key} (from the {layer}){hint}"


def _told(error: ValidationError, origin: Mapping[str, str]) -> str:
    told = []
    for item in error.errors(include_url=False, include_input=True):
        key = ".".join(map(str, item["loc"]))
        message = item["msg"].removeprefix("Value error, ")
        where = origin.get(str(item["loc"][0]), "default") if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            told.append(_no_such_key(key, where))
            continue
        # Below `model` any value may be the key to a service: in its place, under a mistyped name, or in the whole.
        value = repr(item["input"]) if key in _SHOWN or not key.startswith("model") else "…"
        lies = _range(key)
        message = f"it lies from {lies}" if lies and item["type"] in _OUTSIDE else message
        told.append(f"{key} is {value} (from the {where}): {message}" if key else message)
    return "; ".join(told)


_SHOWN = frozenset({"model_name", "model.provider", "model.temperature"})
_OUTSIDE = frozenset({"greater_than_equal", "less_than_equal", "finite_number"})


def _range(key: str) -> str:
    """Spell the range that a key's value has to lie in; empty where it has none."""
    if key == "max_facts":
        return f"10 to max_facts_limit, which is {_LARGEST_MEMORY} or more"
    fields = ModelSettings.model_fields if key.startswith("model.") else Settings.model_fields
    field = fields.get(key.removeprefix("model."))
    metadata = field.metadata if field is not None else []
    low = next((bound.ge for bound in metadata if hasattr(bound, "ge")), None)
    high = next((bound.le for bound in metadata if hasattr(bound, "le")), None)
    if low is None:
        return ""
    return f"{low} upwards" if high is None else f"{low} to {high}"


def _from_file(path: str | Path | None) -> dict[str, object]:
    if path is None:
        return {}
    import yaml

    try:
        read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        # PyYAML quotes the line in question, which may hold a key; the traceback would show it too.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ConfigError(f"the configuration file {path} is no YAML{where}: {problem}") from None
    if read is None:
        return {}
    section = read.get("memory", ...) if isinstance(read, dict) else ...
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise ConfigError(f"the configuration file {path} has no section `memory:` with keys below it")
    return _named(section)


def _named(section: Mapping[str, object]) -> dict[str, object]:
    """YAML takes numbers, dates and truth values for keys; to us they are names that are not known."""
    return {str(key): value for key, value in section.items()}


def _from_environment(env: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {
        name.removeprefix(_PREFIX).lower(): value
        for name, value in env.items()
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in _NOT_KEYS
    }
    if env.get("BACKSTORY_MODEL") and "model_name" not in found:
        found["model_name"] = env["BACKSTORY_MODEL"]
    return found


def base_folder(home: str | Path | None, settings: Settings, environ: Mapping[str, str] | None = None) -> Path:
    """Return the home folder: the argument, else `storage_path`, else `$BACKSTORY_HOME`, else ~/.backstory.

    A relative `storage_path` lies below the base folder; one that ends in .json means its folder.
    """
    env = os.environ if environ is None else environ
    if home is not None:
        return _expanded(home).absolute()
    base = _expanded(env.get("BACKSTORY_HOME") or "~/.backstory").absolute()
    if settings.storage_path:
        path = _expanded(settings.storage_path)
        folder = path if path.is_absolute() else base / path
        return folder.parent if folder.suffix == ".json" else folder
    return base


def _expanded(path: str | Path) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path} names the home of a user that there is not: {error}") from error


def policy_values(loaded: Loaded) -> dict[str, int | float | str]:
    """Return the policy keys that configuration states; what it leaves to the default is the ledger's to keep."""
    defaults = Policy()
    return {
        key: getattr(loaded.settings, key, getattr(defaults, key))
        for key in POLICY_KEYS
        if loaded.origin.get(key, "default") != "default"
    }
