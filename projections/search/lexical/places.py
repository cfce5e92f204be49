"""Places of the entries in a file: the group and the order of each, by slot, and the slots by their places."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from backstory.projections.search.lexical.column_file import ColumnFile, Numbers
from backstory.projections.search.lexical.entry import key_at, place_of

_ORDER_BITS = 32


class StoredPlaces:
    """Groups and orders as they were stored; each entry is in a group, and none shares its place. For reading only."""

    def __init__(self, file: ColumnFile) -> None:
        self.file = file
        self.groups = file.texts("groups")
        self.numbers = {group: number for number, group in enumerate(self.groups)}
        self.group = file.column("group")
        self.order = file.column("order")
        self.size = len(self.group)
        """How many slots there are, slot 0 counted."""
        self._by_place = file.column("by place")
        self._places = joined(self.group, self.order)[self._by_place]

    def place(self, slot: int) -> tuple[str, int]:
        """Return the group and the order of a slot."""
        return self.groups[int(self.group[slot])], int(self.order[slot])

    def key(self, slot: int) -> str:
        """Return the key of a slot."""
        return key_at(*self.place(slot))

    def slot(self, key: str) -> int | None:
        """Return the slot of a key."""
        group, order = place_of(key)
        number = self.numbers.get(group)
        if number is None or order >= 1 << _ORDER_BITS:
            return None
        place = (number << _ORDER_BITS) | order
        at = int(np.searchsorted(self._places, place))
        return int(self._by_place[at]) if at < len(self._places) and self._places[at] == place else None

    def of(self, group: str) -> NDArray[np.bool_]:
        """Return which slots are in a group."""
        return np.equal(self.group, self.numbers.get(group, -2))


class StoredKeys(StoredPlaces):
    """The same of entries that are in no group, by the keys that they have in a file."""

    def __init__(self, file: ColumnFile) -> None:
        super().__init__(file)
        self.keys = file.texts("keys")
        self._slots = {key: slot for slot, key in enumerate(self.keys, 1)}

    def key(self, slot: int) -> str:
        """Return the key of a slot."""
        return self.keys[slot - 1]

    def slot(self, key: str) -> int | None:
        """Return the slot of a key."""
        return self._slots.get(key)


def joined(groups: Numbers, orders: Numbers) -> NDArray[np.int64]:
    """Return a number for each place, in the order of the groups' numbers and then of the orders."""
    return (groups.astype(np.int64) << _ORDER_BITS) | orders
