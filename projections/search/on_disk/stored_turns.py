"""Stored turns: those that stood when the index by words was written, in the same file, read one by one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from backstory.projections.derived_files import DamagedError
from backstory.projections.search.lexical.column_file import ColumnFile, Columns, Numbers
from backstory.projections.search.lexical.index import LexicalIndex
from backstory.projections.search.lexical.places import StoredPlaces
from backstory.projections.turns import FollowerOrigin, TurnView

Flags: TypeAlias = NDArray[np.bool_]
Tagged: TypeAlias = dict[int, tuple[str, ...]]

_encoder = msgspec.json.Encoder()
_view = msgspec.json.Decoder(TurnView)


class TurnsState(msgspec.Struct, frozen=True, array_like=True):
    """What a file says beside its columns: where turns were read to, and the tags of those that have some."""

    origin: FollowerOrigin
    tagged: Tagged


class StoredTurns(Mapping[str, TurnView]):
    """The turns of a file that stand, by their keys; not safe for threads."""

    def __init__(self, file: ColumnFile) -> None:
        state = msgspec.msgpack.decode(file.packed("state"), type=TurnsState)
        self.places = places = StoredPlaces(file)
        self.origin = state.origin
        self.count = places.size - 1
        self._tagged = state.tagged
        self._stands: Flags = np.arange(places.size) > 0
        self._left = self.count
        self._times: Numbers | None = None

    def __len__(self) -> int:
        return self._left

    def __iter__(self) -> Iterator[str]:
        return map(self.places.key, np.flatnonzero(self._stands).tolist())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.slot(key) is not None

    def __getitem__(self, key: str) -> TurnView:
        slot = self.slot(key)
        if slot is None:
            raise KeyError(key)
        return self.view(slot)

    def slot(self, key: str) -> int | None:
        """Return the slot of a turn that stands."""
        slot = self.places.slot(key)
        return slot if slot is not None and self._stands[slot] else None

    def drop(self, key: str) -> None:
        """Note that a turn has ceased to stand."""
        self._stands[self.places.slot(key)] = False
        self._left -= 1

    def serials(self, thread: str) -> array[int]:
        """Return the slots of a thread's turns by their ordinals, as they were stored; 0 where none stood."""
        slots = np.flatnonzero(self.places.of(thread))
        orders = self.places.order[slots]
        serials = np.zeros(int(orders.max(initial=0)), np.uint64)
        serials[orders - 1] = slots
        return array("Q", serials.tobytes())

    def view(self, slot: int) -> TurnView:
        """Read a turn.

        Raises:
            DamagedError: The file was written to.
        """
        file = self.places.file
        begin, end = map(int, file.part("ends", slot - 1, slot + 1))
        try:
            return _view.decode(file.part("turns", begin, end).tobytes())
        except msgspec.MsgspecError as error:
            raise DamagedError(f"a turn cannot be read: {error}") from error

    def of(self, thread: str) -> Iterator[TurnView]:
        """Yield the turns of a thread that stand."""
        return map(self.view, np.flatnonzero(self._stands & self.places.of(thread)).tolist())

    def within(self, thread: str | None, first: str, end: str, tags: frozenset[str]) -> Flags:
        """Return by slot which turns stand, are of a thread, were said in a span of time and have all of these tags."""
        if self._times is None:
            self._times = self.places.file.column("at")
        found: Flags = self._stands & (self._times >= first.encode()) & (self._times < end.encode())
        if thread is not None:
            found &= self.places.of(thread)
        if tags:
            tagged = [slot for slot, some in self._tagged.items() if tags.issubset(some)]
            found &= np.isin(np.arange(self.places.size), tagged)
        return found


def turn_columns(standing: Mapping[str, TurnView], origin: FollowerOrigin, words: LexicalIndex) -> Columns:
    """Return what a file holds of turns and their index.

    Raises:
        ValueError: A text cannot be written.
        DamagedError: What is stored by now is not what was written.
    """
    columns, keys = words.columns()
    turns = [standing[key] for key in keys]
    views = [_encoder.encode(said) for said in turns]
    tagged = {slot: said.tags for slot, said in enumerate(turns, 1) if said.tags}
    return columns | {
        "turns": b"".join(views),
        "ends": np.cumsum([0, *map(len, views)], dtype=np.int64),
        "at": np.array([b"", *(said.at.encode("ascii") for said in turns)], "S"),
        "state": msgspec.msgpack.encode(TurnsState(origin, tagged)),
    }
