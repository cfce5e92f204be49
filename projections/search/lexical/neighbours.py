"""Which entries stand next to which, and how much of a neighbour's words count for an entry."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backstory.projections.search.lexical.column_file import Columns, Numbers
from backstory.projections.search.lexical.places import StoredPlaces, joined
from backstory.projections.search.lexical.postings import Growing, Slots, WordColumn

Weights = NDArray[np.float64]

UNIT = 500
_BEFORE = (8, 5, 3, 2)
_AFTER = (4, 3, 2, 1)
"""What a word counts that was said one, two, three, four turns before or after, where an own word counts 10.

What came before is more often what a turn speaks of. Whole numbers, since their sums do not depend on the order."""
_HEARD = UNIT // 10
_FULLY_HEARD = 20
"""Words of a neighbour that count in full. A longer one is a text of its own: all its words together count as much as
these. Chosen on LoCoMo 26 and 30 and BEAM 1 to 4, where answers of 290 words drowned what stands beside them."""
_REACH = len(_BEFORE)
_MANY = 4
"""From a quarter of all slots on, to look which have a word costs more than to go through all."""


class _Place(NamedTuple):
    """Where a slot stands in its group."""

    order: int
    rank: int
    slot: int


_NOWHERE = ("", _Place(0, 0, 0))


class Neighbours:
    """The neighbours of each slot within its group, and how wide it is with them."""

    def __init__(self, stored: StoredPlaces | None = None) -> None:
        self._stored = stored
        self._first = 1 if stored is None else stored.size
        """The first slot that is not stored."""
        self._in_group = None if stored is None else stored.group.copy()
        """Of the stored slots the number of the group; -1 of one that was dropped."""
        self._groups: dict[str, list[_Place]] = {}
        """The members of each group; of one that is stored, once they are needed."""
        self._places: dict[int, tuple[str, _Place]] = {}
        """Of the slots that are not stored."""
        self._lengths = Growing()
        self._told = Growing()
        """How many words the facts have that cite a slot."""
        self._heard = Growing()
        """What one word of a slot counts for its neighbours, in `_HEARD`ths."""
        self._next = Growing()
        self._previous = Growing()
        self._widths = Growing()
        self._stale: set[int] = set()
        self._total = 0
        self._relative: Weights | None = None
        for name, column in self._columns().items():
            column.extend([0] if stored is None else stored.file.column(name))
        self._total = int(self._widths.now.sum(dtype=np.int64))

    def _columns(self) -> dict[str, Growing]:
        return {
            "lengths": self._lengths,
            "told lengths": self._told,
            "heard": self._heard,
            "next": self._next,
            "previous": self._previous,
            "widths": self._widths,
        }

    def put(self, slot: int, length: int, group: str, order: int, rank: int, *, told: int = 0) -> None:
        """Add the next slot; it has `length` words and its facts `told`; `rank` decides between two of one order."""
        self._relative = None
        for column in self._columns().values():
            column.extend([0])
        self._lengths.now[slot] = length
        self._told.now[slot] = told
        self._heard.now[slot] = _HEARD if length <= _FULLY_HEARD else round(_HEARD * _FULLY_HEARD / length)
        if not group:
            self._set_width(slot, UNIT * (length + told))
            return
        members = self._members(group)
        place = _Place(order, rank, slot)
        self._places[slot] = (group, place)
        at = bisect_left(members, place)
        members.insert(at, place)
        before = members[at - 1].slot if at else 0
        after = members[at + 1].slot if at + 1 < len(members) else 0
        self._link(before, slot)
        self._link(slot, after)
        self._stale.update(one.slot for one in members[max(0, at - _REACH) : at + _REACH + 1])

    def drop(self, slot: int) -> None:
        """Take a slot out; its neighbours close up."""
        self._relative = None
        self._set_width(slot, 0)
        self._lengths.now[slot] = self._told.now[slot] = 0
        self._stale.discard(slot)
        found = self._place(slot)
        if found is None:
            return
        group, place = found
        members = self._members(group)
        self._places.pop(slot, None)
        if self._in_group is not None and slot < self._first:
            self._in_group[slot] = -1
        at = bisect_left(members, place)
        del members[at]
        self._link(int(self._previous.now[slot]), int(self._next.now[slot]))
        self._previous.now[slot] = self._next.now[slot] = 0
        if members:
            self._stale.update(one.slot for one in members[max(0, at - _REACH) : at + _REACH])
        else:
            del self._groups[group]

    def place(self, slot: int) -> tuple[str, int]:
        """The group of a slot and its order there."""
        group, place = self._place(slot) or _NOWHERE
        return group, place.order

    def _place(self, slot: int) -> tuple[str, _Place] | None:
        if self._stored is None or self._in_group is None or slot >= self._first:
            return self._places.get(slot)
        if self._in_group[slot] < 0:
            return None
        group, order = self._stored.place(slot)
        return group, _Place(order, slot, slot)

    def _members(self, group: str) -> list[_Place]:
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = self._stored_members(group)
        return members

    def _stored_members(self, group: str) -> list[_Place]:
        number = None if self._stored is None else self._stored.numbers.get(group)
        if self._stored is None or number is None:
            return []
        slots: list[int] = np.flatnonzero(self._in_group == number).tolist()
        return sorted(_Place(int(self._stored.order[slot]), slot, slot) for slot in slots)

    def _link(self, before: int, after: int) -> None:
        if before:
            self._next.now[before] = after
        if after:
            self._previous.now[after] = before

    def totals(self, column: WordColumn, told: WordColumn, slots: int) -> tuple[Slots | slice, Weights]:
        """Spread a word to the neighbours: which slots have it or are next to one that has, and how often.

        What a neighbour says counts in part, what facts say of a slot counts as its own. The slots are a slice of all
        of them where the word is nearly everywhere.
        """
        counts = column.counts.astype(np.float64)
        if not self._groups and (self._stored is None or not self._stored.groups) and not len(told.slots):
            return column.slots, counts
        places, amounts = [column.slots, told.slots], [UNIT * counts, UNIT * told.counts.astype(np.float64)]
        counts *= self._heard.now[column.slots]
        # What a turn says is heard by those after it as said before, and the other way round.
        for step, weights in ((self._next.now, _BEFORE), (self._previous.now, _AFTER)):
            heard: NDArray[np.signedinteger] = column.slots
            for weight in weights:
                heard = step[heard]
                places.append(heard)
                amounts.append(weight * counts)
        every = np.concatenate(places)
        total = np.bincount(every, weights=np.concatenate(amounts), minlength=slots) / UNIT
        total[0] = 0
        if _MANY * len(every) > slots:
            return slice(None), total
        hit = np.flatnonzero(total)
        return hit, total[hit]

    def relative_widths(self, entries: int) -> Weights:
        """How many words there are in and around each slot, the neighbours' in part; 1 is the mean over all entries."""
        self._settle()
        if self._relative is None:
            mean = max(1, self._total) / entries
            self._relative = self._widths.now.astype(np.float64) / mean
        return self._relative

    def _settle(self) -> None:
        """Measure anew what has other neighbours now."""
        if not self._stale:
            return
        stale = np.array(sorted(self._stale), dtype=np.int64)
        self._stale.clear()
        lengths = self._lengths.now
        widths = UNIT * (lengths[stale].astype(np.int64) + self._told.now[stale])
        for step, weights in ((self._previous.now, _BEFORE), (self._next.now, _AFTER)):
            there: NDArray[np.signedinteger] = stale
            for weight in weights:
                there = step[there]
                widths += weight * lengths[there].astype(np.int64) * self._heard.now[there]
        self._total += int(widths.sum()) - int(self._widths.now[stale].sum())
        self._widths.now[stale] = widths

    def _set_width(self, slot: int, width: int) -> None:
        self._total += width - int(self._widths.now[slot])
        self._widths.now[slot] = width

    def columns(self, slots: Slots) -> Columns:
        """Return the columns of a file in which these slots stand, in this order and counted from 1.

        Of those in a group none shares its place.
        """
        self._settle()
        there = np.zeros(len(self._lengths.now), np.int32)
        there[slots] = np.arange(1, len(slots) + 1)
        places = [self.place(slot) for slot in slots.tolist()]
        numbers = {group: number for number, group in enumerate(dict.fromkeys(group for group, _ in places if group))}
        group = np.array([-1, *(numbers.get(group, -1) for group, _ in places)], np.int32)
        order = np.array([0, *(order for _, order in places)], np.int32)
        found: Columns = {name: _behind_none(column.now[slots]) for name, column in self._columns().items()}
        for name in ("next", "previous"):
            found[name] = _behind_none(there[self._columns()[name].now[slots]])
        by_place = np.argsort(joined(group, order)[1:], kind="stable") + 1
        return found | {"groups": list(numbers), "group": group, "order": order, "by place": by_place.astype(np.int32)}


def _behind_none(numbers: Numbers) -> Numbers:
    return np.concatenate((np.zeros(1, np.int32), numbers))
