"""Texts that go into a picture: safe in any XML, in one line, cut and wrapped to a width that is estimated.

A picture is drawn where no fonts can be asked, so widths are those of common sans-serif fonts, a little too wide rather
than too narrow; the columns clip what is wider still.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import accumulate

_REPLACED = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\N{REPLACEMENT CHARACTER}"
)
_DROPPED = dict.fromkeys([0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_SAFE = _REPLACED | _DROPPED | {0x09: " ", 0x0A: "\n", 0x2028: "\n", 0x2029: "\n"}
_MOST_SEEN = 400
"""No line of a picture is longer, so what comes after need not be measured."""

_NARROW = frozenset("iljtfrI.,:;'`|!()[]{}/\\-\" ")
_BROAD = frozenset("mwMW@%&—…")


def safe(text: str) -> str:
    """Return a text that any XML takes and that turns nothing around: no control characters, no marks of direction."""
    return text.replace("\r\n", "\n").translate(_SAFE)


def line(text: str) -> str:
    """Return a safe text in one line."""
    return " ".join(safe(text).split())


def moment(at: str) -> str:
    """Spell a time to the minute."""
    return at[:16].replace("T", " ")


def day(at: str) -> str:
    """Spell the day of a time."""
    return at[:10]


@cache
def _char_width(char: str) -> float:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Mn", "Me"):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    if char in _NARROW:
        return 0.38
    if char in _BROAD:
        return 0.96
    return 0.72 if char.isupper() else 0.61


def width(text: str) -> float:
    """Estimate the width of a text, in parts of its font's size."""
    return sum(map(_char_width, text))


def cut(text: str, most: float) -> str:
    """Return as much of a line as has room, with an ellipsis where something is missing."""
    seen = text[:_MOST_SEEN]
    if len(seen) == len(text) and width(text) <= most:
        return text
    room = most - _char_width("…")
    fits = sum(total <= room for total in accumulate(map(_char_width, seen)))
    return f"{seen[:fits].rstrip()}…"


def wrapped(text: str, most: float, lines: int) -> list[str]:
    """Break a line where there are spaces, else anywhere, into at most so many lines; the last one is cut."""
    rest = text[: _MOST_SEEN * lines]
    found: list[str] = []
    whole = len(rest) == len(text)
    while len(found) < lines - 1 and not (whole and width(rest) <= most):
        fits = max(1, sum(total <= most for total in accumulate(map(_char_width, rest))))
        space = rest.rfind(" ", fits // 2, fits + 1)
        taken = space if space > 0 else fits
        found.append(rest[:taken].rstrip())
        rest = rest[taken:].lstrip()
    end = rest if whole else f"{rest}…"
    return [*found, cut(end, most)] if end else found
