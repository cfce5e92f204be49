"""Similarity of a few hundred facts to a text, fast from the first call on.

The prompt block asks for it with every call of a model, and the first time in a process that has not loaded anything
yet: so this is plain Python, and the cosine is the one that needs no upkeep: words weigh by their rarity on the side of
the query alone ("lnc.ltc" in the notation of SMART, Salton and Buckley, 1988).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from backstory.projections.search.corpus import IndexChange
from backstory.projections.search.lexical.tokenizer import words_of


class Similarity:
    """Which words stand in which entries, and how much of an entry each is; not safe for threads."""

    def __init__(self) -> None:
        self._entries: dict[str, Collection[str]] = {}
        self._words: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._later: dict[str, str] = {}
        """The texts of entries that are not compared yet, by their keys."""
        self._last: tuple[str, Mapping[str, float]] | None = None

    def take(self, change: IndexChange, most: int | None = None) -> None:
        """Take in what has changed among the entries.

        Args:
            change: What has changed.
            most: How many entries at most are compared from here on, the newest first; the others are with later calls.
                None: all of them.
        """
        if change.anew:
            self._entries.clear()
            self._words.clear()
            self._later.clear()
        for key in (*change.drop, *(entry.key for entry in change.put)):
            self._later.pop(key, None)
            for word in self._entries.pop(key, ()):
                holders = self._words[word]
                del holders[key]
                if not holders:
                    del self._words[word]
        self._later.update((entry.key, entry.text) for entry in change.put)
        if self._later or change.drop or change.anew:
            self._last = None
        for _ in range(len(self._later) if most is None else min(most, len(self._later))):
            key, text = self._later.popitem()
            self._put(key, words_of(text))

    def _put(self, key: str, words: Sequence[str]) -> None:
        if len(set(words)) == len(words):
            # As in most facts no word comes twice, they weigh the same; at a first call there may be very many facts.
            weights = dict.fromkeys(words, 1.0)
            length = math.sqrt(len(words))
        else:
            weights = {word: _softened(count) for word, count in Counter(words).items()}
            length = math.hypot(*weights.values())
        self._entries[key] = weights.keys()
        for word, weight in weights.items():
            self._words[word][key] = weight / length

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
