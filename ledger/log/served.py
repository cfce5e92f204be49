"""Served memory: what reads of a scope show of its memory, from which facts disappear at the moment that they state.

The log takes such a fact out with a commit of its own, which may come later. Every read goes through here, so none
shows it meanwhile; memory.json stays what a replay of the log gives.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment


class ServedMemory(msgspec.Struct, frozen=True):
    """A memory as it is served until the moment `until` (None: for ever); `hidden` facts of the log are not in it."""

    memory: Memory
    until: str | None
    hidden: int


class Serving:
    """Serves the memories of one scope. Safe for threads: the newest result replaces the one before in one step.

    Args:
        clock: decides what has lapsed.
        lapsing: called with the moment at which the next fact lapses, or at which one has, whenever that changes.
    """

    def __init__(self, clock: Clock, lapsing: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._lapsing = lapsing
        self._last: tuple[Memory, ServedMemory] = (Memory(), ServedMemory(Memory(), None, 0))

    def of(self, memory: Memory) -> ServedMemory:
        """Return a memory as it is served now; the same object as long as nothing changes."""
        known, served = self._last
        lapse = served.until
        if known is not memory:
            lapse = memory.next_lapse()
            served = ServedMemory(memory, lapse, 0)
        if lapse is not None and lapse <= (now := spell_moment(self._clock.now())):
            standing = memory.standing_at(now)
            served = ServedMemory(standing, standing.next_lapse(), len(memory.facts) - len(standing.facts))
        if served is not self._last[1]:
            self._last = (memory, served)
            if lapse is not None and self._lapsing is not None:
                self._lapsing(lapse)
        return served
