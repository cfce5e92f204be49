"""Settings loader: defaults, then a YAML file, then the environment, then arguments; later ones override.

It keeps the origin of each value. An unknown key and a value out of range are errors. Keys have DeerFlow's names where
DeerFlow has them.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from backstory.config.file import BACKEND, NOT_NEEDED, read_config
from backstory.config.settings import WEIGHTS, ModelSettings, Settings
from backstory.config.size_limits import check_values
from backstory.config.value_ranges import kind_of
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.policy import POLICY_KEYS, PolicyValue

_log = logging.getLogger(__name__)

_PREFIX = "BACKSTORY_"
_NOT_KEYS = frozenset({"HOME", "MODEL", "REQUIRE", "BIN", "USER", "AGENT"})
_DEERFLOWS_STORE = "file"
"""The `storage_class` in DeerFlow's example configuration."""
_SHOWN = frozenset({"model_name", "model.provider", "model.temperature"})
_SHOWN_CHARACTERS = 100
_MOST_ERRORS = 20


class Loaded(BaseModel):
    """Settings, and the origin of each value: default, file, environment or argument."""

    model_config = ConfigDict(frozen=True)

    settings: Settings
    origin: dict[str, str]


def load_settings(
    config: str | Path | Mapping[str, object] | None = None,
    arguments: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Load the settings. Keys without an effect are logged as a warning.

    Args:
        config: A YAML file or a mapping.
        arguments: Settings of the caller; None is no value.
        environ: The environment. Default: that of the process.

    Raises:
        ConfigError: The file cannot be read, a key is unknown, or a value is out of range.
    """
    env = os.environ if environ is None else environ
    given = {key: value for key, value in (arguments or {}).items() if value is not None}
    check_values(given.items(), lambda key, why: ConfigError(f"{key} (from the argument) {why}: give a plain value"))
    layers = [("file", read_config(config, env)), ("environment", _from_environment(env)), ("argument", given)]
    values: dict[str, object] = {}
    origin = dict.fromkeys(Settings.model_fields, "default")
    unneeded: dict[str, str] = {}
    for name, layer in layers:
        for key, value in layer.items():
            if key in NOT_NEEDED:
                unneeded[key] = name
            elif key in Settings.model_fields:
                values[key] = value
                origin[key] = name
            else:
                raise ConfigError(_no_such_key(key, name))
    try:
        settings = Settings.model_validate({**values, **_ours(values)})
    except ValidationError as error:
        raise ConfigError(_messages(error, origin)) from error
    _report(values, origin, unneeded)
    return Loaded(settings=settings, origin=origin)


def _ours(values: Mapping[str, object]) -> dict[str, object]:
    """Return replacements for values that only DeerFlow uses."""
    return {"storage_class": ""} if values.get("storage_class") == _DEERFLOWS_STORE else {}


def _report(values: Mapping[str, object], origin: Mapping[str, str], unneeded: Mapping[str, str]) -> None:
    if _ours(values):
        _log.warning(
            "storage_class %r (from the %s) is a store of DeerFlow; event_store keeps the memory",
            _DEERFLOWS_STORE,
            origin["storage_class"],
        )
    if unneeded:
        reasons = "; ".join(f"{key} (from the {name}): {NOT_NEEDED[key]}" for key, name in unneeded.items())
        _log.warning("not needed here: %s", reasons)


def _no_such_key(key: str, layer: str) -> str:
    section, _, name = key.partition(".")
    known = [*Settings.model_fields, *NOT_NEEDED, BACKEND, *(f"model.{name}" for name in ModelSettings.model_fields)]
    if section == BACKEND and name:
        known = [f"{BACKEND}.{inner}" for inner in (*Settings.model_fields, *NOT_NEEDED)]
    nearest = difflib.get_close_matches(key, known, 1, 0.5)
    hint = f"; the nearest is {nearest[0]}" if nearest else ""
    return f"there is no configuration key {_clipped(key)} (from the {layer}){hint}"


def _messages(error: ValidationError, origin: Mapping[str, str]) -> str:
    errors = error.errors(include_url=False, include_input=True)
    messages = "; ".join(_message(item, origin) for item in errors[:_MOST_ERRORS])
    more = len(errors) - _MOST_ERRORS
    return f"{messages}; and {more} more" if more > 0 else messages


def _message(item: ErrorDetails, origin: Mapping[str, str]) -> str:
    """Name the wrong key, the rule, the value and its origin."""
    if item["type"] == "disagreement":
        values = item["ctx"]["values"].items()
        return f"{', '.join(_stated(key, repr(value), origin) for key, value in values)}: {item['ctx']['rule']}"
    key = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        return _no_such_key(key, origin[str(item["loc"][0])])
    # Any value below `model` may be an API key, also under a mistyped name. An address or a command may contain one.
    secret = (key.startswith("model") and key not in _SHOWN) or key.endswith(("_url", "_store")) or key == "witness"
    value = "…" if secret else _clipped(repr(item["input"]))
    kind = kind_of(key)
    if item["type"] == "value_error" or not kind:
        return f"{_stated(key, value, origin)}: {item['msg'].removeprefix('Value error, ')}"
    return f"{key} must be {kind}, got {value} (from the {_layer(key, origin)})"


def _stated(key: str, value: str, origin: Mapping[str, str]) -> str:
    return f"{key} is {value} (from the {_layer(key, origin)})"


def _layer(key: str, origin: Mapping[str, str]) -> str:
    return origin[key.partition(".")[0]]


def _clipped(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


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
    """Return the home folder: `home`, else `storage_path`, else `$BACKSTORY_HOME`, else ~/.backstory.

    A relative `storage_path` is below the base folder; one that ends in .json means its folder.
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
        raise ConfigError(f"{path} names the home folder of an unknown user: {error}") from error


def policy_values(loaded: Loaded) -> dict[str, PolicyValue]:
    """Return the policy keys that the configuration sets; the ledger keeps its own values for the others.

    If one of the three eviction weights is set, all are returned, since they must add up to 1.
    """
    stated = {key for key, origin in loaded.origin.items() if origin != "default"}
    if not stated.isdisjoint(WEIGHTS):
        stated.update(WEIGHTS)
    return {key: getattr(loaded.settings, key) for key in POLICY_KEYS if key in stated}
