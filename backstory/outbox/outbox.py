"""Outbox of a home: queues deliveries that could not be recorded, and retries them in a background thread.

The thread retries with growing pauses and ends when the queue is empty. A memory that was slow to fail, such as one
whose lock another process holds, is left to this thread until it works again. So an agent waits once, not at every
turn.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from backstory.ledger.concurrency.jobs import Jobs
from backstory.ledger.core.errors import BackstoryError, LockTimeoutError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.ledger.learning.flushed import ConversationKey
from backstory.outbox.entry import OutboxEntry
from backstory.outbox.faults import Faults
from backstory.results import RecordResult

LOST = "DeliveryLost"
"""The kind of fault that counts dropped deliveries."""

SLOW_SECONDS = 1.0
"""An attempt that fails after this time has made an agent wait."""

_PATIENCE_SECONDS = 10.0


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
    """The queued entries of each thread, oldest first, and the time of the next attempt.

    It does not lock; its user does.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._queues: dict[ConversationKey, _Line] = {}
        self._pauses: dict[Scope | ConversationKey, _Pause] = {}
        self._shut: set[Scope] = set()
        self._round = 0
        self._number = 0

    @property
    def count(self) -> int:
        """The number of queued entries."""
        return sum(len(queue.entries) for queue in list(self._queues.values()))

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
        return sum(len(queue.entries) for (owner, _), queue in list(self._queues.items()) if owner == scope)

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
        """Add an entry as the last or the `first`; return the oldest entries, dropped to make room."""
        queue = self._queues.setdefault(key, _Line())
        last = queue.entries[-1] if queue.entries and not first else None
        if last is not None and entry.goes_on_from(last):
            # The entry repeats the last one, as from a host that always sends the whole conversation. It replaces it
            # and keeps its age, since the host will send these messages again if they are dropped.
            entry.immediate = entry.immediate or last.immediate
            entry.number = last.number
            queue.entries.pop()
        else:
            self._number += 1
            entry.number = self._number
        if not queue.entries:
            queue.round = self._round
        (queue.entries.appendleft if first else queue.entries.append)(entry)
        return self._make_room()

    def take(self, key: ConversationKey, entry: OutboxEntry) -> None:
        """Remove the first entry of a thread, unless it was dropped meanwhile."""
        if self.first(key) is entry:
            self._queues[key].entries.popleft()

    def _make_room(self) -> list[OutboxEntry]:
        gone: list[OutboxEntry] = []
        while self._is_full():
            oldest = min(self._movable(), key=lambda found: found[1].number, default=None)
            if oldest is None:
                break
            key, entry = oldest
            self._queues[key].entries.remove(entry)
            self._tidy(key)
            gone.append(entry)
        return gone

    def _is_full(self) -> bool:
        sizes = [entry.size for queue in self._queues.values() for entry in queue.entries]
        return len(sizes) > self._limits.deliveries or (sum(sizes) > self._limits.bytes and len(sizes) > 1)

    def _movable(self) -> Iterator[tuple[ConversationKey, OutboxEntry]]:
        """Yield the oldest entry of each queue that is not being recorded."""
        for key, queue in self._queues.items():
            index = 1 if queue.busy else 0
            if len(queue.entries) > index:
                yield key, queue.entries[index]

    def drop(self, scopes: Collection[Scope] | None = None) -> list[OutboxEntry]:
        """Remove and return the entries of some memories, else of all, including those being recorded."""
        gone: list[OutboxEntry] = []
        for key, queue in list(self._queues.items()):
            if scopes is None or key[0] in scopes:
                gone += queue.entries
                queue.entries.clear()
                self._tidy(key)
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


