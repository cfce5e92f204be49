"""Tags: one value for each entry, such as its speaker or its day, found by the words of the value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from backstory.projections.search.lexical.column_file import ColumnFile, Columns
from backstory.projections.search.lexical.postings import Growing, Slots


class Tags:
    """One value for each slot, such as its speaker or day, found by its words; many share one, and value 0 is none."""

    def __init__(self, words: Callable[[str], Sequence[str]], file: ColumnFile | None = None, name: str = "") -> None:
        self._words_of = words
        self._ids: dict[str, int] = {"": 0}
        self._spelled = [""]
        self._words: list[tuple[str, ...]] = [()]
        self._entries: list[int] = [0]
        """How many entries have each value."""
        self._values: dict[str, list[int]] = {}
        """Which values have a word."""
        self._of = Growing(np.zeros(1, np.int32) if file is None else file.column(name))
        if file is not None:
            for value in file.texts(f"{name} values"):
                self._number(value)
            self._entries = np.bincount(self._of.now[1:], minlength=len(self._spelled)).tolist()

    def put(self, slot: int, value: str) -> None:
        """Say what the next slot has."""
        number = self._number(value)
        self._entries[number] += 1
        self._of.grow(slot + 1)
        self._of.now[slot] = number

    def _number(self, value: str) -> int:
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = len(self._ids)
            self._spelled.append(value)
            words = tuple(dict.fromkeys(self._words_of(value)))
            self._words.append(words)
            self._entries.append(0)
            for word in words:
                self._values.setdefault(word, []).append(number)
        return number

    def drop(self, slot: int) -> None:
        """Take a slot out."""
        self._entries[self._of.now[slot]] -= 1
        self._of.now[slot] = 0

    def value(self, slot: int) -> str:
        """What a slot has."""
        return self._spelled[int(self._of.now[slot])]

    def mostly(self, slots: Slots) -> NDArray[np.bool_]:
        """Which of these slots have a value that more than half of its entries have within them."""
        values = self._of.now[slots]
        return (2 * np.bincount(values, minlength=len(self._entries)) > np.array(self._entries))[values]

    def words(self, slot: int) -> tuple[str, ...]:
        """The words of what a slot has."""
        return self._words[int(self._of.now[slot])]

    def within(self, word: str) -> int:
        """How many entries have a value with this word."""
        return sum(self._entries[number] for number in self._values.get(word, ()))

    def boost(self, words: Collection[str], rarity: Callable[[int], float]) -> NDArray[np.float64] | None:
        """What the words add to each slot's score; None for nothing. `rarity` weighs a word by how many have it."""
        by_value: NDArray[np.float64] | None = None
        for word in words:
            within = self.within(word)
            if within:
                if by_value is None:
                    by_value = np.zeros(len(self._words))
                by_value[self._values[word]] += rarity(within)
        return None if by_value is None else by_value[self._of.now]

    def columns(self, name: str, slots: Slots) -> Columns:
        """Return the columns of a file in which these slots stand, in this order and counted from 1."""
        values, of = np.unique(np.concatenate(([0], self._of.now[slots])), return_inverse=True)
        return {f"{name} values": [self._spelled[value] for value in values[1:]], name: of.astype(np.int32)}
