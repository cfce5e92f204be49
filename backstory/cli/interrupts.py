"""Texts for an interrupted verb: what it leaves undone, and how to go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstory.memory import MemoryHandle
    from backstory.results import ParkedThread, PendingThread


def stays_pending(memories: Iterable[MemoryHandle], thread: str | None) -> str:
    """Count what `extract` has not extracted yet, in one thread or in all."""
    return _stays([p for memory in memories for p in memory.status().pending], thread, "pending", "extract")


def stays_parked(memory: MemoryHandle, thread: str | None) -> str:
    """Count what `retry` has not retried yet, in one thread or in all."""
    return _stays(memory.status().parked, thread, "parked", "retry")


def _stays(waiting: Iterable[PendingThread | ParkedThread], thread: str | None, how: str, verb: str) -> str:
    from backstory.cli.pages.labels import counted

    found = [one for one in waiting if thread in (None, one.thread)]
    if not found:
        return f"nothing stays {how}"
    stay = "stays" if len(found) == 1 else "stay"
    turns = counted(sum(one.turns for one in found), "turn")
    return f"{counted(len(found), 'thread')} with {turns} {stay} {how}; run `backstory {verb}` again"
