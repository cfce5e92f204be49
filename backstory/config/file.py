"""Configuration reader: a YAML file or a mapping, in the layout of Backstory or of any version of DeerFlow.

    memory: {max_facts: 50}                                   Backstory, and older versions of DeerFlow
    memory: {enabled: true, backend_config: {max_facts: 50}}  newer versions of DeerFlow
    max_facts: 50                                             keys at the top of a file

A misplaced key is read with a warning. The file is the operator's own, so it is not guarded against its size or an
anchor within itself. A key that is given twice is refused, since its first value would have no effect.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backstory.config.model_factory import OWN_PROVIDERS
from backstory.config.settings import ModelSettings, Settings
from backstory.ledger.core.errors import ConfigError

if TYPE_CHECKING:
    import yaml

_log = logging.getLogger(__name__)

BACKEND = "backend_config"
"""The section of DeerFlow's newer layout that holds the keys of one memory backend."""

FOREIGN_MODEL = f"{BACKEND}.model"
"""The key for the `model` below `backend_config` of a provider that only LangChain connects to."""

NOT_NEEDED: Mapping[str, str] = {
    "manager_class": "only the host reads it, to choose the memory",
    "manifest_filename": "the document is always memory.json",
    "retrieval_adapter": "the search index is derived from the ledger and needs no adapter",
    "eviction_audit_max_entries": "every eviction is an event of the ledger, and all are kept",
    "fact_eviction_shadow_enabled": "`what-if --set fact_eviction_policy=hybrid` tries it on the whole history",
    "watermark_max_keys": "the ledger keeps which turns were read, so there is no cache to bound",
}
"""Keys of DeerFlow without a meaning here, and the reason."""

_HOSTS = frozenset({"enabled", "mode", "injection_enabled", "shutdown_flush_timeout_seconds", "manager_class"})
"""Keys that DeerFlow has beside `backend_config`, for all backends."""

_MAPPING = "tag:yaml.org,2002:map"
_REFERENCE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_ALIKE = 0.8
_COMMON_WORDS = frozenset({"model", "mode", "enabled", "workers"})
"""Keys with common names: a similar key, such as DeerFlow's `models`, is not treated as a typing error."""
_FULL_NAMES = sorted({*Settings.model_fields, *NOT_NEEDED, BACKEND} - _COMMON_WORDS)


