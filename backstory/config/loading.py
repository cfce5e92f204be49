"""Configuration: defaults, then a YAML file, then the environment, then arguments; later beats earlier.

Each value knows where it came from. An unknown key is an error that names the nearest known one; so is a value outside
its range. The names are DeerFlow's where it has them, and so are the layouts that are understood.
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
from backstory.config.settings import DEFAULT_MODEL, WEIGHTS, ModelSettings, Settings
from backstory.config.size_limits import check_values
from backstory.config.value_ranges import kind_of, lies_from
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.policy import POLICY_KEYS, PolicyValue

__all__ = ["DEFAULT_MODEL", "Loaded", "ModelSettings", "Settings", "base_folder", "load_settings", "policy_values"]

_log = logging.getLogger(__name__)

_PREFIX = "BACKSTORY_"
_NOT_KEYS = frozenset({"HOME", "MODEL", "REQUIRE", "BIN"})
_DEERFLOWS_STORE = "file"
"""What DeerFlow's example configuration has as `storage_class`: its default, by name."""
_SHOWN = frozenset({"model_name", "model.provider", "model.temperature"})
_SHOWN_CHARACTERS = 100
_MOST_ERRORS = 20
_OUTSIDE = frozenset({"greater_than_equal", "less_than_equal", "finite_number"})


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

    What is understood and has no effect is logged as a warning.

    Raises:
        ConfigError: a file that cannot be read, an unknown key, a value outside its range.
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
        raise ConfigError(_all_told(_errors(error), origin)) from error
    _report(values, origin, unneeded)
    return Loaded(settings=settings, origin=origin)


def _ours(values: Mapping[str, object]) -> dict[str, object]:
    """What DeerFlow says otherwise."""
    return {"storage_class": ""} if values.get("storage_class") == _DEERFLOWS_STORE else {}


def _report(values: Mapping[str, object], origin: Mapping[str, str], unneeded: Mapping[str, str]) -> None:
    if _ours(values):
        _log.warning(
            "storage_class %r (from the %s) is DeerFlow's store; memory is kept by event_store",
            _DEERFLOWS_STORE,
            origin["storage_class"],
        )
    if unneeded:
        told = "; ".join(f"{key} (from the {name}): {NOT_NEEDED[key]}" for key, name in unneeded.items())
        _log.warning("not needed here: %s", told)


def _no_such_key(key: str, layer: str) -> str:
    section, _, name = key.partition(".")
    known = [*Settings.model_fields, *NOT_NEEDED, BACKEND, *(f"model.{name}" for name in ModelSettings.model_fields)]
    if section == BACKEND and name:
        known = [f"{BACKEND}.{inner}" for inner in (*Settings.model_fields, *NOT_NEEDED)]
    nearest = difflib.get_close_matches(key, known, 1, 0.5)
    hint = f"; the nearest is {nearest[0]}" if nearest else ""
    return f"there is no configuration key {_clipped(key)} (from the {layer}){hint}"


def _errors(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_input=True)


def _all_told(errors: list[ErrorDetails], origin: Mapping[str, str]) -> str:
    told = "; ".join(_told(item, origin) for item in errors[:_MOST_ERRORS])
    more = len(errors) - _MOST_ERRORS
    return f"{told}; and {more} more" if more > 0 else told


def _told(item: ErrorDetails, origin: Mapping[str, str]) -> str:
    """Say which key is wrong, its value, where that came from, and what it may be."""
    if item["type"] == "disagreement":
        stated = item["ctx"]["values"].items()
        return f"{', '.join(_stated(key, repr(value), origin) for key, value in stated)}: {item['ctx']['rule']}"
    key = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        return _no_such_key(key, origin[str(item["loc"][0])])
    # Below `model` any value may be the key to a service: in its place, under a mistyped name, or in the whole. An
    # address or a command may hold one as well.
    secret = (key.startswith("model") and key not in _SHOWN) or key.endswith(("_url", "_store")) or key == "witness"
    return f"{_stated(key, '…' if secret else _short(item['input']), origin)}: {_may_be(key, item)}"


def _stated(key: str, value: str, origin: Mapping[str, str]) -> str:
    return f"{key} is {value} (from the {origin[key.partition('.')[0]]})"


def _may_be(key: str, item: ErrorDetails) -> str:
    if item["type"] == "value_error":
        return item["msg"].removeprefix("Value error, ")
    span = lies_from(key)
    if span and item["type"] in _OUTSIDE:
        return f"it lies from {span}"
    kind = kind_of(key)
    return f"it is {kind}" if kind else item["msg"]


def _short(value: object) -> str:
    return _clipped(repr(value))


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


def policy_values(loaded: Loaded) -> dict[str, PolicyValue]:
    """Return the policy keys that configuration states; what it leaves to the default is the ledger's to keep.

    Whoever states one of the three weights of eviction states them all: they come to 1 together only.
    """
    stated = {key for key, origin in loaded.origin.items() if origin != "default"}
    if not stated.isdisjoint(WEIGHTS):
        stated.update(WEIGHTS)
    return {key: getattr(loaded.settings, key) for key in POLICY_KEYS if key in stated}
