"""Outbox of a home: queues deliveries that could not be recorded, and retries them in a background thread.

The thread retries with growing pauses and ends when the queue is empty. A memory that was slow to fail, such as one
whose lock another process holds, is left to this thread until it works again. So an agent waits once, not at every
turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from backstory.ledger.concurrency.jobs import Jobs
from backstory.ledger.core.errors import BackstoryError, LockTimeoutError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.ledger.learning.flushed import ConversationKey
from backstory.outbox.entry import OutboxEntry
from backstory.outbox.faults import Faults
from backstory.outbox.retry_queue import QueueLimits, RetryQueue
from backstory.results import RecordResult

LOST = "DeliveryLost"
"""The kind of fault that counts dropped deliveries."""

SLOW_SECONDS = 1.0
"""An attempt that fails after this time has made an agent wait."""

_PATIENCE_SECONDS = 10.0


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
        with self._changed:
            waits = self._lines.count_of(scope)
        if not waits or self.flush(timeout):
            return 0
        with self._changed:
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
        entry.pack()
        if entry.is_empty:
            return
        with self._changed:
            gone = self._lines.put(key, entry, first=first)
            self._wake()
        self._lose(gone, "was dropped for newer ones, since the outbox is full")

    def _lose(self, entries: Iterable[OutboxEntry], why: str) -> None:
        for entry in entries:
            detail = f"a delivery {why}: its messages are not recorded unless the host sends them again"
            self._faults.count(entry.scope, "record", LOST, detail)

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
            self._faults.note(entry.scope, "record", error)
            return True, None
        except Exception as error:  # noqa: BLE001 no fault of memory reaches the agent
            self._faults.note(entry.scope, "record", error)
            return self._failed(key, entry, error, self._elapsed() - begun), None
        with self._changed:
            self._lines.recovered(key)
            self._changed.notify_all()
        self._faults.recovered(entry.scope, "record", still=() if entry.is_whole else ("InputError",))
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
            left = self._lines.clear()
            self._changed.notify_all()
        self._lose(left, "was still queued at the end")
        for scope in {entry.scope for entry in left}:
            self._faults.flush(scope)
        return False


def _is_outage(error: Exception) -> bool:
    """Whether an error is a temporary failure of the store or the disk."""
    import sqlite3

    return isinstance(error, BackstoryError | OSError | sqlite3.Error)
