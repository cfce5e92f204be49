"""Witness worker: sends the newest heads of a home's scopes in the background, off the path of the commits.

A commit only notes its scope. One thread per home, started by the first note, waits a little, so that a burst of
commits is one line, and sends one batch for all scopes that were noted. What a destination did not take stays noted: it
is tried a few times with growing pauses, then once a minute, and at the end. Only the newest heads are sent then, since
each hash covers every commit before it. Nothing here blocks or fails a commit.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Mapping
from itertools import islice

import msgspec

from backstory.ledger.concurrency.forks import register, start_thread
from backstory.ledger.core.commit import Commit, Head
from backstory.ledger.core.errors import BackstoryError, CorruptLogError, WitnessError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import spell_moment
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.log.clock import Clock
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import Writer
from backstory.outbox.faults import Faults
from backstory.projections.integrity.witnessed import WitnessLine
from backstory.witness.destinations import Destination
from backstory.witness.sent_heads import SentHeads

__all__ = ["AGAIN_SECONDS", "DELAY_SECONDS", "HeadSender"]

_log = logging.getLogger(__name__)

DELAY_SECONDS = 0.5
"""How long commits are gathered into one batch."""
AGAIN_SECONDS = 60.0
"""How long after a batch that failed for good the next one is tried."""

_ATTEMPTS = 3
_PAUSE_SECONDS = (1.0, 8.0)
_MOST_SCOPES = 1_000
_READERS_SECONDS = 2.0
"""How long a process waits at its end for heads that other processes left."""
_FORK_PATIENCE_SECONDS = 1.0
_DOING = "witness"


class HeadSender:
    """Sends heads to a destination; safe for threads and forks. One that is never closed is told so when it is lost.

    Args:
        store: Where the streams are kept.
        destination: Where heads are sent to.
        sent: Remembers what was sent.
        faults: Where an outage is counted.
        clock: Dates the lines.
        delay: Seconds for which commits are gathered.
        again: Seconds until a batch that failed is tried again.
    """

    def __init__(
        self,
        store: EventStore,
        destination: Destination,
        sent: SentHeads,
        faults: Faults,
        clock: Clock,
        *,
        delay: float = DELAY_SECONDS,
        again: float = AGAIN_SECONDS,
    ) -> None:
        self._worker = _Worker(store, destination, sent, faults, clock, delay=delay, again=again)
        weakref.finalize(self, self._worker.end).atexit = False

    def watch(self, writer: Writer) -> None:
        """Look after a scope that was opened: a process that died may not have sent its last head."""
        self._worker.watch(writer)

    def note(self, scope: Scope, commit: Commit, before: Memory, after: Memory) -> None:  # noqa: ARG002 a listener's words
        """Note a commit; a `Listener`."""
        # Where one is noted and not sent yet, this one goes along with it.
        if self._worker.noted.get(scope) is None:
            self._worker.note(scope, commit.head)

    def flush(self, timeout: float) -> bool:
        """Send what is to be sent, now.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether the destination has the newest heads of all scopes that are open here.
        """
        return self._worker.flush(timeout)

    def close(self, timeout: float) -> bool:
        """As `flush`, and end the thread; for what other processes left it is waited 2 seconds at most."""
        done = self._worker.flush(timeout, for_others=_READERS_SECONDS)
        self._worker.end()
        return done


class _Worker:
    """What the thread works on; it knows nothing of the sender, so that one that is not held any more can go."""

    def __init__(
        self,
        store: EventStore,
        destination: Destination,
        sent: SentHeads,
        faults: Faults,
        clock: Clock,
        *,
        delay: float,
        again: float,
    ) -> None:
        self._store = store
        self._destination = destination
        self._sent = sent
        self._faults = faults
        self._clock = clock
        self._delay = delay
        self._again = again
        self._watched: weakref.WeakValueDictionary[Scope, Writer] = weakref.WeakValueDictionary()
        self.renew()
        register(self)
        _workers.add(self)

    def renew(self) -> None:
        """Begin anew, as in a forked child: what was noted in its parent is the parent's to send."""
        self._changed = threading.Condition()
        self._busy = threading.RLock()
        """Held while files are read or written, and not while a destination is waited for."""
        self._thread: threading.Thread | None = None
        self.noted: dict[Scope, Head | None] = {}
        """Scopes to look at, each with the head that a commit of this process made, if one did."""
        self._begun = 0
        """The number of the batch that was begun last."""
        self._failed = 0
        """The number of the last batch that failed."""
        self._wanted = 0
        """The batch that a flush waits for; up to it there are no delays and no further attempts."""
        self._sending = False
        self._out = False
        """Whether the last batch failed, for whatever reason."""
        self._told = False
        """Whether it was logged that the destination is out."""
        self.ending = False

    # Forks: a child has none of its parent's threads, but whatever lock one of them held.

    def pause(self) -> bool:
        """Wait until nothing is half done; False where that takes too long."""
        return self._busy.acquire(timeout=_FORK_PATIENCE_SECONDS)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._busy.release()

    # Noting.

    def watch(self, writer: Writer) -> None:
        """Look after a scope."""
        with self._changed:
            self._watched[writer.scope] = writer
        self.note(writer.scope, None)

    def note(self, scope: Scope, head: Head | None) -> None:
        """Note a scope, and see that the thread is there."""
        with self._changed:
            self._put(scope, head)
            self._see_to_it()

    def _put(self, scope: Scope, head: Head | None) -> None:
        self.noted[scope] = head or self.noted.get(scope)

    def _see_to_it(self) -> bool:
        """Wake the thread, or start it; False where none can start, as when the interpreter ends."""
        self._changed.notify_all()
        self._thread = self._thread or start_thread("backstory-witness", self._run)
        return self._thread is not None

    # The thread.

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            done = False
            try:
                done = self._deliver(batch)
            except Exception:  # noqa: BLE001 the thread outlives whatever a store does to it
                _log.exception("heads were not sent to the witness, which is safe; please report this")
            finally:
                self._settle(batch, done)

    def _next(self) -> dict[Scope, Head | None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self.noted or self.ending)
            if self.noted:
                self._changed.wait_for(self._is_hurried, self._again if self._out else self._delay)
            if not self.noted or (self.ending and self._out and not self._is_wanted()):
                self._thread = None
                return None
            return self._take()

    def _take(self) -> dict[Scope, Head | None]:
        batch = dict(islice(self.noted.items(), _MOST_SCOPES))
        for scope in batch:
            del self.noted[scope]
        self._begun += 1
        self._sending = True
        return batch

    def _is_wanted(self) -> bool:
        return self._begun < self._wanted

    def _is_hurried(self) -> bool:
        return self.ending or self._is_wanted()

    def _is_tried_once(self) -> bool:
        """Whether a flush waits for the batch that is being sent, or for the one after it."""
        return self.ending or self._begun <= self._wanted

    def _settle(self, batch: Mapping[Scope, Head | None], done: bool) -> None:
        with self._changed:
            self._sending = False
            self._out = not done
            if not done:
                self._failed = self._begun
                for scope, head in batch.items():
                    self._put(scope, self.noted.get(scope) or head)
            self._changed.notify_all()

    # Flushing.

    def flush(self, timeout: float, *, for_others: float | None = None) -> bool:
        """Send everything; `for_others` bounds the seconds where this process made none of the commits."""
        end = time.monotonic() + timeout
        with self._changed:
            for scope in list(self._watched):
                self._put(scope, None)
            if for_others is not None and not any(self.noted.values()) and not self._sending:
                end = min(end, time.monotonic() + for_others)
            while self.noted or self._sending:
                wanted = self._wanted = self._begun + 1
                if not self._see_to_it():
                    return self._inline()
                left = end - time.monotonic()
                self._changed.wait_for(lambda: self._is_idle() or self._failed >= wanted, left)  # noqa: B023
                if self._failed >= wanted or time.monotonic() >= end:
                    break
            return self._is_idle()

    def _is_idle(self) -> bool:
        return not self.noted and not self._sending

    def _inline(self) -> bool:
        batch = self._take()
        done = self._deliver(batch)
        self._settle(batch, done)
        return done

    def end(self) -> None:
        """Have the thread end once it has tried what it has, without waiting for it."""
        with self._changed:
            self.ending = True
            self._changed.notify_all()

    # Sending.

    def _deliver(self, batch: Mapping[Scope, Head | None]) -> bool:
        """Send a batch; True where nothing of it is left to be sent."""
        done = True
        heads: dict[Scope, tuple[Head, Head]] = {}
        for scope, head in batch.items():
            try:
                with self._busy:
                    found = self._newest(scope, head)
            except CorruptLogError as error:
                # Nothing of a damaged log is sent. Its users are told of the damage, and `verify` says where.
                _log.debug("the head of %s cannot be sent: %s", scope, error)
                continue
            except (BackstoryError, OSError) as error:
                # A reader of a home that cannot be written has made no commit, and need not send one.
                _log.debug("the head of %s cannot be read: %s", scope, error)
                done = done and head is None
                continue
            if found is not None:
                heads[scope] = found
        return (not heads or self._send(heads)) and done

    def _newest(self, scope: Scope, noted: Head | None) -> tuple[Head, Head] | None:
        """Return the heads of both streams, as far as they are durable; None where they were sent, or are none."""
        ledger, transcript = (self._store.head(scope.stream(kind)) for kind in (LEDGER, TRANSCRIPT))
        last = self._sent.of(scope)
        known = {noted} if last is None else {noted, last.ledger, last.transcript}
        if (last is not None and (last.ledger, last.transcript) == (ledger, transcript)) or not (
            ledger.seq or transcript.seq
        ):
            return None
        # What is being written may be cut off again if its sync fails: it must not be witnessed before.
        if ledger.seq and ledger not in known:
            ledger = self._store.settled_head(scope.stream(LEDGER))
        if transcript.seq and transcript not in known:
            transcript = self._store.settled_head(scope.stream(TRANSCRIPT))
        return ledger, transcript

    def _send(self, heads: Mapping[Scope, tuple[Head, Head]]) -> bool:
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

        at = spell_moment(self._clock.now())
        lines = b"".join(msgspec.json.encode(WitnessLine.of(scope, *pair, at)) + b"\n" for scope, pair in heads.items())
        low, high = _PAUSE_SECONDS
        retrying = Retrying(
            stop=lambda state: self._is_tried_once() or bool(stop_after_attempt(_ATTEMPTS)(state)),
            wait=wait_exponential(multiplier=low, max=high),
            retry=retry_if_exception_type(WitnessError),
            sleep=self._pause,
            reraise=True,
        )
        try:
            retrying(self._destination.append, lines)
        except Exception as error:  # noqa: BLE001 the thread outlives whatever a destination does to it
            with self._busy:
                self._tell(error, heads)
            return False
        self._told = False
        with self._busy:
            for scope, (ledger, transcript) in heads.items():
                self._sent.put(scope, ledger, transcript)
                self._faults.recovered(scope, _DOING)
        return True

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(self._is_tried_once, seconds)

    def _tell(self, error: Exception, heads: Mapping[Scope, tuple[Head, Head]]) -> None:
        """Count an outage in each scope, and log it once: a witness that is out is out for all of them."""
        if isinstance(error, WitnessError):
            kind, told = error.kind, f"{error}; the commits are safe, and their head is sent later"
        else:
            kind, told = type(error).__name__, "the commits are safe; please report this"
            _log.debug("the witness failed in a way that was not foreseen", exc_info=error)
        for scope in heads:
            self._faults.count(scope, _DOING, kind, told, log=not self._told)
            self._told = True


_workers: weakref.WeakSet[_Worker] = weakref.WeakSet()


def _at_exit() -> None:
    end = time.monotonic() + _READERS_SECONDS
    for worker in list(_workers):
        if not worker.ending:
            worker.flush(max(0.0, end - time.monotonic()))


atexit.register(_at_exit)
