"""News of commits for event streams: at once for commits of this process, within a moment for those of others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.memory import MemoryHandle

__all__ = ["News"]

_POLL_SECONDS = 0.25
"""How often the head of a followed memory is read, to notice commits of other processes."""


class _Followed:
    """A memory with event streams: one task reads its head for all of them."""

    def __init__(self) -> None:
        self.followers: set[asyncio.Event] = set()
        self.task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        for follower in self.followers:
            follower.set()


class News:
    """Wakes event streams when their memory may have changed. All but `note` is for the event loop's thread.

    Args:
        poll_seconds: How often the head of a followed memory is read.
    """

    def __init__(self, poll_seconds: float = _POLL_SECONDS) -> None:
        self._poll_seconds = poll_seconds
        self._followed: dict[Scope, _Followed] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ended = False
        """Whether the server ends, so that every stream has to."""

    def __len__(self) -> int:
        """How many event streams are open."""
        return sum(len(followed.followers) for followed in self._followed.values())

    def start(self) -> None:
        """Take the running event loop as the one of the streams."""
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """End every stream."""
        self.ended = True
        for followed in self._followed.values():
            followed.wake()

    @contextlib.contextmanager
    def of(self, memory: MemoryHandle) -> Iterator[asyncio.Event]:
        """Follow a memory: yields an event that is set when there may be a new commit."""
        scope, changed = memory.scope, asyncio.Event()
        followed = self._followed.setdefault(scope, _Followed())
        followed.followers.add(changed)
        if followed.task is None:
            followed.task = asyncio.create_task(self._poll(memory, followed))
        try:
            yield changed
        finally:
            followed.followers.discard(changed)
            if not followed.followers:
                followed.task.cancel()
                del self._followed[scope]

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:
        """Listen to the commits of a home; see `ledger.log.writer.Listener`."""
        del commit, before, after
        if self._loop is not None and scope in self._followed:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake, scope)

    def _wake(self, scope: Scope) -> None:
        followed = self._followed.get(scope)
        if followed is not None:
            followed.wake()

    async def _poll(self, memory: MemoryHandle, followed: _Followed) -> None:
        known = None
        while True:
            try:
                head = await run_in_thread(memory.head)
            except BackstoryError:
                # The streams read it, too, and report the error.
                head = None
            if head is None or head != known:
                followed.wake()
            known = head
            await asyncio.sleep(self._poll_seconds)
