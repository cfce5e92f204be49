"""Value ranges of the configuration keys in words, for error messages and docs/reference/configuration.md."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from backstory.config.settings import ModelSettings, Settings
from backstory.ledger.core.policy import CATEGORIES

Bound = int | float


def bounds(key: str) -> tuple[Bound | None, Bound | None]:
    """Return the smallest and the largest value of a key, each None if there is no bound.

    Args:
        key: The name of a setting, of a key below `model` (`model.temperature`), or of an item of a list (`name.0`). An
            unknown key has no bounds.
    """
    metadata = field.metadata if (field := _field(key)) is not None else ()
    low = next((bound.ge for bound in metadata if hasattr(bound, "ge")), None)
    high = next((bound.le for bound in metadata if hasattr(bound, "le")), None)
    return low, high


def range_of(key: str) -> str:
    """Spell the range of a number, such as `1 to 32` or `0 upwards`; empty if it has none."""
    if key == "max_facts":
        return f"10 to max_facts_limit, which is {bounds('max_facts_limit')[0]} or more"
    low, high = bounds(key)
    if low is None:
        return ""
    return f"{low} upwards" if high is None else f"{low} to {high}"


def kind_of(key: str) -> str:
    """Spell the type and range of a value, such as `a whole number from 1 to 32`; empty for an unknown key."""
    field = _field(key)
    if field is None:
        return ""
    kind = _without_none(field.annotation)
    span = range_of(key)
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
    most = next((bound.max_length for bound in field.metadata if hasattr(bound, "max_length")), None)
    if most is not None:
        return f"{name} of at most {most} characters"
    return f"{name} from {span}" if span else name


def _without_none(kind: object) -> object:
    if get_origin(kind) in (UnionType, Union):
        return next(inner for inner in get_args(kind) if inner is not NoneType)
    return kind


def _field(key: str) -> FieldInfo | None:
    if key.startswith("model."):
        return ModelSettings.model_fields.get(key.removeprefix("model."))
    return Settings.model_fields.get(key.partition(".")[0])
