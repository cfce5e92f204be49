"""Where deliveries wait that could not be recorded, and are tried again.

One thread in the background does that, with growing pauses; it is there as long as anything waits. A memory that makes
whoever records wait, as where another process keeps its lock, is left to that thread alone until it has succeeded once:
so an agent waits once and not at every turn.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from backstory.ledger.concurrency.forks import register, start_thread
from backstory.ledger.core.errors import BackstoryError, LockTimeoutError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.outbox.entry import OutboxEntry
from backstory.outbox.faults import Faults
from backstory.outbox.retry_queue import Key, Limits, RetryLine, RetryQueue
from backstory.results import RecordResult

__all__ = ["LOST", "SLOW_SECONDS", "Outbox"]

LOST = "DeliveryLost"
"""The kind of fault under which deliveries are counted that are given up."""

SLOW_SECONDS = 1.0
"""Whoever fails after so long has kept an agent waiting."""

_LAST_SECONDS = 5.0
_PATIENCE_SECONDS = 10.0


class Outbox:
    """What waits of one home; safe for threads and forks: what waits in a parent is the parent's to record.

    `elapsed` is a monotonic clock in seconds. Without `background` somebody has to `flush`. Where nobody closes it,
    everything is tried once more when the interpreter ends.
    """

    def __init__(
        self,
        faults: Faults,
        limits: Limits | None = None,
        *,
        elapsed: Callable[[], float] = time.monotonic,
        background: bool = True,
    ) -> None:
        self._faults = faults
        self._limits = limits or Limits()
        self._elapsed = elapsed
        self._background = background
        self.renew()
        register(self)
        _all.add(self)

    def renew(self) -> None:
        """Begin anew, as in a forked child."""
        self._changed = threading.Condition()
        self._lines = RetryQueue(self._limits)
        self._thread: threading.Thread | None = None

    @property
    def count(self) -> int:
        """How many deliveries wait."""
        return self._lines.count

    def let_in(self, scope: Scope, timeout: float = _PATIENCE_SECONDS) -> int:
        """Record what waits to come into a memory before something is done about all of it; return how much is left."""
        with self._changed:
            waits = self._lines.count_of(scope)
        if not waits or self.flush(timeout):
            return 0
        with self._changed:
            return self._lines.count_of(scope)

    # Handing over.

    def hand_over(self, entry: OutboxEntry) -> RecordResult | None:
        """Record a delivery, behind those of its thread that wait; None where it has to wait itself, or was refused."""
        # Whoever gives something else for a thread is told so, and that needs no name for a line.
        key = (entry.scope, str(entry.thread))
        with self._entered(key) as (line, mine):
            if not mine:
                self._put(line, entry)
                return None
            try:
                if not line.parcels:
                    return self._directly(key, line, entry)
                # Behind what waits, so that nothing that comes meanwhile can overtake it.
                self._put(line, entry)
                return self._work_off(key, line, entry)
            finally:
                self._leave(line)

    @contextmanager
    def _entered(self, key: Key) -> Iterator[tuple[RetryLine, bool]]:
        """Lend a line out; with it, whether it is ours to record in."""
        with self._changed:
            line = self._lines.of(key)
            line.guests += 1
        try:
            with self._changed:
                # Whoever records there directly is waited for; where something waits already, so does this.
                self._changed.wait_for(lambda: not line.busy or line.parcels or self._lines.is_shut(key[0]))
                mine = not line.busy and not self._lines.is_shut(key[0])
                line.busy = line.busy or mine
            yield line, mine
        finally:
            with self._changed:
                line.guests -= 1
                self._lines.tidy(key)

    def _leave(self, line: RetryLine) -> None:
        with self._changed:
            line.busy = False
            self._changed.notify_all()

    def _directly(self, key: Key, line: RetryLine, entry: OutboxEntry) -> RecordResult | None:
        try:
            done, result = self._try(key, entry)
        except BaseException:
            # Whoever ends the program here cannot tell whether it was recorded.
            self._put(line, entry, first=True)
            raise
        if not done:
            # Others may have come while it was tried; they wait behind it.
            self._put(line, entry, first=True)
        return result

    def _put(self, line: RetryLine, entry: OutboxEntry, *, first: bool = False) -> None:
        """Have a delivery wait, and see that somebody tries it again; where too many wait the oldest are given up."""
        entry.pack()
        if entry.is_empty:
            return
        with self._changed:
            gone = self._lines.put(line, entry, first=first)
            self._see_to_it()
        self._lose(gone, "gave way to newer ones, since too many wait")

    def _lose(self, parcels: Iterable[OutboxEntry], why: str) -> None:
        for entry in parcels:
            said = f"a delivery {why}: what it says is not recorded, unless its host sends it again"
            self._faults.count(entry.scope, "record", LOST, said)

    # Trying.

    def _work_off(self, key: Key, line: RetryLine, until: OutboxEntry | None = None) -> RecordResult | None:
        """Record what waits in a line that is ours, in order, up to a delivery; None where that is not reached."""
        while True:
            with self._changed:
                if not line.parcels:
                    return None
                entry = line.parcels[0]
            done, result = self._try(key, entry)
            if not done:
                return None
            with self._changed:
                self._lines.take(line, entry)
            if entry is until:
                return result

    def _try(self, key: Key, entry: OutboxEntry) -> tuple[bool, RecordResult | None]:
        """Try one delivery; True where it is done with, be it recorded or given up."""
        begun = self._elapsed()
        try:
            result = entry.record(look_first=self._lines.is_shut(entry.scope))
        except (KeyboardInterrupt, SystemExit):
            raise
        except UsageError as error:
            # It would be refused for ever.
            self._faults.note(entry.scope, "record", error)
            return True, None
        except Exception as error:  # noqa: BLE001 memory's faults are not the agent's
            self._faults.note(entry.scope, "record", error)
            return self._failed(key, entry, error, self._elapsed() - begun), None
        with self._changed:
            self._lines.recovered(key)
            self._changed.notify_all()
        self._faults.recovered(entry.scope, "record", still=() if entry.is_whole else ("InputError",))
        return True, result

    def _failed(self, key: Key, entry: OutboxEntry, error: Exception, took: float) -> bool:
        """Say when it is tried again; True where it never is."""
        outage = _is_outage(error)
        if not outage:
            entry.attempts += 1
            if entry.attempts >= self._limits.attempts:
                self._lose([entry], f"was tried {entry.attempts} times")
                return True
        with self._changed:
            if isinstance(error, LockTimeoutError) or took >= SLOW_SECONDS:
                self._lines.shut(entry.scope)
            # An outage keeps all threads of a memory from being recorded.
            self._lines.failed(key, self._elapsed(), alone=not outage)
            self._changed.notify_all()
        return False

    # In the background.

    def _see_to_it(self) -> bool:
        """See that somebody tries again what waits; False where no thread may start, as when the interpreter ends."""
        if not self._background:
            return False
        self._changed.notify_all()
        if self._thread is None or not self._thread.is_alive():
            self._thread = start_thread("backstory-deliveries", self._run)
        return self._thread is not None

    def _run(self) -> None:
        while (key := self._wait()) is not None:
            self._retry(key)

    def _wait(self) -> Key | None:
        """Wait for a line that is to be tried; None once nothing waits, when the thread ends."""
        with self._changed:
            while self._lines.count:
                now = self._elapsed()
                moment, key = self._lines.next(now)
                if moment <= now and key is not None:
                    return key
                self._changed.wait(max(0.0, moment - now))
            self._thread = None
            return None

    def _retry(self, key: Key) -> None:
        with self._changed:
            line = self._lines.find(key)
            if line is None or line.busy:
                return
            line.busy = True
        try:
            self._work_off(key, line)
        except (KeyboardInterrupt, SystemExit) as error:
            # What ends the program is raised in the main thread; here somebody's code asked for it.
            self._faults.note(key[0], "record", error)
            with self._changed:
                self._lines.failed(key, self._elapsed(), alone=True)
        finally:
            self._leave(line)
            with self._changed:
                self._lines.tidy(key)

    # The end.

    def flush(self, timeout: float) -> bool:
        """Try everything that waits now, once; True when nothing waits any more, within `timeout` seconds."""
        with self._changed:
            if not self._lines.count:
                return True
            wanted = self._lines.begin_round()
            alone = not self._see_to_it()
        if alone:
            for key in wanted:
                if self._lines.is_to_do(key):
                    self._retry(key)
            return not self._lines.count
        with self._changed:
            self._changed.wait_for(lambda: not any(map(self._lines.is_to_do, wanted)), timeout)
            return not self._lines.count

    def close(self, timeout: float) -> bool:
        """Flush, and give up what is left then; what comes later may wait again. True: nothing was left."""
        if self.flush(timeout):
            return True
        with self._changed:
            left = self._lines.clear()
            self._changed.notify_all()
        self._lose(left, "still waited at the end")
        for scope in {entry.scope for entry in left}:
            self._faults.flush(scope)
        return False


def _is_outage(error: Exception) -> bool:
    """Whether it passes, however long it lasts: a store or a disk does not do its work."""
    import sqlite3

    return isinstance(error, BackstoryError | OSError | sqlite3.Error)


_all: weakref.WeakSet[Outbox] = weakref.WeakSet()


def _at_exit() -> None:
    end = time.monotonic() + _LAST_SECONDS
    for waiting in list(_all):
        waiting.close(max(0.0, end - time.monotonic()))


atexit.register(_at_exit)
