"""Stored cited facts: what was known of the facts that cite turns when the index of turns was written.

It is in the same file, and read thread by thread: a memory may have learned very many facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec
import numpy as np

from backstory.projections.derived_files import DamagedError
from backstory.projections.search.cited_facts import CitedFacts, CitedState, CitedThread
from backstory.projections.search.lexical.column_file import ColumnFile, Columns

_thread = msgspec.msgpack.Decoder(CitedThread)


class StoredCited:
    """The cited facts in a file; see `KnownCited`."""

    def __init__(self, file: ColumnFile) -> None:
        self._file = file
        self.state = msgspec.msgpack.decode(file.packed("cited"), type=CitedState)
        self.threads = file.texts("cited threads")
        self._numbers = {thread: number for number, thread in enumerate(self.threads)}

    def part(self, thread: str) -> CitedThread:
        """Read what is known of a thread.

        Raises:
            DamagedError: The file was written to.
        """
        number = self._numbers[thread]
        begin, end = map(int, self._file.part("cited ends", number, number + 2))
        try:
            return _thread.decode(self._file.part("cited facts", begin, end).tobytes())
        except msgspec.MsgspecError as error:
            raise DamagedError(f"the facts that cite a thread cannot be read: {error}") from error

    def threads_of(self, fact_id: str) -> Iterator[str]:
        """Yield the thread whose turns a fact cites, if it cites any, and seldom another one."""
        ids, sought = self._file.column("cited ids"), _digest(fact_id)
        for place in range(np.searchsorted(ids, sought, "left"), np.searchsorted(ids, sought, "right")):
            yield self.threads[int(self._file.part("cited by", place, place + 1)[0])]


def cited_columns(cited: CitedFacts) -> Columns:
    """Return what a file holds of cited facts."""
    parts = cited.parts()
    packed = [msgspec.msgpack.encode(part) for part in parts.values()]
    places = [(_digest(fact_id), number) for number, part in enumerate(parts.values()) for fact_id, _, _ in part.facts]
    places.sort()
    return {
        "cited": msgspec.msgpack.encode(cited.state()),
        "cited threads": list(parts),
        "cited ends": np.cumsum([0, *map(len, packed)], dtype=np.int64),
        "cited facts": b"".join(packed),
        "cited ids": np.array([digest for digest, _ in places], np.uint64),
        "cited by": np.array([number for _, number in places], np.int64),
    }


def _digest(fact_id: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(fact_id.encode(errors="surrogatepass"), digest_size=8).digest(), "little"))
