"""Retry queue: the queued entries of each thread, oldest first, and the time of the next attempt.

It does not lock; its user does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

import msgspec

from backstory.ledger.core.scope import Scope
from backstory.ledger.learning.flushed import ConversationKey
from backstory.outbox.entry import OutboxEntry


class QueueLimits(msgspec.Struct, frozen=True):
    """Limits of an outbox.

    Attributes:
        deliveries: Maximum number of queued deliveries.
        bytes: Maximum size of all queued messages.
        shortest_pause: Seconds until the first retry.
        longest_pause: Maximum seconds between two attempts.
        attempts: Attempts before a delivery with an unexpected error is dropped.
    """

    deliveries: int = 1000
    bytes: int = 64 << 20
    shortest_pause: float = 1.0
    longest_pause: float = 60.0
    attempts: int = 8


class _Line:
    """The queued entries of one thread; `busy` while a thread of the process records them."""

    def __init__(self) -> None:
        self.entries: deque[OutboxEntry] = deque()
        self.busy = False
        self.round = 0
        """The last round of attempts that included it."""


class _Pause(msgspec.Struct, frozen=True):
    """A pause between two attempts: its end on a monotonic clock, and its length."""

    until: float
    seconds: float


class RetryQueue:
    """All queued entries of a home; `count` is their number."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._queues: dict[ConversationKey, _Line] = {}
        self._pauses: dict[Scope | ConversationKey, _Pause] = {}
        self._shut: set[Scope] = set()
        self._round = 0
        self._number = 0
        self._bytes = 0
        self.count = 0

    def is_busy(self, key: ConversationKey) -> bool:
        """Whether the entries of a thread are being recorded."""
        return key in self._queues and self._queues[key].busy

    def begin(self, key: ConversationKey) -> bool:
        """Begin to record the entries of a thread; False if they are being recorded."""
        queue = self._queues.setdefault(key, _Line())
        busy, queue.busy = queue.busy, True
        return not busy

    def end(self, key: ConversationKey) -> None:
        """End that again; a child that was forked meanwhile has no queue of it."""
        if key in self._queues:
            self._queues[key].busy = False
            self._tidy(key)

    def first(self, key: ConversationKey) -> OutboxEntry | None:
        """Return the next entry of a thread, if there is one."""
        queue = self._queues.get(key)
        return queue.entries[0] if queue is not None and queue.entries else None

    def count_of(self, scope: Scope) -> int:
        """Count the queued entries of a memory."""
        return sum(len(queue.entries) for (owner, _), queue in self._queues.items() if owner == scope)

    def _tidy(self, key: ConversationKey) -> None:
        """Remove the queue of a thread if it is empty and unused, and the state of a scope without queues."""
        queue, scope = self._queues.get(key), key[0]
        if queue is None or queue.entries or queue.busy:
            return
        del self._queues[key]
        self._pauses.pop(key, None)
        troubled = scope in self._shut or scope in self._pauses
        if troubled and not any(other == scope for other, _ in self._queues):
            self._shut.discard(scope)
            self._pauses.pop(scope, None)

    # Deliveries.

    def put(self, key: ConversationKey, entry: OutboxEntry, *, first: bool = False) -> list[OutboxEntry]:
        """Add a packed entry as the last or the `first`; return the oldest entries, dropped to make room."""
        queue = self._queues.setdefault(key, _Line())
        last = queue.entries[-1] if queue.entries and not first else None
        if last is not None and entry.goes_on_from(last):
            # The entry repeats the last one, as from a host that always sends the whole conversation. It replaces it
            # and keeps its age, since the host will send these messages again if they are dropped.
            entry.immediate = entry.immediate or last.immediate
            entry.number = last.number
            self._take_off(queue.entries.pop())
        else:
            self._number += 1
            entry.number = self._number
        if not queue.entries:
            queue.round = self._round
        (queue.entries.appendleft if first else queue.entries.append)(entry)
        self.count += 1
        self._bytes += entry.size
        return self._make_room()

    def take(self, key: ConversationKey, entry: OutboxEntry) -> None:
        """Remove the first entry of a thread, unless it was dropped meanwhile."""
        if self.first(key) is entry:
            self._take_off(self._queues[key].entries.popleft())

    def _take_off(self, entry: OutboxEntry) -> None:
        self.count -= 1
        self._bytes -= entry.size

    def _make_room(self) -> list[OutboxEntry]:
        gone: list[OutboxEntry] = []
        while self.count > self._limits.deliveries or (self._bytes > self._limits.bytes and self.count > 1):
            oldest = min(self._movable(), key=lambda found: found[1].number, default=None)
            if oldest is None:
                break
            key, entry = oldest
            self._queues[key].entries.remove(entry)
            self._take_off(entry)
            self._tidy(key)
            gone.append(entry)
        return gone

    def _movable(self) -> Iterator[tuple[ConversationKey, OutboxEntry]]:
        """Yield the oldest entry of each queue that is not being recorded."""
        for key, queue in self._queues.items():
            index = 1 if queue.busy else 0
            if len(queue.entries) > index:
                yield key, queue.entries[index]

    def drop(self, scopes: Collection[Scope]) -> None:
        """Remove the entries of some memories."""
        for key, queue in list(self._queues.items()):
            if key[0] in scopes:
                for entry in queue.entries:
                    self._take_off(entry)
                queue.entries.clear()
                self._tidy(key)

    def clear(self) -> list[OutboxEntry]:
        """Remove and return all entries, including those being recorded."""
        gone = [entry for queue in self._queues.values() for entry in queue.entries]
        for key, queue in list(self._queues.items()):
            queue.entries.clear()
            self._tidy(key)
        self.count = self._bytes = 0
        return gone

    # When.

    def is_shut(self, scope: Scope) -> bool:
        """Whether a memory was slow to fail, so that only the background retries it."""
        return scope in self._shut

    def shut(self, scope: Scope) -> None:
        """Leave a memory to the background while it has queued entries."""
        self._shut.add(scope)

    def failed(self, key: ConversationKey, now: float, *, alone: bool) -> None:
        """Pause a thread that failed, longer each time; unless it failed `alone`, pause the whole memory."""
        paused: Scope | ConversationKey = key if alone else key[0]
        known = self._pauses.get(paused)
        seconds = self._limits.shortest_pause if known is None else known.seconds * 2
        seconds = min(seconds, self._limits.longest_pause)
        self._pauses[paused] = _Pause(now + seconds, seconds)
        for other, queue in self._queues.items():
            if other == key or (not alone and other[0] == key[0]):
                queue.round = self._round

    def recovered(self, key: ConversationKey) -> None:
        """End the pauses of a memory and of a thread that worked."""
        self._shut.discard(key[0])
        self._pauses.pop(key[0], None)
        self._pauses.pop(key, None)

    def begin_round(self) -> list[ConversationKey]:
        """Make all queued threads due for one attempt, and return their keys."""
        self._round += 1
        return [key for key, queue in self._queues.items() if queue.entries]

    def is_to_do(self, key: ConversationKey) -> bool:
        """Whether a thread still waits for its attempt in this round."""
        queue = self._queues.get(key)
        return queue is not None and bool(queue.entries) and queue.round < self._round

    def next(self, now: float) -> tuple[float, ConversationKey | None]:
        """Return the time of the next attempt and the key of its thread; None if all are busy."""
        best: tuple[float, ConversationKey | None] = (now + self._limits.longest_pause, None)
        for key, queue in self._queues.items():
            if queue.busy or not queue.entries:
                continue
            moment = now if queue.round < self._round else max(self._until(key), self._until(key[0]))
            if best[1] is None or moment < best[0]:
                best = (moment, key)
        return best

    def _until(self, paused: Scope | ConversationKey) -> float:
        pause = self._pauses.get(paused)
        return 0.0 if pause is None else pause.until
