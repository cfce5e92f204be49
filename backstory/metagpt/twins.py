"""The async twins of the operations on turns: each runs its namesake in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from backstory.metagpt.changes import WritingTurns
from backstory.projections.turns import TurnView
from backstory.results import RecordResult

__all__ = ["Turns"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def _in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    import asyncio

    return await asyncio.to_thread(work, *args, **kwargs)


class Turns(WritingTurns):
    """What was said and stands, over all conversations of a memory or one of them; get it from `memory.turns`.

    The operations are those of MetaGPT's Memory, over a transcript: it keeps everything, on disk, and other processes'
    turns are seen at once. Safe for threads. Raises StoreError, LockTimeoutError or CorruptLogError where the store
    cannot. Every operation has an async twin with an `a` before its name.
    """

    async def aadd(self, message: object, thread: str | None = None) -> RecordResult:
        """See `add`."""
        return await _in_thread(self.add, message, thread)

    async def aadd_batch(self, messages: Iterable[object], thread: str | None = None) -> RecordResult:
        """See `add_batch`."""
        return await _in_thread(self.add_batch, messages, thread)

    async def adelete(self, message: object) -> TurnView:
        """See `delete`."""
        return await _in_thread(self.delete, message)

    async def adelete_newest(self) -> TurnView | None:
        """See `delete_newest`."""
        return await _in_thread(self.delete_newest)

    async def aclear(self) -> int:
        """See `clear`."""
        return await _in_thread(self.clear)

    async def aget(self, k: int = 0) -> list[TurnView]:
        """See `get`."""
        return await _in_thread(self.get, k)

    async def aget_by_id(self, turn_id: str) -> TurnView | None:
        """See `get_by_id`."""
        return await _in_thread(self.get_by_id, turn_id)

    async def aget_by_role(self, role: str) -> list[TurnView]:
        """See `get_by_role`."""
        return await _in_thread(self.get_by_role, role)

    async def aget_by_content(self, content: str) -> list[TurnView]:
        """See `get_by_content`."""
        return await _in_thread(self.get_by_content, content)

    async def atry_remember(self, keyword: str) -> list[TurnView]:
        """See `try_remember`."""
        return await _in_thread(self.try_remember, keyword)

    async def aget_by_action(self, action: object) -> list[TurnView]:
        """See `get_by_action`."""
        return await _in_thread(self.get_by_action, action)

    async def aget_by_actions(self, actions: Iterable[object]) -> list[TurnView]:
        """See `get_by_actions`."""
        return await _in_thread(self.get_by_actions, actions)

    async def aget_by_position(self, position: int) -> TurnView | None:
        """See `get_by_position`."""
        return await _in_thread(self.get_by_position, position)

    async def aaddressed_to(self, name: str) -> list[TurnView]:
        """See `addressed_to`."""
        return await _in_thread(self.addressed_to, name)

    async def afind_news(self, observed: Iterable[object], k: int = 0) -> list[object]:
        """See `find_news`."""
        return await _in_thread(self.find_news, observed, k)

    async def acount(self) -> int:
        """See `count`."""
        return await _in_thread(self.count)