def read_config(
    config: str | Path | Mapping[str, object] | None, environ: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Read the keys of a YAML file or a mapping.

    A value `$NAME` is taken from the environment, as in DeerFlow. An unknown key below `backend_config` gets that name
    as a prefix.

    Args:
        config: A YAML file, the mapping of a whole file, or the mapping below its `memory:`.
        environ: The environment. Default: that of the process.

    Raises:
        ConfigError: The file cannot be read, is not a configuration, or a `$NAME` is not set.
    """
    if config is None:
        return {}
    if isinstance(config, Mapping):
        where = "the configuration"
        section = _section(config, where) if "memory" in config else _named(config)
    else:
        where = f"the configuration file {config}"
        section = _section(_parsed(config), where)
    env = os.environ if environ is None else environ
    found = {key: _looked_up(key, value, env) for key, value in _flat(section, where).items()}
    if isinstance(found.get("model"), str) and not isinstance(config, Mapping):
        # The message does not quote the value, which may be an API key.
        raise ConfigError(
            f"model in {where} must have keys below it, such as {{provider: …, model: …}}; "
            "for the name of a model alone use model_name"
        )
    return found


def _looked_up(key: str, value: object, env: Mapping[str, str]) -> object:
    if isinstance(value, Mapping):
        return {name: _looked_up(f"{key}.{name}", inner, env) for name, inner in value.items()}
    if not isinstance(value, str) or not _REFERENCE.fullmatch(value):
        return value
    if value[1:] not in env:
        # The message does not quote the name, since an API key may begin with a dollar sign.
        raise ConfigError(f"{key} (from the file) names an environment variable that is not set: set it")
    return env[value[1:]]


def _parsed(path: str | Path) -> object:
    import yaml

    where = f"the configuration file {path}"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} cannot be read: {error}") from error
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if isinstance(root, yaml.MappingNode):
            _check_pairs([pair for pair in root.value if _may_be_ours(pair[0])], where)
        return None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # PyYAML quotes the line, which may hold an API key, so ours has no cause. Of a value that it cannot make, such
        # as a date that is none, it raises whatever Python does.
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        problem = getattr(error, "problem", None) or "a value in it cannot be read"
        raise ConfigError(f"{where} is not valid YAML{line}: {problem}") from None


def _may_be_ours(key: yaml.Node) -> bool:
    return key.value == "memory" or (isinstance(key.value, str) and _is_ours(key.value))


def _check_pairs(pairs: list[tuple[yaml.Node, yaml.Node]], where: str) -> None:
    """Refuse a key that is given twice, of which PyYAML silently takes the last."""
    first: dict[str, int] = {}
    for key, value in pairs:
        # Several merge keys are allowed.
        if isinstance(key.value, str) and key.value != "<<":
            line = key.start_mark.line + 1
            if key.value in first:
                raise ConfigError(
                    f"{where} has {key.value} at line {first[key.value]} and again at line {line}: keep one of them"
                )
            first[key.value] = line
        if value.tag == _MAPPING:
            _check_pairs(value.value, where)


def _section(read: object, where: str) -> dict[str, object]:
    """Return the keys below `memory:`, else the known keys at the top of the file."""
    if read is None:
        return {}
    top = _named(read) if isinstance(read, Mapping) else {}
    ours = [key for key in top if _is_ours(key)]
    section = top.get("memory", ...)
    if section is None or isinstance(section, Mapping):
        if stray := [key for key in ours if key not in _COMMON_WORDS]:
            _log.warning("%s in %s is beside `memory:` and is ignored: move it below", ", ".join(stray), where)
        return _named(section or {})
    if section is not ... or not ours:
        raise ConfigError(f"{where} has no section `memory:` with keys below it")
    for key in top:
        if key not in ours and (nearest := difflib.get_close_matches(key, _FULL_NAMES, 1, _ALIKE)):
            raise ConfigError(
                f"{where} has no section `memory:`, and there is no configuration key {key} (from the file); "
                f"the nearest is {nearest[0]}"
            )
    _log.warning("%s has no section `memory:`; %s at its top is read: move it below `memory:`", where, ", ".join(ours))
    return {key: top[key] for key in ours}


def _is_ours(key: str) -> bool:
    return key in Settings.model_fields or key in NOT_NEEDED or key == BACKEND


def _flat(section: dict[str, object], where: str) -> dict[str, object]:
    """Convert DeerFlow's newer layout, in which keys without a value are ignored."""
    if BACKEND not in section:
        return section
    below = section.pop(BACKEND)
    if below is not None and not isinstance(below, Mapping):
        raise ConfigError(f"{BACKEND} in {where} must have keys below it, got {type(below).__name__}")
    stated = {key: value for key, value in section.items() if value is not None or not _is_ours(key)}
    backend = {key: value for key, value in _named(below or {}).items() if value is not None or not _is_ours(key)}
    hosts = {key: value for key, value in stated.items() if key in _HOSTS}
    older = {key: value for key, value in stated.items() if key not in _HOSTS}
    if moved := [key for key in older if _is_ours(key)]:
        _log.warning("%s in %s is beside `%s:` and is read: move it below", ", ".join(moved), where, BACKEND)
    for key in sorted(stated.keys() & backend.keys()):
        if stated[key] != backend[key]:
            wins = "the one beside it" if key in _HOSTS else "the one below it"
            _log.warning("%s in %s is both beside `%s:` and below it: %s is used", key, where, BACKEND, wins)
    named = {key if _is_ours(key) and key != BACKEND else f"{BACKEND}.{key}": backend[key] for key in backend}
    model = named.get("model")
    if isinstance(model, Mapping):
        inner = _named(model)
        known = {key: value for key, value in inner.items() if key in ModelSettings.model_fields and value is not None}
        if known.get("provider") in OWN_PROVIDERS:
            named["model"] = known
        else:
            del named["model"]
            named[FOREIGN_MODEL] = known
        named |= {f"{BACKEND}.model.{key}": inner[key] for key in inner if key not in ModelSettings.model_fields}
    return {**older, **named, **hosts}


def _named(section: Mapping[object, object] | Mapping[str, object]) -> dict[str, object]:
    """Convert keys to strings, since YAML also has numbers, dates and booleans as keys."""
    return {str(key): value for key, value in section.items()}
