"""Tags that many entries share, such as speaker and day: few values, each with a few words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from backstory.projections.search.lexical.postings import Growing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Tags:
    """One value for each slot, found by its words; value 0 is none."""

    def __init__(self, words: Callable[[str], Sequence[str]]) -> None:
        self._words_of = words
        self._ids: dict[str, int] = {"": 0}
        self._spelled = [""]
        self._words: list[tuple[str, ...]] = [()]
        self._entries: list[int] = [0]
        """How many entries have each value."""
        self._values: dict[str, list[int]] = {}
        """Which values have a word."""
        self._of = Growing()
        self._of.extend([0])

    def put(self, slot: int, value: str) -> None:
        """Say what the next slot has."""
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = len(self._ids)
            self._spelled.append(value)
            words = tuple(dict.fromkeys(self._words_of(value)))
            self._words.append(words)
            self._entries.append(0)
            for word in words:
                self._values.setdefault(word, []).append(number)
        self._entries[number] += 1
        self._of.grow(slot + 1)
        self._of.now[slot] = number

    def drop(self, slot: int) -> None:
        """Take a slot out."""
        self._entries[self._of.now[slot]] -= 1
        self._of.now[slot] = 0

    def value(self, slot: int) -> str:
        """What a slot has."""
        return self._spelled[int(self._of.now[slot])]

    def words(self, slot: int) -> tuple[str, ...]:
        """The words of what a slot has."""
        return self._words[int(self._of.now[slot])]

    def has(self, word: str) -> bool:
        """Whether any entry has a value with this word."""
        return self.within(word) > 0

    def within(self, word: str) -> int:
        """How many entries have a value with this word."""
        return sum(self._entries[number] for number in self._values.get(word, ()))

    def boost(self, words: Collection[str], rarity: Callable[[int], float]) -> NDArray[np.float64] | None:
        """What the words add to each slot's score; None for nothing. `rarity` weighs a word by how many have it."""
        import numpy as np

        by_value: NDArray[np.float64] | None = None
        for word in words:
            within = self.within(word)
            if within:
                if by_value is None:
                    by_value = np.zeros(len(self._words))
                by_value[self._values[word]] += rarity(within)
        return None if by_value is None else by_value[self._of.now]
