"""JSON parser for untrusted text, in which deep nesting and very long numbers raise an InputError.

Nesting is measured before the text is parsed. Otherwise a parser would reach Python's recursion limit at a depth that
depends on its caller, and a garbage collection at that moment would fail as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import orjson

from backstory.ledger.core.errors import InputError

_MAX_DEPTH = 500
_MAX_DIGITS = 4_000
"""Python parses no integer of more than 4,300 digits."""

_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
"""A string, whose brackets and digits do not count; an unclosed one matches up to the end, so a scan is linear."""
_PART = re.compile(_TEXT + r"|(?P<opening>[\[{])|(?P<closing>[\]}])", re.DOTALL)
_LONG = re.compile(_TEXT + "|(?P<digits>[0-9]{4301,})", re.DOTALL)
_INNER_DEPTH = 2


def parse_json(data: bytes) -> object:
    """Parse one JSON value; NaN and integers past 64 bits are allowed.

    Raises:
        InputError: The data is not JSON, is nested too deep, or holds a number of more than 4,300 digits; the text
            names the line if there are several.
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
    """Parse an integer of any length; one of more than 4,000 digits becomes a float, which is out of every range."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def may_nest_too_deep(text: str) -> bool:
    """Whether a text has enough brackets to be nested too deep; a cheap test before `where_too_deep`."""
    return text.count("{") + text.count("[") > _MAX_DEPTH


def where_too_deep(text: str, begin: int = 0) -> int | None:
    """Return the offset at which the value that begins at `begin` is nested deeper than 500 levels, or None."""
    if begin == 0 and not may_nest_too_deep(text):
        return None
    depth = 0
    for part in _PART.finditer(text, begin):
        depth += bool(part["opening"]) - bool(part["closing"])
        if depth > _MAX_DEPTH:
            return part.start()
        if depth <= 0:
            break
    return None


def refuse_too_deep(text: str, begin: int) -> None:
    """Refuse a value that is nested too deep, before it is parsed.

    Raises:
        RecursionError: The value that begins at `begin` is nested deeper than 500 levels.
    """
    if where_too_deep(text, begin) is not None:
        raise RecursionError


def inner_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end offsets of the arrays and objects directly within the outermost one."""
    depth = begin = 0
    for part in _PART.finditer(text):
        if part["opening"]:
            depth += 1
            begin = part.start() if depth == _INNER_DEPTH else begin
        elif part["closing"]:
            if depth == _INNER_DEPTH:
                yield begin, part.end()
            depth -= 1
