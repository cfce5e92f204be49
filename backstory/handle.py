"""One scope's memory, as a host uses it. Thin: what is allowed is decided in the ledger, what is read is projected."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import msgspec

from backstory import checks
from backstory.aio import AsyncTwins
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.sanitize import MAX_NAME, clip
from backstory.metagpt import TurnAccess, Turns
from backstory.projections.turns import TurnLog
from backstory.results import RecordResult

__all__ = ["MemoryHandle"]


class MemoryHandle(AsyncTwins):
    """The memory of one user and agent; get it from `Backstory.memory`.

    Everything reads the newest state, other processes' commits included, and raises StoreError, LockTimeoutError or
    CorruptLogError where the store cannot. Every method that does I/O has an async twin with an `a` before its name.
    """

    def by(self, actor: str, thread: str | None = None) -> MemoryHandle:
        """Return the same memory in other hands: what is changed through it is recorded as this actor's doing.

        `actor` is who changes it, as `agent:lead`; `thread` the conversation in which that is done, as `why` and `log`
        show it, and what is forgotten with it.

        Raises:
            UsageError: no text, or an empty one.
        """
        named = clip(checks.text("actor", actor).strip(), MAX_NAME)
        if not named:
            raise UsageError("the actor is empty: say who changes the memory")
        engine = msgspec.structs.replace(
            self._services,
            actor=named,
            conversation=None if thread is None else clip(checks.text("thread", thread), MAX_NAME) or None,
        )
        return MemoryHandle(self._own, engine, self._fallback, self._agents)

    @property
    def turns(self) -> Turns:
        """What was said and stands, with the operations of MetaGPT's Memory; it is read when it is asked."""
        return Turns(TurnAccess(self._turn_log, self._say, self._take_back, self._services.must_be_open))

    @cached_property
    def _turn_log(self) -> TurnLog:
        return self._services.turns(self.scope)

    def _say(self, thread: str, messages: Sequence[object]) -> RecordResult:
        return self.record(thread, messages, mode="append")

    def _take_back(self, thread: str, ordinals: Collection[int]) -> tuple[int, ...]:
        return self._writer.withdraw(thread, ordinals, actor=self._services.actor)
