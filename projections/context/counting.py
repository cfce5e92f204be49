r"""Token counters: count a block line by line, exactly.

A vocabulary first splits a text into pieces, by a regular expression that looks ahead and never back. In the
vocabularies used here, a piece that holds a line break ends with the last break of a run: the break belongs to the
characters before it (`)\n`), or is a piece of its own. Only a slash at the start of the next line would join it. So a
text can be cut after a line break, before anything that is neither white space nor a slash, and the tokens of the parts
add up to those of the whole. All lines of a block begin with `<`, `-` or a letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Protocol


@cache
def _ascii_pieces() -> re.Pattern[str]:
    return re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^A-Za-z0-9\s\x80-\U0010ffff]|\s{2,}|\s(?=[0-9])")


@cache
def _beyond() -> tuple[tuple[re.Pattern[str], float], ...]:
    """Latin letters with accents; Greek, Cyrillic, Arabic; Indic, Thai, Chinese, Japanese and Korean; emoji."""
    return (
        (re.compile("[\x80-\u024f]"), 1.2),
        (re.compile("[\u0250-\u07ff]"), 0.75),
        (re.compile("[\u0800-\uffff]"), 1.5),
        (re.compile("[\U00010000-\U0010ffff]"), 3.0),
    )


class Counter(Protocol):
    """The interface of a token counter."""

    @property
    def name(self) -> str:
        """The vocabulary: `tiktoken:o200k_base`, `bpe-openai:o200k_base` or `estimate`."""

    def count(self, text: str) -> int:
        """Return the tokens of a text; the counts of parts that end in line breaks add up."""


class Vocabulary:
    """Counts with a model's vocabulary; `counting` returns the tokens of a text."""

    def __init__(self, name: str, counting: Callable[[str], int]) -> None:
        self.name = name
        self._counting = counting

    def count(self, text: str) -> int:
        """See `Counter`."""
        return self._counting(text)


class Estimate:
    """Estimates without a vocabulary, and errs on the high side; each line is rounded up.

    A word counts one per four letters, a number one per three digits, a mark one, and other scripts by the bytes of
    their characters. docs/explanation/context.md compares the estimate with the vocabularies.
    """

    name = "estimate"

    def count(self, text: str) -> int:
        """See `Counter`."""
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return sum(map(_estimated, lines))


def _estimated(line: str) -> int:
    """Estimate a line with its line break; at least 1."""
    tokens = float(len(_ascii_pieces().findall(line)))
    if not line.isascii():
        tokens += sum(weight * len(pattern.findall(line)) for pattern, weight in _beyond())
    return int(tokens) + 1


ESTIMATE = Estimate()
