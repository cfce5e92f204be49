"""One scope's memory, as a host uses it. Thin: what is allowed is decided in the ledger, what is read is projected."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from backstory.asynchronous import AsyncTwins
from backstory.results import RecordResult
from backstory.turns import Door, Turns
from projections.turns import TurnLog

__all__ = ["MemoryHandle"]


class MemoryHandle(AsyncTwins):
    """The memory of one user and agent; get it from `Backstory.memory`.

    Everything reads the newest state, other processes' commits included, and raises StoreError, LockTimeoutError or
    CorruptLogError where the store cannot. Every method that does I/O has an async twin with an `a` before its name.
    """

    @property
    def turns(self) -> Turns:
        """What was said and stands, with the operations of MetaGPT's Memory; it is read when it is asked."""
        return Turns(Door(self._turn_log, self._say, self._take_back, self._engine.must_be_open))

    @cached_property
    def _turn_log(self) -> TurnLog:
        return self._engine.turns(self.scope)

    def _say(self, thread: str, messages: Sequence[object]) -> RecordResult:
        return self.record(thread, messages, mode="append")

    def _take_back(self, thread: str, ordinals: Collection[int]) -> tuple[int, ...]:
        return self._writer.withdraw(thread, ordinals, actor=self._engine.actor)
