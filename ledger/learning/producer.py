"""Producer: debounces the turns of each thread and runs its updates when they are due.

A thread is due when no turn was recorded in it for `debounce` seconds, or `max_wait` seconds after its first pending
turn that is not an acknowledgement. Both are counted from the times in the transcript, so a restart forgets nothing and
loses no time. The queue in memory holds only reminders: the pending turns are on disk.

Where more threads are due than there are workers, corrections go first.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.model import Model
from backstory.ledger.learning.retention import Retention
from backstory.ledger.learning.summarizer import Summarizer
from backstory.ledger.learning.updater import Job, Updater
from backstory.ledger.log.clock import Clock, SystemClock
from backstory.ledger.log.reader import State
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.due import (
    LONGEST_PAUSE,
    Timing,
    Urgency,
    answered,
    due_at,
    due_runs,
    out_of_reach,
    retry_at,
)

if TYPE_CHECKING:
    from backstory.ledger.extraction.signals import Signals

_log = logging.getLogger(__name__)

_AFTER_FAULT = timedelta(seconds=60)
_LOOK_AGAIN_SECONDS = 0.2
_IDLE_SECONDS = 3600.0


class _Judgement(msgspec.Struct):
    """The urgency of a thread; None until it was judged.

    New turns replace the object, so a judgement in progress, which writes into the old object, is discarded.
    """

    urgency: Urgency | None = None


_Key = tuple[Scope, str]


class Producer:
    """Watches the threads of any number of scopes, and runs their updates when they are due.

    After `start`, `workers` background threads run the updates; without workers, `run_due` runs them in the caller's
    thread. A conversation is never worked on twice at once, in this process or another: each update takes a lease,
    which ends with its holder. A conversation leased by another process is tried again a moment later, and delays no
    other.

    A worker survives any exception of a model or a callback, and retries the conversation a minute later. In a caller's
    own thread KeyboardInterrupt and SystemExit are passed on.

    Of several due conversations the most urgent comes first. One that has been due for `max_wait` comes before all, so
    none is overtaken for ever.

    Turns that were parked because the model could not be reached are retried without a request; see `due.retry_at`.

    A forked child keeps its own reminders. If its parent had workers, the child starts its own at its first `notice`,
    `watch` or `flush`.
    """

    def __init__(
        self,
        updater: Updater,
        model: Model,
        *,
        timing: Timing | None = None,
        clock: Clock | None = None,
        workers: int = 2,
        retention: Retention | None = None,
        summarizer: Summarizer | None = None,
        signals: Signals | None = None,
    ) -> None:
        if signals is None:
            from backstory.ledger.extraction.signals import load_signals

            signals = load_signals()
        self._updater = updater
        self._model = model
        self._timing = timing or Timing()
        self._clock = clock or SystemClock()
        self._size = workers
        self._retention = retention
        self._summarizer = summarizer
        self._signals = signals
        self._started = False
        """Whether `start` was called."""
        self._workers: list[threading.Thread] = []
        """The worker threads of this process."""
        self._inherited = False
        """Whether all reminders come from the parent process."""
        self._writers: dict[_Key, Writer] = {}
        """The writers of all conversations that wait or are worked on."""
        self._due: dict[_Key, datetime] = {}
        self._outages: dict[_Key, datetime] = {}
        """When to retry conversations parked by an outage; only these may be due far ahead."""
        self._judgements: dict[_Key, _Judgement] = {}
        """The urgency of conversations that were due together with others, until new turns arrive."""
        self._busy: set[_Key] = set()
        self._faulty: set[_Key] = set()
        self._elsewhere: dict[_Key, float] = {}
        """When to retry conversations leased by another process, by the machine's monotonic clock."""
        self._changed = threading.Condition()
        self._closing = False
        register(self)

    def renew(self) -> None:
        """Begin anew in a forked child, which has none of its parent's threads, but whatever lock one of them held.

        Conversations that waited still wait. One that the parent works on is the parent's, until it is noticed here.
        """
        self._changed = threading.Condition()
        self._workers = []
        self._inherited = True
        self._busy = set()
        self._elsewhere = {}
        self._judgements = {}
        # A thread of the parent may have been in the middle of noting one of them.
        self._due = {key: moment for key, moment in self._due.items() if key in self._writers}
        self._writers = {key: self._writers[key] for key in self._due}

    def start(self) -> None:
        """Start the background workers."""
        self._started = True
        self._start_workers()

    def _start_workers(self) -> None:
        for number in range(self._size):
            worker = threading.Thread(target=self._work, name=f"backstory-{number}", daemon=True)
            worker.start()
            self._workers.append(worker)

    def _ensure_workers(self) -> None:
        """Start missing workers, also in a forked child; the lock must be held."""
        self._inherited = False
        if self._started and not self._workers and not self._closing:
            # No thread can start while the interpreter shuts down; `flush` then works in the caller's thread.
            with contextlib.suppress(RuntimeError):
                self._start_workers()
        self._changed.notify_all()

    def watch(self, writer: Writer) -> None:
        """Watch a scope: turns that are already pending are due at the times that the transcript gives."""
        with writer.reader.state() as state:
            moments = {name: self._when(writer, state, name) for name in state.transcript.threads.unsettled()}
        with self._changed:
            for name, moment in moments.items():
                if moment is not None:
                    self._due[writer.scope, name] = moment
                    self._writers[writer.scope, name] = writer
            self._ensure_workers()

    def notice(self, writer: Writer, thread: str, *, immediate: bool = False) -> None:
        """Note that turns were recorded; a conversation that is already due is not put off again.

        Args:
            writer: the scope.
            thread: the name of the thread.
            immediate: make the conversation due now, because its turns are about to leave the model's context.
        """
        key = (writer.scope, thread)
        while True:
            with self._changed:
                before = self._due.get(key)
            moment = self._moment(writer, thread)
            with self._changed:
                if self._due.get(key) != before:
                    # Another call of `notice` came in between, so the moment may be out of date.
                    continue
                now = self._clock.now()
                self._due.pop(key, None)
                self._judgements.pop(key, None)
                if moment is not None:
                    self._due[key] = before if before is not None and before <= now else now if immediate else moment
                    self._writers[key] = writer
                self._ensure_workers()
                return

    def _moment(self, writer: Writer, name: str) -> datetime | None:
        with writer.state(durable=False) as state:
            return self._when(writer, state, name)

    def _when(self, writer: Writer, state: State, name: str) -> datetime | None:
        """Return when a thread is due, as known now."""
        thread = state.transcript.threads.get(name)
        if thread is None:
            return None
        now = self._clock.now()
        due, again = due_at(state.coverage, thread, self._timing, now), retry_at(state.coverage, thread, now)
        if again is None:
            self._outages.pop((writer.scope, name), None)
            return due
        self._outages[writer.scope, name] = again
        return again if due is None else min(due, again)

    def depth(self) -> int:
        """Return the number of conversations that are due and waiting."""
        now = self._clock.now()
        with self._changed:
            return sum(moment <= now for moment in self._due.values())

    def run_due(self) -> int:
        """Run every update that is due now, in this thread, and return their number."""
        count = 0
        elsewhere: set[_Key] = set()
        while not self._closing and (key := self._take(elsewhere)) is not None:
            self._run(key)
            count += 1
            if key in self._elsewhere:
                elsewhere.add(key)
        return count

    def flush(self, timeout: float) -> bool:
        """Run the updates of everything pending now.

        Turns recorded meanwhile have a debounce of their own. A conversation that failed is not waited for. Workers do
        wait for a conversation leased by another process.

        Args:
            timeout: how many seconds to wait for the workers.

        Returns:
            Whether every update has ended, without a failure.
        """
        now = self._clock.now()
        with self._changed:
            wanted = self._busy | set(self._due)
            for key in self._due:
                self._due[key] = min(self._due[key], now)
            self._ensure_workers()
        if self._closing or not self._workers:
            self.run_due()
            timeout = 0.0
        with self._changed:
            done = self._changed.wait_for(lambda: not any(map(self._under_way, wanted)), timeout)
            return done and wanted.isdisjoint(self._faulty)

    def drain(self, timeout: float) -> bool:
        """Flush without a gap between calls, for a process that is about to end."""
        with self._updater.model_caller.hurrying():
            return self.flush(timeout)

    def _under_way(self, key: _Key) -> bool:
        return key in self._busy or (key in self._due and self._due[key] <= self._clock.now())

    def close(self, timeout: float) -> bool:
        """Flush for at most `timeout` seconds, then stop; unfinished turns stay pending on disk.

        A forked child that has done nothing itself leaves the reminders to its parent.

        Returns:
            Whether nothing is left.
        """
        done = self._inherited or self.drain(timeout)
        self._updater.stop()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if done:
            for worker in self._workers:
                worker.join(timeout)
        return done

    def _work(self) -> None:
        while (key := self._wait()) is not None:
            try:
                self._run(key)
            except (KeyboardInterrupt, SystemExit):
                # A model or a callback raised it: a real signal interrupts the main thread only.
                _log.exception(
                    "%s, thread %s: an update asked to end the program, which no worker does; what is not learned from "
                    "stays pending and will be tried again",
                    *key,
                )

    def _wait(self) -> _Key | None:
        while True:
            with self._changed:
                if self._closing:
                    return None
                now = time.monotonic()
                key, unjudged = self._take_locked({key for key, again in self._elsewhere.items() if again > now})
                if key is not None:
                    return key
                if not unjudged:
                    self._changed.wait(self._pause(now))
            self._judge(unjudged)

    def _pause(self, monotonic: float) -> float:
        """Return how many seconds to wait for the next due conversation."""
        now = self._clock.now()
        pauses = [
            max((moment - now).total_seconds(), self._elsewhere.get(key, monotonic) - monotonic)
            for key, moment in self._due.items()
            if key not in self._busy
        ]
        return max(0.0, min([*pauses, _IDLE_SECONDS]))

    def _take(self, excluded: Collection[_Key]) -> _Key | None:
        while True:
            with self._changed:
                key, unjudged = self._take_locked(excluded)
            if key is not None or not unjudged:
                return key
            self._judge(unjudged)

    def _take_locked(self, excluded: Collection[_Key]) -> tuple[_Key | None, dict[_Key, _Judgement]]:
        """Take the next conversation; the lock must be held.

        A conversation that is due alone, or has been due for `max_wait`, is not judged.

        Returns:
            The conversation, or None where none is due, or where the judgements returned with it must be made first.
        """
        now = self._clock.now()
        debounce = timedelta(seconds=self._timing.debounce)
        for key, moment in self._due.items():
            furthest = LONGEST_PAUSE if moment == self._outages.get(key) else max(debounce, _AFTER_FAULT)
            if moment > now + furthest:
                # A moment so far ahead means that the clock was set back.
                self._due[key] = now + debounce
        ready = sorted(
            (moment, str(key), key)
            for key, moment in self._due.items()
            if moment <= now and key not in self._busy and key not in excluded
        )
        if not ready:
            return None, {}
        earliest, _, key = ready[0]
        if len(ready) > 1 and now - earliest < timedelta(seconds=self._timing.max_wait):
            judgements = {key: self._judgements.setdefault(key, _Judgement()) for _, _, key in ready}
            unjudged = {key: judgement for key, judgement in judgements.items() if judgement.urgency is None}
            if unjudged:
                return None, unjudged
            key = min(judgements, key=lambda key: judgements[key].urgency or Urgency.CORRECTED)
        self._busy.add(key)
        del self._due[key]
        self._judgements.pop(key, None)
        return key, {}

    def _judge(self, unjudged: Mapping[_Key, _Judgement]) -> None:
        """Judge the urgency of conversations without the lock, so that recording does not wait for it."""
        for key, judgement in unjudged.items():
            judgement.urgency = self._urgency(key)

    def _urgency(self, key: _Key) -> Urgency:
        writer = self._writers.get(key)
        if writer is None:
            return Urgency.PLAIN
        try:
            with writer.state(durable=False) as state:
                thread = state.transcript.threads[key[1]]
                runs = state.coverage.pending(thread)
                turns = [turn for run in runs for turn in thread.standing(run.first, run.last)]
        except Exception:  # noqa: BLE001 the update meets the same error and reports it
            return Urgency.PLAIN
        return Urgency.of(self._signals.seen_in(turns))

    def _run(self, key: _Key) -> None:
        scope, thread = key
        writer = self._writers[key]
        again: datetime | None = None
        faulty, elsewhere = True, False
        try:
            # A lease would make a folder for a memory that was removed.
            if self._knows(writer, thread):
                with writer.store.lease(writer.ledger, thread) as leased:
                    if leased:
                        self._learn(writer, thread)
                    else:
                        elsewhere = True
            again, faulty = self._moment(writer, thread), False
        except BackstoryError as error:
            _log.warning("%s, thread %s: not learned from yet, will be tried again: %s", scope, thread, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 a worker survives a failed update
            _log.exception("%s, thread %s: an update ended in a fault; its turns stay pending", scope, thread)
        finally:
            self._release(key, again, faulty=faulty, elsewhere=elsewhere)

    @staticmethod
    def _knows(writer: Writer, thread: str) -> bool:
        with writer.state(durable=False) as state:
            return thread in state.transcript.threads

    def _learn(self, writer: Writer, thread: str) -> None:
        with writer.state() as state:
            known = state.transcript.threads.get(thread)
            if known is None:
                return
            jobs = [Job(thread, answered(known, run)) for run in due_runs(state.coverage, known)]
            retries = out_of_reach(state.coverage, known, self._clock.now())
            jobs += [Job(thread, parked.turns, attempts=parked.attempts) for parked in retries]
        for job in sorted(jobs, key=lambda job: job.turns.first):
            self._updater.run(writer, job, self._model)
        if self._summarizer is not None:
            self._summarizer.run(writer, thread, self._model)
        if self._retention is not None:
            self._retention.apply(writer)

    def _release(self, key: _Key, again: datetime | None, *, faulty: bool, elsewhere: bool = False) -> None:
        """Release a conversation and queue it again for `again`; after a fault it is due a minute from now."""
        with self._changed:
            self._busy.discard(key)
            (self._faulty.add if faulty else self._faulty.discard)(key)
            self._elsewhere.pop(key, None)
            if faulty:
                again = self._clock.now() + _AFTER_FAULT
            elif elsewhere and again is not None:
                # It was due, perhaps only by a request, and stays due until it has been learned from.
                again = min(again, self._clock.now())
            if elsewhere:
                self._elsewhere[key] = time.monotonic() + _LOOK_AGAIN_SECONDS
            if again is not None:
                self._due[key] = min(again, self._due.get(key, again))
            if key not in self._due:
                self._outages.pop(key, None)
                self._writers.pop(key, None)
                self._elsewhere.pop(key, None)
            self._changed.notify_all()

    @contextlib.contextmanager
    def claim(self, writer: Writer, thread: str) -> Iterator[None]:
        """Wait until no worker is busy with a conversation, and keep the workers off it inside the context."""
        key = (writer.scope, thread)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._busy)
            self._busy.add(key)
            self._due.pop(key, None)
            self._judgements.pop(key, None)
            self._writers[key] = writer
        try:
            yield
        finally:
            # A conversation that is not released would never be learned from again.
            again: datetime | None = None
            faulty = True
            try:
                again, faulty = self._moment(writer, thread), False
            finally:
                self._release(key, again, faulty=faulty)
