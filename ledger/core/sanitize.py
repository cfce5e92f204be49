"""Sanitizer of incoming values, which runs before anything is decided or stored.

Orjson and msgspec refuse lone surrogates and integers past 64 bits, and a text without a limit could fill a disk. Input
is cleaned once, here, so that the rest of the program can rely on it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TypeAlias

MAX_NAME = 512
"""The most characters in an id, a name, a category or an actor."""
MAX_FACT = 50_000
"""The most characters in a fact, in the error that it corrects and in a model's reason; longer ones are refused."""
MAX_SUMMARY = 50_000
"""The most characters in a section; a longer one is refused."""
MAX_CONTENT = 1_000_000
"""The most characters in a turn, and of a text that is refused for its length and recorded."""

_MAX_DAYS = 10**6
_MAX_DEPTH = 32
_MAX_INT = 2**63 - 1

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def safe_text(text: str) -> str:
    """Return the text as a plain str with lone surrogates replaced by U+FFFD; anything else does not change."""
    if type(text) is str and text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str.__str__(text)


def clip(text: str, limit: int) -> str:
    """Return a safe text of at most `limit` characters; one that was cut ends in a mark that says how much."""
    clean = safe_text(text)
    if len(clean) <= limit:
        return clean
    mark = f"… [{len(clean)} characters cut]"
    kept = max(0, limit - len(mark))
    mark = f"… [{len(clean) - kept} characters cut]"
    return (clean[:kept] + mark)[:limit]


def bounded_name(name: str) -> str:
    """Return an id as safe text of at most `MAX_NAME` characters; a longer one is cut and ends in its digest."""
    clean = safe_text(name)
    if len(clean) <= MAX_NAME:
        return clean
    digest = hashlib.sha256(clean.encode()).hexdigest()
    return f"{clean[: MAX_NAME - len(digest) - 1]}…{digest}"


def text_if_any(value: object) -> str | None:
    """Return a text that says something; None for any other value."""
    return value if isinstance(value, str) and value.strip() else None


def whole_days(value: object) -> int | None:
    """Return a lifetime as whole days, cut as DeerFlow does; None unless it is a number from 1 to below a million."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value < _MAX_DAYS else None


def safe_json(value: object, limit: int = MAX_NAME * 8, depth: int = 0) -> Json:
    """Return a value that every JSON writer accepts.

    Args:
        value: any object. Subclasses of str, int and float become the plain types, and other objects their text.
        limit: the most characters of a text; NaN, infinity and integers past 64 bits become texts.
        depth: the current depth of nesting; values nested deeper than 32 levels are replaced by a mark.
    """
    if depth > _MAX_DEPTH:
        return "… [nested too deep]"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -_MAX_INT - 1 <= value <= _MAX_INT else clip(f"{int(value):#x}", limit)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return clip(value, limit)
    if isinstance(value, Mapping):
        return {clip(str(k), MAX_NAME): safe_json(v, limit, depth + 1) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return [safe_json(v, limit, depth + 1) for v in value]
    return clip(str(value), limit)
