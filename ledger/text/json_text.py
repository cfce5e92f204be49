"""JSON parser for what others wrote: numbers of any length and deep nesting are read, or end in an error of our tree.

Nesting is measured before anything is parsed. A parser that runs into Python's recursion limit does so at a depth that
depends on its caller, and whatever is collected just then fails as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import orjson

from backstory.ledger.core.errors import InputError

__all__ = ["inner_spans", "may_nest_too_deep", "parse_json", "read_number", "refuse_too_deep", "where_too_deep"]

_MOST_LEVELS = 500
_MOST_DIGITS = 4_000
"""Python reads no integer of more than 4,300."""

_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
"""A text, whose brackets and digits mean nothing; one without an end goes to the end, so that all is looked at once."""
_PART = re.compile(_TEXT + r"|(?P<opening>[\[{])|(?P<closing>[\]}])", re.DOTALL)
_LONG = re.compile(_TEXT + "|(?P<digits>[0-9]{4301,})", re.DOTALL)
_WITHIN = 2


def parse_json(data: bytes) -> object:
    """Parse one JSON value, strictly and fast; NaN and integers past 64 bits, which that refuses, are let through.

    Raises:
        InputError: it is no JSON, nests too deep, or holds a number of too many digits; if it has several lines, the
            text says which.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    several = b"\n" in data.rstrip()

    def broken(line: int, why: str) -> InputError:
        return InputError(f"line {line}: {why}" if several else why)

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise broken(line, f"it is no UTF-8 (byte {error.start}: 0x{data[error.start]:02x})") from error
    if (deep := where_too_deep(text)) is not None:
        raise broken(text.count("\n", 0, deep) + 1, "it is nested too deep")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise broken(error.lineno, f"it is no JSON: {error.msg} at column {error.colno}") from error
    except RecursionError:
        raise InputError("it is nested too deep") from None
    except ValueError as error:
        long = next((part.start() for part in _LONG.finditer(text) if part["digits"]), 0)
        raise broken(text.count("\n", 0, long) + 1, "it holds a number of more than 4,300 digits") from error


def read_number(digits: str) -> int | float:
    """Read an integer of any length: past 4,300 digits Python reads none, and a float is merely out of every range."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def may_nest_too_deep(text: str) -> bool:
    """Whether a text has brackets enough to nest too deep; it costs little to ask."""
    return text.count("{") + text.count("[") > _MOST_LEVELS


def where_too_deep(text: str, begin: int = 0) -> int | None:
    """Return where the value that begins at a place nests deeper than is read; None where it does not."""
    if begin == 0 and not may_nest_too_deep(text):
        return None
    depth = 0
    for part in _PART.finditer(text, begin):
        depth += bool(part["opening"]) - bool(part["closing"])
        if depth > _MOST_LEVELS:
            return part.start()
        if depth <= 0:
            break
    return None


def refuse_too_deep(text: str, begin: int) -> None:
    """Raise what a parser would that was let down that far.

    Raises:
        RecursionError: the value that begins there nests deeper than is read.
    """
    if where_too_deep(text, begin) is not None:
        raise RecursionError


def inner_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the brackets within the outermost ones begin and end."""
    depth = begin = 0
    for part in _PART.finditer(text):
        if part["opening"]:
            depth += 1
            begin = part.start() if depth == _WITHIN else begin
        elif part["closing"]:
            if depth == _WITHIN:
                yield begin, part.end()
            depth -= 1
