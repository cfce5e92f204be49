"""News of commits of this process for event streams: each stream looks by itself, and is woken here to look at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope

__all__ = ["News"]


class News:
    """Wakes event streams when their memory has a new commit. All but `note` is for the event loop's thread."""

    def __init__(self) -> None:
        self._followers: dict[Scope, set[asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ended = False
        """Whether the server ends, so that every stream has to."""

    def __len__(self) -> int:
        """How many event streams are open."""
        return sum(map(len, self._followers.values()))

    def start(self) -> None:
        """Take the running event loop as the one of the streams."""
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """End every stream."""
        self.ended = True
        for scope in self._followers:
            self._wake(scope)

    @contextlib.contextmanager
    def of(self, scope: Scope) -> Iterator[asyncio.Event]:
        """Follow a memory: yields an event that is set when there is a new commit."""
        changed = asyncio.Event()
        followers = self._followers.setdefault(scope, set())
        followers.add(changed)
        try:
            yield changed
        finally:
            followers.discard(changed)
            if not followers:
                del self._followers[scope]

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:
        """Listen to the commits of a home; see `ledger.log.writer.Listener`."""
        del commit, before, after
        if self._loop is not None and scope in self._followers:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake, scope)

    def _wake(self, scope: Scope) -> None:
        for follower in self._followers.get(scope, ()):
            follower.set()
