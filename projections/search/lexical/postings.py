"""Postings and tags: which words are in which entries, and how often, in columns that are cheap to add to.

Entries have slots, counted from 1; slot 0 is no entry, so that "no neighbour" needs no test. What is added is kept row
by row, and turned into columns by segments, each larger than those after it: so adding a few entries to many sorts
those few, and now and then some more. Numbers are counted, never summed up as fractions: an index that
grew answers exactly as one that was built at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backstory.projections.search.lexical.column_file import ColumnFile, Columns

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Slots = Ints


class Growing:
    """A column of numbers that grows at its end; zeros where nothing was put yet."""

    def __init__(self, numbers: NDArray[np.integer[Any]] | None = None) -> None:
        self._all: Small = np.zeros(16, dtype=np.int32) if numbers is None else numbers.astype(np.int32)
        self._size = 0 if numbers is None else len(numbers)

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

    def extend(self, numbers: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        """Add numbers at the end."""
        before = self._size
        self.grow(before + len(numbers))
        self._all[before : self._size] = numbers


class WordColumn(NamedTuple):
    """The entries in which one word stands: their slots, and how often it does."""

    slots: Ints
    counts: Small


NOWHERE = WordColumn(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32))


class _Segment:
    """The slots from `first` up to `end`, by word."""

    def __init__(self, first: int, end: int, words: Small, slots: Ints, counts: Small) -> None:
        order = np.argsort(words, kind="stable")
        self.first = first
        self.end = end
        self.words = words[order]
        self.slots = slots[order]
        self.counts = counts[order]


class _Stored:
    """Postings in a file, whose slots are all alive but for slot 0; `name` distinguishes them from others there."""

    def __init__(self, file: ColumnFile, name: str) -> None:
        self._file = file
        self._name = name
        self.words = file.texts(f"{name} words")
        self.within = file.column(f"{name} within")
        self._columns = np.concatenate(([0], np.cumsum(self.within, dtype=np.int64)))
        self.size = file.length(f"{name} starts") - 1
        """How many slots there are, slot 0 counted."""

    def row(self, slot: int) -> tuple[Small, Small]:
        """The words of an entry, as numbers, and how often each stands in it."""
        start, end = map(int, self._file.part(f"{self._name} starts", slot, slot + 2))
        return self._rows(start, end)

    def _rows(self, start: int, end: int) -> tuple[Small, Small]:
        words = self._file.part(f"{self._name} rows", start, end)
        return words, self._file.part(f"{self._name} counts", start, end).astype(np.int32)

    def rows(self) -> tuple[Ints, Small, Small]:
        """Where each row begins, with the end of the last, and all rows."""
        starts = self._file.column(f"{self._name} starts").astype(np.int64)
        return (starts, *self._rows(0, int(starts[-1])))

    def column(self, number: int) -> tuple[Ints, Small]:
        """The slots in which a word stands, and how often it does."""
        start, end = map(int, self._columns[number : number + 2])
        slots = self._file.part(f"{self._name} slots", start, end)
        return slots.astype(np.int64), self._file.part(f"{self._name} times", start, end).astype(np.int32)


class Postings:
    """Words by slot and slots by word; what is dropped leaves no trace in what is counted.

    With a `file` it goes on from what it holds under a `name`, which is read where it is asked for.
    """

    def __init__(self, file: ColumnFile | None = None, name: str = "") -> None:
        stored = self._stored = None if file is None else _Stored(file, name)
        self._first = 1 if stored is None else stored.size
        """The first slot that is not stored."""
        self._spelled: list[str] = [] if stored is None else stored.words
        self._ids = {word: number for number, word in enumerate(self._spelled)}
        self._starts = Growing()
        self._starts.extend([0])
        self._words = Growing()
        self._counts = Growing()
        self._alive = Growing((np.arange(self._first) > 0).astype(np.int32))
        self._within = Growing(None if stored is None else stored.within)
        self._segments: list[_Segment] = []
        self.entries = self._first - 1
        """How many are alive."""

    def is_alive(self, slot: int) -> bool:
        """Whether an entry was not dropped."""
        return bool(self._alive.now[slot])

    def living(self) -> Ints:
        """The slots of all that was not dropped."""
        return np.flatnonzero(self._alive.now)

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
        if self._stored is not None and slot < self._first:
            return self._stored.row(slot)
        start, end = self._starts.now[slot - self._first : slot - self._first + 2]
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

    def column(self, number: int) -> WordColumn:
        """The entries alive in which a word stands."""
        found: list[tuple[Ints, Small]] = []
        if self._stored is not None and number < len(self._stored.within):
            found.append(self._stored.column(number))
        # In the width of the column, or numpy widens all of that first.
        sought = np.array((number, number + 1), np.int32)
        for segment in self._settled():
            low, high = segment.words.searchsorted(sought)
            if low < high:
                found.append((segment.slots[low:high], segment.counts[low:high]))
        slots, counts = found[0]
        if len(found) > 1:
            slots = np.concatenate([slots for slots, _ in found])
            counts = np.concatenate([counts for _, counts in found])
        if self.entries + 1 < len(self):
            alive = self._alive.now[slots] > 0
            slots, counts = slots[alive], counts[alive]
        return WordColumn(slots, counts)

    def _settled(self) -> list[_Segment]:
        """The segments, with all that was added in one of them."""
        segments, end = self._segments, len(self)
        covered = segments[-1].end if segments else self._first
        if covered < end:
            first = covered
            while segments and segments[-1].end - segments[-1].first <= 2 * (end - first):
                first = segments.pop().first
            segments.append(self._segment(first, end))
        return segments

    def _segment(self, first: int, end: int) -> _Segment:
        starts = self._starts.now[first - self._first : end + 1 - self._first]
        slots = np.repeat(np.arange(first, end), np.diff(starts))
        span = slice(int(starts[0]), int(starts[-1]))
        return _Segment(first, end, self._words.now[span], slots, self._counts.now[span])

    def columns(self, name: str, slots: Ints) -> Columns:
        """Return the columns of a file in which these slots stand, in this order and counted from 1; see `_Stored`."""
        starts, words, counts = self._starts.now.astype(np.int64), self._words.now, self._counts.now
        if self._stored is not None:
            before, stored_words, stored_counts = self._stored.rows()
            starts = np.concatenate((before, starts[1:] + before[-1]))
            words, counts = np.concatenate((stored_words, words)), np.concatenate((stored_counts, counts))
        else:
            starts = np.concatenate(([0], starts))
        lengths = np.diff(starts)[slots]
        ends = np.cumsum(lengths)
        places = np.repeat(starts[slots] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        words, times = words[places], counts[places]
        within = np.bincount(words, minlength=len(self._spelled))
        used = np.flatnonzero(within)
        numbers = np.zeros(len(within), np.int32)
        numbers[used] = np.arange(len(used))
        words = numbers[words]
        order = np.argsort(words, kind="stable")
        every = np.repeat(np.arange(1, len(slots) + 1, dtype=np.int32), lengths)
        return {
            f"{name} words": [self._spelled[number] for number in used],
            f"{name} within": within[used].astype(np.int32),
            f"{name} starts": np.concatenate(([0, 0], ends)),
            f"{name} rows": words,
            f"{name} counts": times,
            f"{name} slots": every[order],
            f"{name} times": times[order],
        }


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
