"""Recordings in the background of an event loop: bounded, and awaited at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from backstory.integrations.threads import run_in_thread

_T = TypeVar("_T")

_AT_ONCE = 32
"""Worker threads that record at most; the others read, so that locked memories do not hold up all requests."""
_MOST = 1_000


class Recordings:
    """Recordings that are under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def is_full(self) -> bool:
        """Whether too many recordings wait to begin another one."""
        return len(self._tasks) >= _MOST

    def start(self, work: Callable[[], object], after: Awaitable[object] | None = None) -> asyncio.Task[None]:
        """Begin a recording.

        Args:
            work: Records, and raises nothing.
            after: What has to be done before.
        """
        task = asyncio.ensure_future(self._run(work, after))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, work: Callable[[], object], after: Awaitable[object] | None) -> None:
        if after is not None:
            await after
        async with self._slots:
            await run_in_thread(work)

    async def end(self, seconds: float) -> None:
        """Wait until all are done, or the time is over."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)


async def done_within(task: asyncio.Future[_T], seconds: float) -> bool:
    """Wait for a task for a time, without ending it; return whether it is done."""
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return bool(done)
