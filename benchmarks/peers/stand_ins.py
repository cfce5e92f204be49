"""What all memories share: the user, the facts, and what stands in for a model and an embedder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

DIMENSIONS = 256
USER = "ada"
_VERBS = ("likes", "collects", "repairs", "avoids", "teaches", "paints", "sells", "studies")
_THINGS = ("maps", "kettles", "violins", "orchids", "bicycles", "clocks", "stamps", "lamps", "boats", "shells")
_FACT = re.compile(r"Ada \w+ \w+ of shelf \d+ in town \d+")


class Opened(NamedTuple):
    """An open memory: what adds a fact, what finds facts, and what lists all that are kept.

    Those that learn from conversations also record one, learn from all that are recorded, and give the text that goes
    into a prompt.
    """

    add: Callable[[str], object]
    search: Callable[[str], Sequence[str]]
    kept: Callable[[], set[str]]
    record: Callable[[int, str], object] | None = None
    learn: Callable[[], object] | None = None
    block: Callable[[str], object] | None = None


def fact(number: int) -> str:
    """Return a fact; no two are the same."""
    return f"Ada {_VERBS[number % 8]} {_THINGS[number // 8 % 10]} of shelf {number} in town {number % 37}"


def stated(text: str) -> list[str]:
    """Return the facts that a text states: the stand-in for a model that reads it."""
    return _FACT.findall(text)


def embed(text: str) -> list[float]:
    """Return the words of a text as a vector of length 1; a word is always the same direction."""
    vector = [0.0] * DIMENSIONS
    for word in text.lower().split():
        vector[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % DIMENSIONS] += 1.0
    length = sum(value * value for value in vector) ** 0.5 or 1.0
    return [value / length for value in vector]
