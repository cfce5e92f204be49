"""News of commits for event streams: at once for commits of this process, within a moment for those of others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.memory import MemoryHandle

__all__ = ["Follower", "News"]

_POLL_SECONDS = 0.25
"""How often the head is read, to notice commits of other processes."""


class Follower:
    """Wakes one event stream when its memory may have changed."""

    def __init__(self, news: News) -> None:
        self._news = news
        self.changed = asyncio.Event()

    async def wait(self, memory: MemoryHandle, seq: int, digest: str) -> None:
        """Return when the memory has another head than this one.

        Raises:
            BackstoryError: The memory cannot be read.
        """
        while not self._news.ended:
            self.changed.clear()
            head = await run_in_thread(memory.head)
            if head.seq != seq or (digest and head.hash != digest):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self.changed.wait()


class News:
    """Passes commits of this process on to the event streams of their memory."""

    def __init__(self) -> None:
        self._followers: dict[Scope, set[Follower]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ended = False
        """Whether the server ends, so that every stream has to."""

    def start(self) -> None:
        """Take the running event loop as the one of the streams."""
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """End every stream."""
        self.ended = True
        for followers in self._followers.values():
            for follower in followers:
                follower.changed.set()

    @contextlib.contextmanager
    def of(self, scope: Scope) -> Iterator[Follower]:
        """Follow a memory."""
        follower = Follower(self)
        self._followers.setdefault(scope, set()).add(follower)
        try:
            yield follower
        finally:
            others = self._followers.get(scope, set())
            others.discard(follower)
            if not others:
                self._followers.pop(scope, None)

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:
        """Listen to the commits of a home; see `ledger.log.writer.Listener`."""
        del commit, before, after
        if self._loop is not None and scope in self._followers:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake, scope)

    def _wake(self, scope: Scope) -> None:
        for follower in self._followers.get(scope, ()):
            follower.changed.set()
