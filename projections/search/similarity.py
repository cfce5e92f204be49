"""Similarity of a few hundred facts to a text, fast from the first call on.

The prompt block asks for it with every call of a model, and the first time in a process that has not loaded anything
yet: so this is plain Python, and the cosine is the one that needs no upkeep: words weigh by their rarity on the side of
the query alone ("lnc.ltc" in the notation of SMART, Salton and Buckley, 1988).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from backstory.projections.search.corpus import Change
from backstory.projections.search.lexical.tokenizer import words_of


class Similarity:
    """Which words stand in which entries, and how much of an entry each is; not safe for threads."""

    def __init__(self) -> None:
        self._entries: dict[str, list[str]] = {}
        self._words: dict[str, dict[str, float]] = {}
        self._last: tuple[str, Mapping[str, float]] | None = None

    def take(self, change: Change) -> None:
        """Do what a change of what can be found calls for."""
        if change.anew:
            self._entries.clear()
            self._words.clear()
        for key in (*change.drop, *(entry.key for entry in change.put)):
            for word in self._entries.pop(key, ()):
                holders = self._words[word]
                del holders[key]
                if not holders:
                    del self._words[word]
        for entry in change.put:
            weights = {word: _softened(count) for word, count in Counter(words_of(entry.text)).items()}
            length = math.hypot(*weights.values())
            self._entries[entry.key] = list(weights)
            for word, weight in weights.items():
                self._words.setdefault(word, {})[entry.key] = weight / length
        if change.put or change.drop or change.anew:
            self._last = None

    def of(self, query: str) -> Mapping[str, float]:
        """Return how like each entry is to a text, 0 to 1; those at 0 are left out.

        Words of the text that no entry has make all entries less like it.
        """
        if self._last is not None and self._last[0] == query:
            return self._last[1]
        alike: dict[str, float] = {}
        squares = 0.0
        for word, count in Counter(words_of(query)).items():
            holders = self._words.get(word, {})
            asked = _softened(count) * _rarity(len(holders), len(self._entries))
            squares += asked * asked
            for key, weight in holders.items():
                alike[key] = alike.get(key, 0.0) + asked * weight
        length = math.sqrt(squares)
        result = {key: min(1.0, value / length) for key, value in alike.items()}
        self._last = (query, result)
        return result


def _softened(count: int) -> float:
    """How much more a word says that stands there more than once."""
    return 1 + math.log(count)


def _rarity(within: int, entries: int) -> float:
    """Weight of a word by how many of all entries have it; always positive."""
    return math.log1p((entries - within + 0.5) / (within + 0.5))
