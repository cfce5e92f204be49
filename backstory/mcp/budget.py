"""Budget of a result: how many items of a list fit into a number of tokens, and how long their texts may be."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable
from functools import partial

import msgspec
import orjson
from pydantic import BaseModel

from backstory.ledger.core.sanitize import clip
from backstory.projections.context.lines import inline

LONGEST = 2000
_LENGTHS = (LONGEST, 500, 120, 40)
"""The most characters of a text, the longest first: short texts give way to no others, long ones are cut."""
_LONGEST_NAME = 120
FEW = 3
_LEAST = 400
"""A result names what it is about in fewer tokens than this, however small the configured budget is."""
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")


class ToolReply(msgspec.Struct, frozen=True):
    """What a request is answered with: structured content, and the same as a text. A prompt is a text alone."""

    content: BaseModel | None
    text: str

    @property
    def plain(self) -> dict[str, object]:
        """The structured content as JSON has it; what is not there is left out."""
        return {} if self.content is None else self.content.model_dump(mode="json", by_alias=True, exclude_none=True)


class Budget:
    """The most tokens that each of the two forms of a result may have: a client shows the model one of them.

    Args:
        count: Counts the tokens of a text.
        tokens: The budget; at least 400.
    """

    def __init__(self, count: Callable[[str], int], tokens: int) -> None:
        self._count = count
        self.tokens = max(tokens, _LEAST)

    def excess(self, reply: ToolReply) -> int:
        """Return by how many tokens a reply is too long; 0 or less where it fits."""
        structured = orjson.dumps(reply.plain).decode()
        return max(self._count(reply.text), self._count(structured)) - self.tokens

    def fill(self, total: int, build: Callable[[int, int], ToolReply]) -> ToolReply:
        """Return the reply with the most items that fit.

        Texts are cut shorter only where fewer than three items would fit.

        Args:
            total: The number of items there are.
            build: Makes a reply of a number of items, with texts of at most a number of characters.
        """
        for length in _LENGTHS:
            items = _most(total, partial(self._fits, build, length))
            if items >= min(total, FEW):
                return build(items, length)
        return build(items, _LENGTHS[-1])

    def _fits(self, build: Callable[[int, int], ToolReply], length: int, items: int) -> bool:
        return self.excess(build(items, length)) <= 0

    def holds(self, text: str) -> bool:
        """Whether a text is within the budget."""
        return self._count(text) <= self.tokens

    def text(self, text: str) -> str:
        """Return a text that is cut, with a mark, where it exceeds the budget."""
        if self.holds(text):
            return text
        return cut(text, _most(len(text), lambda length: self.holds(cut(text, length))))


def _most(total: int, fits: Callable[[int], bool]) -> int:
    """Return the highest count up to `total` that fits, where all lower ones do, too; 0 where none does."""
    return max(0, bisect_left(range(total + 1), x=True, key=lambda count: not fits(count)) - 1)


def cut(text: str, length: int) -> str:
    """Return a text of at most `length` characters and, where it was cut, a mark that counts the rest."""
    return text if len(text) <= length else f"{text[:length]}… [{len(text) - length} more characters]"


def quoted(text: str) -> str:
    """Return a text as a JSON string on one line; what a terminal would obey, or a person not see, is escaped."""
    return _UNSAFE.sub(_escaped, json.dumps(text, ensure_ascii=False))


def name_of(text: str | None) -> str:
    """Return a name from outside, such as a thread's, as one short line."""
    return clip(inline(text or ""), _LONGEST_NAME)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
