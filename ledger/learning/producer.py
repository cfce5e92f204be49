"""Producer: debounces the turns of each thread and runs its updates when they are due.

A thread is due when no turn was recorded in it for `debounce` seconds, or `max_wait` seconds after its first pending
turn that is not an acknowledgement. A user's words without an answer are due after `answer_wait` seconds, or when a
flush asks for them. All are counted from the times in the transcript, so a restart forgets nothing and loses no time.
The queue in memory holds only reminders: the pending turns are on disk.

Where more threads are due than there are workers, corrections go first.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.events import UpdateFailed
from backstory.ledger.core.sanitize import clip
from backstory.ledger.core.scope import Scope
from backstory.ledger.extraction.models.model import Model
from backstory.ledger.learning.flushed import Flushed
from backstory.ledger.learning.retention import Retention
from backstory.ledger.learning.summarizer import Summarizer
from backstory.ledger.learning.updater import Job, Outcome, Updater
from backstory.ledger.log.reader import State
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.due import (
    LONGEST_PAUSE,
    Due,
    Timing,
    Urgency,
    dues_of,
    out_of_reach,
    ready_runs,
    retry_at,
    telling_runs,
)

if TYPE_CHECKING:
    from backstory.ledger.extraction.signals import Signals

_log = logging.getLogger(__name__)

_AFTER_FAULT = timedelta(seconds=60)
_LOOK_AGAIN_SECONDS = 0.2
_IDLE_SECONDS = 3600.0
_DETAIL_CHARS = 300


class _Judgement(msgspec.Struct):
    """The urgency of a thread; None until it was judged.

    New turns replace the object, so a judgement in progress, which writes into the old object, is discarded.
    """

    urgency: Urgency | None = None


class _Pause(msgspec.Struct, frozen=True):
    """Why a conversation may be due further ahead than the debounce: an outage, or the wait for an answer."""

    until: datetime
    for_answer: bool


_Key = tuple[Scope, str]


class _Flush(msgspec.Struct):
    """A flush in progress: the conversations that it waits for, and what went wrong in them.

    `faulty` are those in which nothing was settled.
    """

    wanted: set[_Key]
    troubles: dict[_Key, str] = {}
    faulty: set[_Key] = set()


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
        self._pauses: dict[_Key, _Pause] = {}
        """The conversations parked by an outage, or waiting for an answer; only these may be due far ahead."""
        self._requested: set[_Key] = set()
        """The conversations that a flush asked for: what may still be answered is learned from there, too."""
        self._flushes: list[_Flush] = []
        self._judgements: dict[_Key, _Judgement] = {}
        """The urgency of conversations that were due together with others, until new turns arrive."""
        self._busy: set[_Key] = set()
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
        self._requested = set()
        self._flushes = []
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

    def watch(self, writer: Writer) -> bool:
        """Watch a scope: turns that are already pending are due at the times that the transcript gives.

        A conversation that is already due is not put off.

        Returns:
            Whether any are pending.
        """
        with writer.reader.state() as state:
            moments = {name: self._when(writer, state, name) for name in state.transcript.threads.unsettled()}
        pending = {(writer.scope, name): moment for name, moment in moments.items() if moment is not None}
        with self._changed:
            now = self._clock.now()
            for key, moment in pending.items():
                before = self._due.get(key)
                self._due[key] = before if before is not None and before <= now else moment
                self._writers[key] = writer
            self._ensure_workers()
        return bool(pending)

    def notice(self, writer: Writer, thread: str, *, immediate: bool = False) -> None:
        """Note that turns were recorded; a conversation that is already due is not put off again.

        Args:
            writer: the scope.
            thread: the name of the thread.
            immediate: make the conversation due now, because its turns are about to leave the model's context. Words
                that may still be answered stay in it, and wait for their answer as before.
        """
        key = (writer.scope, thread)
        while True:
            with self._changed:
                before = self._due.get(key)
            moment = self._moment(writer, thread, immediate=immediate)
            with self._changed:
                if self._due.get(key) != before:
                    # Another call of `notice` came in between, so the moment may be out of date.
                    continue
                now = self._clock.now()
                self._due.pop(key, None)
                self._judgements.pop(key, None)
                if moment is not None:
                    self._due[key] = before if before is not None and before <= now else moment
                    self._writers[key] = writer
                self._ensure_workers()
                return

    def _moment(self, writer: Writer, name: str, *, immediate: bool = False) -> datetime | None:
        with writer.state(durable=False) as state:
            return self._when(writer, state, name, immediate=immediate)

    def _when(self, writer: Writer, state: State, name: str, *, immediate: bool = False) -> datetime | None:
        """Return when a thread is due, as known now."""
        thread = state.transcript.threads.get(name)
        if thread is None:
            return None
        key, now = (writer.scope, name), self._clock.now()
        runs = state.coverage.pending(thread)
        dues = [due.no_later(self._timing, now) for due in dues_of(thread, runs, self._timing)]
        if immediate and not all(due.for_answer for due in dues):
            dues.append(Due(now))
        due, again = min(dues, default=None), retry_at(state.coverage, thread, now)
        if again is not None and (due is None or again < due.at):
            self._pauses[key] = _Pause(again, for_answer=False)
            return again
        if due is not None and due.for_answer:
            self._pauses[key] = _Pause(due.at, for_answer=True)
        else:
            self._pauses.pop(key, None)
        return None if due is None else due.at

    def depth(self) -> int:
        """Return the number of conversations that are due and waiting."""
        now = self._clock.now()
        with self._changed:
            return sum(moment <= now for moment in self._due.values())

    def load(self) -> tuple[int, int, int]:
        """Return how many conversations wait and are due, how many are due later, and how many are worked on."""
        now = self._clock.now()
        with self._changed:
            waiting = [moment <= now for key, moment in self._due.items() if key not in self._busy]
            return sum(waiting), len(waiting) - sum(waiting), len(self._busy)

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

    def flush(self, timeout: float, *, unanswered: bool = True) -> Flushed:
        """Run the updates of everything pending now.

        Turns recorded meanwhile have a debounce of their own. A conversation that failed is not waited for. Workers do
        wait for a conversation leased by another process.

        Args:
            timeout: how many seconds to wait for the workers.
            unanswered: whether to learn also from words that may still be answered.

        Returns:
            Whether every update has ended, without a failure; otherwise what went wrong.
        """
        now = self._clock.now()
        with self._changed:
            waiting = {
                key for key, moment in self._due.items() if unanswered or moment <= now or not self._for_answer(key)
            }
            flush = _Flush(self._busy | waiting)
            for key in waiting:
                self._due[key] = min(self._due[key], now)
            if unanswered:
                self._requested |= flush.wanted
            self._flushes.append(flush)
            self._ensure_workers()
        try:
            if self._closing or not self._workers:
                self.run_due()
                timeout = 0.0
            with self._changed:
                self._changed.wait_for(lambda: not any(map(self._under_way, flush.wanted)), timeout)
                return self._flushed(flush)
        finally:
            with self._changed:
                self._flushes.remove(flush)

    def _for_answer(self, key: _Key) -> bool:
        """Whether a conversation is reminded of only because its last words wait for an answer."""
        pause = self._pauses.get(key)
        return pause is not None and pause.for_answer and pause.until == self._due.get(key)

    def _flushed(self, flush: _Flush) -> Flushed:
        left = [key for key in flush.wanted if self._under_way(key)]
        elsewhere = [key for key in left if key in self._elsewhere]
        ours = [key for key in left if key not in self._elsewhere]
        why = "the home was closed" if self._closing else "the time was over"
        return Flushed.unless(
            None if not ours else f"{why} before {_named(ours)} was learned from: the turns stay pending",
            None if not elsewhere else f"another process works on {_named(elsewhere)}: flush again later",
            *flush.troubles.values(),
            unfinished=bool(left or flush.faulty),
        )

    def drain(self, timeout: float, *, unanswered: bool = False) -> Flushed:
        """Flush without a gap between calls, for a process that is about to end.

        Words that may still be answered stay pending on disk, unless asked for: the next process counts on from when
        they were recorded.
        """
        with self._updater.model_caller.hurrying():
            return self.flush(timeout, unanswered=unanswered)

    def _under_way(self, key: _Key) -> bool:
        return key in self._busy or (key in self._due and self._due[key] <= self._clock.now())

    def close(self, timeout: float) -> bool:
        """Flush for at most `timeout` seconds, then stop; unfinished turns stay pending on disk.

        A forked child that has done nothing itself leaves the reminders to its parent.

        Returns:
            Whether nothing is left.
        """
        done = self._inherited or bool(self.drain(timeout))
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
            if moment > now + self._furthest(key, moment):
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

    def _furthest(self, key: _Key, moment: datetime) -> timedelta:
        """Return how far ahead a conversation can be due while the clock goes on."""
        longest = max(timedelta(seconds=self._timing.debounce), _AFTER_FAULT)
        pause = self._pauses.get(key)
        if pause is None or pause.until != moment:
            return longest
        return max(longest, timedelta(seconds=self._timing.answer_wait)) if pause.for_answer else LONGEST_PAUSE

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
        trouble: str | None = "an update ended in a fault; see the log"
        faulty, elsewhere, requested = True, False, False
        try:
            # A lease would make a folder for a memory that was removed.
            if self._knows(writer, thread):
                with writer.store.lease(writer.ledger, thread) as leased:
                    if leased:
                        requested = self._take_request(key)
                        trouble = _failure(self._learn(writer, thread, unanswered=requested))
                    else:
                        elsewhere, trouble = True, None
            else:
                trouble = None
            again, faulty = self._moment(writer, thread), False
        except BackstoryError as error:
            trouble = f"not learned from yet, will be tried again: {error}"
            _log.warning("%s, thread %s: %s", scope, thread, trouble)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 a worker survives a failed update
            trouble = "an update ended in a fault; its turns stay pending"
            _log.exception("%s, thread %s: %s", scope, thread, trouble)
        finally:
            if faulty and requested:
                self._requested.add(key)
            if trouble is not None:
                self._report(key, trouble, faulty=faulty)
            self._release(key, again, faulty=faulty, elsewhere=elsewhere)

    def _take_request(self, key: _Key) -> bool:
        with self._changed:
            requested = key in self._requested
            self._requested.discard(key)
            return requested

    def _report(self, key: _Key, trouble: str, *, faulty: bool) -> None:
        """Report what went wrong in a conversation to the flushes that wait for it."""
        with self._changed:
            for flush in self._flushes:
                if key in flush.wanted:
                    flush.troubles[key] = f"{key[0]}, thread {key[1]}: {trouble}"
                    (flush.faulty.add if faulty else flush.faulty.discard)(key)

    @staticmethod
    def _knows(writer: Writer, thread: str) -> bool:
        with writer.state(durable=False) as state:
            return thread in state.transcript.threads

    def _learn(self, writer: Writer, thread: str, *, unanswered: bool) -> list[Outcome]:
        now = self._clock.now()
        with writer.state() as state:
            known = state.transcript.threads.get(thread)
            if known is None:
                return []
            if unanswered:
                runs = telling_runs(state.coverage, known)
            else:
                runs = ready_runs(state.coverage, known, self._timing, now)
            jobs = [Job(thread, run, unanswered=unanswered) for run in runs]
            retries = out_of_reach(state.coverage, known, now)
            jobs += [Job(thread, parked.turns, attempts=parked.attempts) for parked in retries]
        outcomes: list[Outcome] = []
        for job in sorted(jobs, key=lambda job: job.turns.first):
            outcomes += self._updater.run(writer, job, self._model)
        if self._summarizer is not None:
            self._summarizer.run(writer, thread, self._model)
        if self._retention is not None:
            self._retention.apply(writer)
        return outcomes

    def _release(self, key: _Key, again: datetime | None, *, faulty: bool, elsewhere: bool = False) -> None:
        """Release a conversation and queue it again for `again`; after a fault it is due a minute from now."""
        with self._changed:
            self._busy.discard(key)
            self._elsewhere.pop(key, None)
            if faulty:
                again = self._clock.now() + _AFTER_FAULT
            elif (elsewhere or key in self._requested) and again is not None:
                # It was due, perhaps only by a request, and stays due until it has been learned from.
                again = min(again, self._clock.now())
            if elsewhere:
                self._elsewhere[key] = time.monotonic() + _LOOK_AGAIN_SECONDS
            if again is not None:
                self._due[key] = min(again, self._due.get(key, again))
            if key not in self._due:
                self._pauses.pop(key, None)
                self._writers.pop(key, None)
                self._elsewhere.pop(key, None)
                self._requested.discard(key)
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


def _named(keys: Collection[_Key]) -> str:
    scope, thread = min(keys, key=str)
    more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
    return f"thread {thread} of {scope}{more}"


def _failure(outcomes: Iterable[Outcome]) -> str | None:
    """Describe the last failed update; None where none failed."""
    failures = [
        event
        for outcome in outcomes
        if outcome.failed and outcome.commit is not None
        for event in outcome.commit.events
        if isinstance(event, UpdateFailed)
    ]
    if not failures:
        return None
    reason, detail = failures[-1].reason, clip(failures[-1].detail, _DETAIL_CHARS)
    return f"an update failed and its turns are parked, see `status` and `retry` ({reason}: {detail})"
