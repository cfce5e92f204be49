"""Entries of an index, and what a search by words says of them; needs no numpy, unlike the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec


def key_at(group: str, order: int) -> str:
    """Return the key of the entry at a place; an order has no space in it, so no two entries share one."""
    return f"{order} {group}"


def place_of(key: str) -> tuple[str, int]:
    """Return the group and the order of an entry whose key is that of its place."""
    order, _, group = key.partition(" ")
    return group, int(order)


Worth: TypeAlias = Callable[[str], float]
"""What decides between entries that fit equally well, by their keys."""


class Entry(msgspec.Struct, frozen=True):
    """What can be found: a live fact or a turn that stands.

    `key` is unique in its index, `text` its own words, `speaker` who said it (a name, or else the role). Entries of one
    `group`, a thread, are neighbours in their `order`; without a group there are none. `at` is ISO 8601. `facts` are
    the texts of the facts that were learned from a turn.
    """

    key: str
    text: str
    speaker: str = ""
    group: str = ""
    order: int = 0
    at: str = ""
    facts: tuple[str, ...] = ()


class Scored(msgspec.Struct, frozen=True):
    """An entry and how well it fits; what scores mean depends on who gives them."""

    key: str
    score: float


class Part(msgspec.Struct, frozen=True):
    """What one word of a query adds to a score; `where` is "own words", "nearby", "facts", "speaker" or "day".

    What a short question loses is a part of its own, below 0: its `where` is "short question" and its word the mark.
    """

    word: str
    where: str
    score: float
