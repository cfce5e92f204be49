"""Postings: which words are in which entries, and how often, in sparse columns that are cheap to add to.

Entries have slots, counted from 1; slot 0 is no entry, so that "no neighbour" needs no test. What is added is kept row
by row, and turned into columns by segments, each larger than those after it: so adding a few entries to many sorts
those few, and now and then some more. Numbers are counted, never summed up as fractions: an index that
grew answers exactly as one that was built at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Slots = Ints


class Growing:
    """A column of numbers that grows at its end; zeros where nothing was put yet."""

    def __init__(self) -> None:
        self._all: Small = np.zeros(16, dtype=np.int32)
        self._size = 0

    @property
    def now(self) -> Small:
        """The numbers, to read and to change in place, until it grows."""
        return self._all[: self._size]

    def grow(self, size: int) -> None:
        """Make it at least so long."""
        if size > len(self._all):
            wider = np.zeros(max(size, 2 * len(self._all)), dtype=np.int32)
            wider[: self._size] = self.now
            self._all = wider
        self._size = max(self._size, size)

    def extend(self, numbers: Sequence[int]) -> None:
        """Add numbers at the end."""
        before = self._size
        self.grow(before + len(numbers))
        self._all[before : self._size] = numbers


class Column(NamedTuple):
    """The entries in which one word stands: their slots, and how often it does."""

    slots: Ints
    counts: Small


NOWHERE = Column(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32))


class _Segment:
    """The slots from `first` up to `end`, by word."""

    def __init__(self, first: int, end: int, words: Small, slots: Ints, counts: Small) -> None:
        order = np.argsort(words, kind="stable")
        self.first = first
        self.end = end
        self.words = words[order]
        self.slots = slots[order]
        self.counts = counts[order]


class Postings:
    """Words by slot and slots by word; what is dropped leaves no trace in what is counted."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._spelled: list[str] = []
        self._starts = Growing()
        self._starts.extend([0, 0])
        self._words = Growing()
        self._counts = Growing()
        self._alive = Growing()
        self._alive.extend([0])
        self._within = Growing()
        self._segments: list[_Segment] = []
        self.entries = 0
        """How many are alive."""

    def __len__(self) -> int:
        """How many slots there are, the dead and slot 0 counted."""
        return len(self._alive.now)

    def add(self, rows: Iterable[Iterable[str]]) -> list[int]:
        """Add entries by their words; return how many words each has."""
        ids, words, counts, starts, lengths = self._ids, list[int](), list[int](), list[int](), list[int]()
        begun = len(self._words.now)
        for row in rows:
            times: dict[int, int] = {}
            for word in row:
                number = ids.get(word)
                if number is None:
                    number = ids[word] = len(ids)
                    self._spelled.append(word)
                times[number] = times.get(number, 0) + 1
            words.extend(times)
            counts.extend(times.values())
            starts.append(begun + len(words))
            lengths.append(sum(times.values()))
        self._words.extend(words)
        self._counts.extend(counts)
        self._starts.extend(starts)
        self._alive.extend([1] * len(starts))
        self._within.grow(len(ids))
        self._count(self._words.now[begun:], 1)
        self.entries += len(starts)
        return lengths

    def drop(self, slot: int) -> None:
        """Take an entry out, once."""
        words, _ = self.row(slot)
        self._alive.now[slot] = 0
        self._count(words, -1)
        self.entries -= 1

    def _count(self, words: Small, by: int) -> None:
        np.add.at(self._within.now, words, by)

    def row(self, slot: int) -> tuple[Small, Small]:
        """The words of an entry, as numbers, and how often each stands in it."""
        start, end = self._starts.now[slot : slot + 2]
        return self._words.now[start:end], self._counts.now[start:end]

    def times(self, slot: int, number: int | None) -> int:
        """How often a word stands in an entry."""
        words, counts = self.row(slot)
        return int(counts[words == number].sum()) if number is not None else 0

    def words(self, slot: int) -> list[str]:
        """The words of an entry, each as often as it stands in it."""
        numbers, counts = self.row(slot)
        spelled = self._spelled
        return [spelled[number] for number, count in zip(numbers, counts, strict=True) for _ in range(count)]

    def number(self, word: str) -> int | None:
        """The number of a word that stands in any entry."""
        number = self._ids.get(word)
        return number if number is not None and self._within.now[number] else None

    def within(self, number: int) -> int:
        """In how many entries a word stands."""
        return int(self._within.now[number])

    def column(self, number: int) -> Column:
        """The entries alive in which a word stands."""
        found = []
        # In the width of the column, or numpy widens all of that first.
        sought = np.int32(number)
        for segment in self._settled():
            low = np.searchsorted(segment.words, sought, "left")
            high = np.searchsorted(segment.words, sought, "right")
            if low < high:
                found.append((segment.slots[low:high], segment.counts[low:high]))
        slots, counts = found[0]
        if len(found) > 1:
            slots = np.concatenate([slots for slots, _ in found])
            counts = np.concatenate([counts for _, counts in found])
        if self.entries + 1 < len(self):
            alive = self._alive.now[slots] > 0
            slots, counts = slots[alive], counts[alive]
        return Column(slots, counts)

    def _settled(self) -> list[_Segment]:
        """The segments, with all that was added in one of them."""
        segments, end = self._segments, len(self)
        covered = segments[-1].end if segments else 1
        if covered < end:
            first = covered
            while segments and segments[-1].end - segments[-1].first <= 2 * (end - first):
                first = segments.pop().first
            segments.append(self._segment(first, end))
        return segments

    def _segment(self, first: int, end: int) -> _Segment:
        starts = self._starts.now[first : end + 1]
        slots = np.repeat(np.arange(first, end), np.diff(starts))
        span = slice(int(starts[0]), int(starts[-1]))
        return _Segment(first, end, self._words.now[span], slots, self._counts.now[span])


class Tags:
    """One value for each slot, such as its speaker or day, found by its words; many share one, and value 0 is none."""

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
