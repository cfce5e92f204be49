"""Texts of a graph for other programs: without characters that steer their reader, and cut to a few short lines."""

from __future__ import annotations

_REPLACED = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\N{REPLACEMENT CHARACTER}"
)
_DROPPED = dict.fromkeys([0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_SAFE = _REPLACED | _DROPPED | {0x09: " ", 0x0A: " ", 0x0D: " ", 0x2028: " ", 0x2029: " "}
LINE = 48
"""Characters in a line of a box."""
CUT = "…"
"""Ends a text that is longer than its lines."""


def line(text: str) -> str:
    """Return a text in one line, without control characters and marks of text direction."""
    return " ".join(text.translate(_SAFE).split())


def wrapped(text: str, lines: int = 1) -> tuple[str, ...]:
    """Break a text into at most `lines` lines of `LINE` characters; `CUT` ends one that has more."""
    # No more than these characters can be shown: a line, and the space at which it is broken.
    rest = line(text)[: (LINE + 1) * lines + 1]
    found: list[str] = []
    while len(rest) > LINE and len(found) < lines - 1:
        space = rest.rfind(" ", LINE // 2, LINE + 1)
        end = space if space > 0 else LINE
        found.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    if len(rest) > LINE:
        rest = rest[: LINE - len(CUT)].rstrip() + CUT
    return (*found, rest) if rest else tuple(found)
