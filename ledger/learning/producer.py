"""When to learn: debounce, at the layer that produces events (rows D6 and D7).

A thread is due when it has been quiet for `debounce` seconds, or `max_wait` seconds after its first pending turn that
says something; both are counted from what the transcript says, so a restart forgets nothing and loses no time. What
waits here is only a reminder: what is pending is on disk.

Where more is due than there are workers, corrections go first (rows D4 and M6).
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
from backstory.ledger.log.writer import State, Writer
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

__all__ = ["Producer"]

_log = logging.getLogger(__name__)

_AFTER_FAULT = timedelta(seconds=60)
_LOOK_AGAIN_SECONDS = 0.2
_IDLE_SECONDS = 3600.0


class _Opinion(msgspec.Struct):
    """How urgent a thread was found; None until somebody has looked.

    Whoever looks writes into the opinion that was there before, so one that was overtaken by new words is lost with it.
    """

    urgency: Urgency | None = None


_Key = tuple[Scope, str]


class Producer:
    """Looks after the threads of any number of scopes and has them learned from when they are due.

    With `workers` threads it works in the background, once `start` was called; without, `run_due` does it in the
    caller's. One thread of a conversation is never worked on twice at once, nor by two processes: each takes a lease
    on it, which dies with its holder. One that another process is at keeps no other waiting: it is looked at again a
    moment later.

    A worker outlives whatever a model or a callback raises, and tries that thread again a minute later; in a caller's
    own thread KeyboardInterrupt and SystemExit pass.

    Of several threads that are due the most urgent comes first; one that has been due for `max_wait` is as urgent as
    any, so nothing is overtaken for ever.

    What was parked because the model could not be reached is tried again by itself; see `due.retry_at`.

    A forked child has reminders of its own from then on. Where its parent had workers it starts its own, as soon as
    something is noticed, watched or flushed in it.
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
        """Whether there are to be workers."""
        self._workers: list[threading.Thread] = []
        """Of this process."""
        self._inherited = False
        """Whether all that waits here is a parent's: nothing was done in this process yet."""
        self._writers: dict[_Key, Writer] = {}
        """Of every thread that waits or is worked on; a scope with nothing due keeps no writer."""
        self._due: dict[_Key, datetime] = {}
        self._outages: dict[_Key, datetime] = {}
        """Of threads that an outage has parked, when they are tried again: what may be due that far ahead."""
        self._opinions: dict[_Key, _Opinion] = {}
        """Of threads that were due beside others, as long as nothing more is said in them."""
        self._busy: set[_Key] = set()
        self._faulty: set[_Key] = set()
        self._elsewhere: dict[_Key, float] = {}
        """Of threads that another process was found at: when to look again, by the machine's monotonic clock."""
        self._changed = threading.Condition()
        self._closing = False
        register(self)

    def renew(self) -> None:
        """Begin anew in a forked child, which has none of its parent's threads, but whatever lock one of them held.

        What waited goes on waiting. What the parent is at is the parent's; here it is nobody's until it is noticed.
        """
        self._changed = threading.Condition()
        self._workers = []
        self._inherited = True
        self._busy = set()
        self._elsewhere = {}
        self._opinions = {}
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

    def _see_to_it(self) -> None:
        """See that workers are there, also in a forked child; the lock must be held."""
        self._inherited = False
        if self._started and not self._workers and not self._closing:
            # Where no thread may start, as when the interpreter ends, it is learned from in the caller's, at a flush.
            with contextlib.suppress(RuntimeError):
                self._start_workers()
        self._changed.notify_all()

    def watch(self, writer: Writer) -> None:
        """Look after a scope: what is pending in it from before is due as if it had been recorded just then."""
        with writer.reader.state() as state:
            moments = {name: self._when(writer, state, name) for name in state.transcript.threads.unsettled()}
        with self._changed:
            for name, moment in moments.items():
                if moment is not None:
                    self._due[writer.scope, name] = moment
                    self._writers[writer.scope, name] = writer
            self._see_to_it()

    def notice(self, writer: Writer, thread: str, *, immediate: bool = False) -> None:
        """Take note that something was recorded; `immediate` is for words that are about to be lost to the model.

        What is due already, also because it was wanted at once, is not put off again.
        """
        key = (writer.scope, thread)
        while True:
            with self._changed:
                before = self._due.get(key)
            moment = self._moment(writer, thread)
            with self._changed:
                if self._due.get(key) != before:
                    # Somebody else noticed something meanwhile that was not there yet when this was looked up.
                    continue
                now = self._clock.now()
                self._due.pop(key, None)
                self._opinions.pop(key, None)
                if moment is not None:
                    self._due[key] = before if before is not None and before <= now else now if immediate else moment
                    self._writers[key] = writer
                self._see_to_it()
                return

    def _moment(self, writer: Writer, name: str) -> datetime | None:
        with writer.state(durable=False) as state:
            return self._when(writer, state, name)

    def _when(self, writer: Writer, state: State, name: str) -> datetime | None:
        """When there is something to do about a thread, as far as can be told now."""
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
        """How many updates are due and waiting."""
        now = self._clock.now()
        with self._changed:
            return sum(moment <= now for moment in self._due.values())

    def run_due(self) -> int:
        """Run every update that is due now, in this thread; returns how many were run."""
        count = 0
        elsewhere: set[_Key] = set()
        while not self._closing and (key := self._take(elsewhere)) is not None:
            self._run(key)
            count += 1
            if key in self._elsewhere:
                elsewhere.add(key)
        return count

    def flush(self, timeout: float) -> bool:
        """Have everything worth an update learned from now; True when nothing due is left within `timeout` seconds.

        What is said meanwhile has a debounce of its own. A thread that could not be worked on is left, and no time is
        spent on waiting for it; workers do wait for another process that is at one.
        """
        now = self._clock.now()
        with self._changed:
            wanted = self._busy | set(self._due)
            for key in self._due:
                self._due[key] = min(self._due[key], now)
            self._see_to_it()
        if self._closing or not self._workers:
            self.run_due()
            timeout = 0.0
        with self._changed:
            done = self._changed.wait_for(lambda: not any(map(self._under_way, wanted)), timeout)
            return done and wanted.isdisjoint(self._faulty)

    def drain(self, timeout: float) -> bool:
        """Flush without a gap between calls, for a process that is about to end."""
        with self._updater.asking.hurrying():
            return self.flush(timeout)

    def _under_way(self, key: _Key) -> bool:
        return key in self._busy or (key in self._due and self._due[key] <= self._clock.now())

    def close(self, timeout: float) -> bool:
        """Flush, then stop; what is not done after `timeout` seconds stays pending on disk. True: nothing is left.

        A forked child that has done nothing itself leaves what waits to its parent.
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
                # A model or a callback raised it: what ends the program is raised in the main thread, never here.
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
                here = time.monotonic()
                key, unjudged = self._take_locked({key for key, again in self._elsewhere.items() if again > here})
                if key is not None:
                    return key
                if not unjudged:
                    self._changed.wait(self._pause(here))
            self._judge(unjudged)

    def _pause(self, here: float) -> float:
        """Say how many seconds there is nothing to take for, unless something changes."""
        now = self._clock.now()
        pauses = [
            max((moment - now).total_seconds(), self._elsewhere.get(key, here) - here)
            for key, moment in self._due.items()
            if key not in self._busy
        ]
        return max(0.0, min([*pauses, _IDLE_SECONDS]))

    def _take(self, but: Collection[_Key]) -> _Key | None:
        while True:
            with self._changed:
                key, unjudged = self._take_locked(but)
            if key is not None or not unjudged:
                return key
            self._judge(unjudged)

    def _take_locked(self, but: Collection[_Key] = ()) -> tuple[_Key | None, dict[_Key, _Opinion]]:
        """Take the thread whose turn it is; None where none is due, or where those told with it are to be judged first.

        Nothing is spent on judging what is due alone, or what has waited so long that it goes first anyhow.
        """
        now = self._clock.now()
        debounce = timedelta(seconds=self._timing.debounce)
        for key, moment in self._due.items():
            furthest = LONGEST_PAUSE if moment == self._outages.get(key) else max(debounce, _AFTER_FAULT)
            if moment > now + furthest:
                # Nothing is put off that far, unless the clock was set back since.
                self._due[key] = now + debounce
        ready = sorted(
            (moment, str(key), key)
            for key, moment in self._due.items()
            if moment <= now and key not in self._busy and key not in but
        )
        if not ready:
            return None, {}
        earliest, _, key = ready[0]
        if len(ready) > 1 and now - earliest < timedelta(seconds=self._timing.max_wait):
            opinions = {key: self._opinions.setdefault(key, _Opinion()) for _, _, key in ready}
            unjudged = {key: opinion for key, opinion in opinions.items() if opinion.urgency is None}
            if unjudged:
                return None, unjudged
            key = min(opinions, key=lambda key: opinions[key].urgency or Urgency.CORRECTED)
        self._busy.add(key)
        del self._due[key]
        self._opinions.pop(key, None)
        return key, {}

    def _judge(self, unjudged: Mapping[_Key, _Opinion]) -> None:
        """Look how urgent threads are, without the lock: whoever records meanwhile must not wait for it."""
        for key, opinion in unjudged.items():
            opinion.urgency = self._look(key)

    def _look(self, key: _Key) -> Urgency:
        writer = self._writers.get(key)
        if writer is None:
            return Urgency.PLAIN
        try:
            with writer.state(durable=False) as state:
                thread = state.transcript.threads[key[1]]
                runs = state.coverage.pending(thread)
                turns = [turn for run in runs for turn in thread.standing(run.first, run.last)]
        except Exception:  # noqa: BLE001 whatever is wrong with it, its own update meets it again and says so
            return Urgency.PLAIN
        return Urgency.of(self._signals.seen_in(turns))

    def _run(self, key: _Key) -> None:
        scope, thread = key
        writer = self._writers[key]
        again: datetime | None = None
        faulty, elsewhere = True, False
        try:
            with writer.store.lease(writer.ledger, thread) as mine:
                if mine:
                    self._learn(writer, thread)
                else:
                    elsewhere = True
            again, faulty = self._moment(writer, thread), False
        except BackstoryError as error:
            _log.warning("%s, thread %s: not learned from yet, will be tried again: %s", scope, thread, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 a worker outlives whatever one thread does to it
            _log.exception("%s, thread %s: an update ended in a fault; its turns stay pending", scope, thread)
        finally:
            self._release(key, again, faulty=faulty, elsewhere=elsewhere)

    def _learn(self, writer: Writer, thread: str) -> None:
        with writer.state() as state:
            known = state.transcript.threads[thread]
            jobs = [Job(thread, answered(known, run)) for run in due_runs(state.coverage, known)]
            missed = out_of_reach(state.coverage, known, self._clock.now())
            jobs += [Job(thread, parked.turns, attempts=parked.attempts) for parked in missed]
        for job in sorted(jobs, key=lambda job: job.turns.first):
            self._updater.run(writer, job, self._model)
        if self._summarizer is not None:
            self._summarizer.run(writer, thread, self._model)
        if self._retention is not None:
            self._retention.tidy(writer)

    def _release(self, key: _Key, again: datetime | None, *, faulty: bool, elsewhere: bool = False) -> None:
        """Let go of a thread that was worked on; `again` is when it is due next, after a fault some time from now."""
        with self._changed:
            self._busy.discard(key)
            (self._faulty.add if faulty else self._faulty.discard)(key)
            self._elsewhere.pop(key, None)
            if faulty:
                again = self._clock.now() + _AFTER_FAULT
            elif elsewhere and again is not None:
                # It was due, also where only somebody's wish made it so, and is until it has been learned from.
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
        """Keep the workers off a thread, once none of them is at it."""
        key = (writer.scope, thread)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._busy)
            self._busy.add(key)
            self._due.pop(key, None)
            self._opinions.pop(key, None)
            self._writers[key] = writer
        try:
            yield
        finally:
            # A thread that is never let go of would never be learned from again.
            again: datetime | None = None
            faulty = True
            try:
                again, faulty = self._moment(writer, thread), False
            finally:
                self._release(key, again, faulty=faulty)