class Outbox(Jobs[ConversationKey]):
    """Queue of failed deliveries of one home. Safe for threads and forks; a child does not get its parent's queue.

    One that is not closed retries everything once at exit.

    Args:
        faults: Counts failures.
        limits: Limits of the queue and of the attempts.
        elapsed: A monotonic clock in seconds.
        background: Whether to retry in a thread; otherwise only `flush` retries.
    """

    _THREAD = "backstory-deliveries"
    IDLE_SECONDS = 0.0

    def __init__(
        self,
        faults: Faults,
        limits: QueueLimits | None = None,
        *,
        elapsed: Callable[[], float] = time.monotonic,
        background: bool = True,
    ) -> None:
        self._faults = faults
        self._limits = limits or QueueLimits()
        self._elapsed = elapsed
        super().__init__(workers=int(background))

    def renew(self) -> None:
        """Start empty, as in a forked child."""
        super().renew()
        self._lines = RetryQueue(self._limits)

    @property
    def count(self) -> int:
        """The number of queued deliveries."""
        return self._lines.count

    def let_in(self, scope: Scope, timeout: float = _PATIENCE_SECONDS) -> int:
        """Record the queued deliveries of a memory before an operation on all of it; return how many are left."""
        if self._lines.count_of(scope):
            self.flush(timeout)
        return self._lines.count_of(scope)

    def discard(self, scopes: Collection[Scope]) -> None:
        """Drop the queued deliveries of memories that are removed."""
        with self._changed:
            self._lines.drop(scopes)
            self._changed.notify_all()

    # Handing over.

    def hand_over(self, entry: OutboxEntry) -> RecordResult | None:
        """Record a delivery after the queued ones of its thread; None if it was queued itself, or refused."""
        # A thread of a wrong type is refused further in; here it only needs a key.
        key = (entry.scope, str(entry.thread))
        lines = self._lines
        with self._changed:
            # Wait for a direct attempt to end; if entries are queued already, join them.
            self._changed.wait_for(lambda: not lines.is_busy(key) or lines.first(key) or lines.is_shut(entry.scope))
            mine = not lines.is_shut(entry.scope) and lines.begin(key)
            first = lines.first(key) is None
        if not mine:
            self._put(key, entry)
            return None
        try:
            if first:
                return self._directly(key, entry)
            # At the end of the queue, so that no later delivery overtakes it.
            self._put(key, entry)
            return self._work_off(key, entry)
        finally:
            self._leave(key)

    def _leave(self, key: ConversationKey) -> None:
        with self._changed:
            self._lines.end(key)
            self._changed.notify_all()

    def _directly(self, key: ConversationKey, entry: OutboxEntry) -> RecordResult | None:
        done = False
        try:
            done, result = self._try(key, entry)
            return result
        finally:
            if not done:
                # Deliveries that arrived during the attempt stay behind it. After an interrupt it is unknown whether it
                # was recorded.
                self._put(key, entry, first=True)

    def _put(self, key: ConversationKey, entry: OutboxEntry, *, first: bool = False) -> None:
        """Queue a delivery and wake the background thread; drop the oldest ones over the limits."""
        if not entry.kept:
            return
        with self._changed:
            gone = self._lines.put(key, entry, first=first)
            self._wake()
        self._lose(gone, "was dropped for newer ones, since the outbox is full")

    def _lose(self, entries: Iterable[OutboxEntry], why: str) -> None:
        for entry in entries:
            detail = f"a delivery {why}: its messages are not recorded unless the host sends them again"
            if entry.takes_back is not None:
                detail = f"what takes a turn back {why}: the turn stands"
            self._faults.count(entry.scope, entry.doing, LOST, detail)

    # Trying.

    def _work_off(self, key: ConversationKey, until: OutboxEntry | None = None) -> RecordResult | None:
        """Record queued entries in order up to `until`; return its result, or None if it is not reached."""
        while True:
            with self._changed:
                entry = self._lines.first(key)
            if entry is None:
                return None
            done, result = self._try(key, entry)
            if not done:
                return None
            with self._changed:
                self._lines.take(key, entry)
            if entry is until:
                return result

    def _try(self, key: ConversationKey, entry: OutboxEntry) -> tuple[bool, RecordResult | None]:
        """Try one delivery; return whether it is finished (recorded or dropped), and the result."""
        begun = self._elapsed()
        try:
            result = entry.record(look_first=self._lines.is_shut(entry.scope))
        except (KeyboardInterrupt, SystemExit):
            raise
        except UsageError as error:
            # Every retry would be refused, too.
            self._faults.note(entry.scope, entry.doing, error)
            return True, None
        except Exception as error:  # noqa: BLE001 no fault of memory reaches the agent
            self._faults.note(entry.scope, entry.doing, error)
            return self._failed(key, entry, error, self._elapsed() - begun), None
        with self._changed:
            self._lines.recovered(key)
            self._changed.notify_all()
        self._faults.recovered(entry.scope, entry.doing, still=() if entry.is_whole else ("InputError",))
        return True, result

    def _failed(self, key: ConversationKey, entry: OutboxEntry, error: Exception, took: float) -> bool:
        """Schedule the next attempt; return whether the delivery was dropped instead."""
        outage = _is_outage(error)
        if not outage:
            entry.attempts += 1
            if entry.attempts >= self._limits.attempts:
                self._lose([entry], f"failed {entry.attempts} times")
                return True
        with self._changed:
            if isinstance(error, LockTimeoutError) or took >= SLOW_SECONDS:
                self._lines.shut(entry.scope)
            # An outage affects all threads of a memory.
            self._lines.failed(key, self._elapsed(), alone=not outage)
            self._changed.notify_all()
        return False

    # In the background.

    def _next(self) -> tuple[float, ConversationKey | None] | None:
        if not self._lines.count:
            return None
        now = self._elapsed()
        moment, key = self._lines.next(now)
        return moment - now, key if moment <= now else None

    def _run(self, key: ConversationKey, /) -> None:
        with self._changed:
            if not self._lines.begin(key):
                return
        try:
            self._work_off(key)
        except (KeyboardInterrupt, SystemExit) as error:
            # Only the host's own code raises these here; real interrupts arrive in the main thread.
            self._faults.note(key[0], "record", error)
            with self._changed:
                self._lines.failed(key, self._elapsed(), alone=True)
        finally:
            self._leave(key)

    # The end.

    def flush(self, timeout: float) -> bool:
        """Retry all queued deliveries once; return whether the queue is empty within `timeout` seconds."""
        with self._changed:
            if not self._lines.count:
                return True
            wanted = self._lines.begin_round()
            alone = not self._wake()
        if alone:
            for key in wanted:
                if self._lines.is_to_do(key):
                    self._run(key)
            return not self._lines.count
        with self._changed:
            self._changed.wait_for(lambda: not any(map(self._lines.is_to_do, wanted)), timeout)
            return not self._lines.count

    def _finish(self, seconds: float) -> None:
        self.close(seconds)

    def close(self, timeout: float) -> bool:
        """Flush, then drop what is left; return whether nothing was. Later deliveries can be queued again."""
        if self.flush(timeout):
            return True
        with self._changed:
            left = self._lines.drop()
            self._changed.notify_all()
        self._lose(left, "was still queued at the end")
        self._faults.flush()
        return False


def _is_outage(error: Exception) -> bool:
    """Whether an error is a temporary failure of the store or the disk."""
    import sqlite3

    return isinstance(error, BackstoryError | OSError | sqlite3.Error)
