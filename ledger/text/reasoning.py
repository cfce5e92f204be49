"""Reasoning at the beginning of an agent's answer, in the tags that models write it in. It is not speech.

Known are `<think>…</think>`, `<thinking>…</thinking>`, `◁think▷…◁/think▷`, and the channel `analysis` of
`<|channel|>analysis<|message|>…<|end|>`. Only blocks at the beginning of the text count: a tag in the middle is part of
what is said.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OPENING = re.compile(
    r"\s*(?:<(?P<tag>think|thinking)>|(?P<kimi>◁think▷)|(?:<\|start\|>assistant)?<\|channel\|>(?P<channel>analysis)\b)",
    re.IGNORECASE,
)
_CLOSINGS = {
    "tag": "</{}>",
    "kimi": "◁/think▷",
    "channel": r"<\|end\|>|(?=(?:<\|start\|>assistant)?<\|channel\|>final\b)",
}
_MOST_BLOCKS = 64
"""Blocks that are left out of one text at most, so that reading it takes a time that is linear in its length."""
_FENCE = r"^[ \t]*(?P<fence>```+|~~~+)"
_FINAL = re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>final\b[^<]*<\|message\|>")
_END = re.compile(r"(?:<\|return\|>|<\|end\|>)\s*\Z")


class SpokenText(NamedTuple):
    """What is said in a text.

    Attributes:
        text: The text without its leading reasoning; the same object where it has none.
        is_open: Whether the text begins with reasoning that has no end, which is left in it.
    """

    text: str
    is_open: bool


def spoken(text: str) -> SpokenText:
    """Return a text of an agent without the reasoning at its beginning.

    A closing tag in a code fence does not count where another one follows outside of fences.
    """
    at, in_channels = 0, False
    for _ in range(_MOST_BLOCKS):
        opened = _OPENING.match(text, at)
        if opened is None:
            break
        kind = opened.lastgroup or "tag"
        end = _end(text, opened.end(), _CLOSINGS[kind].format(opened[kind]))
        if end is None:
            return SpokenText(text[at:].lstrip() if at else text, is_open=True)
        at, in_channels = end, in_channels or kind == "channel"
    if not at:
        return SpokenText(text, is_open=False)
    rest = text[at:].lstrip()
    if in_channels and (final := _FINAL.match(rest)) is not None:
        rest = _END.sub("", rest[final.end() :])
    return SpokenText(rest, is_open=False)


def _end(text: str, start: int, closing: str) -> int | None:
    """Return where a block ends: after the first closing tag outside of code fences, or else the first one."""
    first: int | None = None
    fence = ""
    marks = re.compile(rf"{_FENCE}|{closing}", re.IGNORECASE | re.MULTILINE)
    for found in marks.finditer(text, start):
        mark = found["fence"]
        if mark is None:
            if not fence:
                return found.end()
            first = found.end() if first is None else first
        elif not fence:
            fence = mark
        elif mark.startswith(fence):
            fence = ""
    return first
