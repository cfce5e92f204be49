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
import time
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.concurrency.jobs import Jobs
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.extraction.models.model import Model
from backstory.ledger.learning.flushed import Conversation, Flush, Flushed
from backstory.ledger.learning.retention import Retention
from backstory.ledger.learning.summarizer import Summarizer
from backstory.ledger.learning.thread_learner import Pause, ThreadLearner, knows
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.reader import State
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.due import (
    LONGEST_PAUSE,
    Timing,
    Urgency,
)

if TYPE_CHECKING:
    from backstory.ledger.extraction.signals import Signals

_log = logging.getLogger(__name__)

_AFTER_FAULT = timedelta(seconds=60)
_LOOK_AGAIN_SECONDS = 0.2


class _Judgement(msgspec.Struct):
    """The urgency of a thread; None until it was judged.

    New turns replace the object, so a judgement in progress, which writes into the old object, is discarded.
    """

    urgency: Urgency | None = None


_Unjudged = dict[Conversation, _Judgement]


class Producer(Jobs[Conversation | _Unjudged]):
    """Watches the threads of any number of scopes, and runs their updates when they are due.

    After `start`, `workers` background threads run the updates; without workers, `run_due` runs them in the caller's
    thread. A conversation is never worked on twice at once, in this process or another: each update takes a lease,
    which ends with its holder. A conversation leased by another process is tried again a moment later, and delays no
    other.

    After any exception of a model or a callback the conversation is retried a minute later. In a caller's own thread
    KeyboardInterrupt and SystemExit are passed on.

    Of several due conversations the most urgent comes first. One that has been due for `max_wait` comes before all, so
    none is overtaken for ever.

    Turns that were parked because the model could not be reached are retried without a request; see `due.retry_at`.

    A forked child keeps its own reminders. If its parent had workers, the child starts its own at its first `notice`,
    `watch` or `flush`.
    """

    _THREAD = "backstory-learning"

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
        self._timing = timing or Timing()
        self._clock = clock or SystemClock()
        self._size = workers
        self._learner = ThreadLearner(updater, model, signals, self._timing, self._clock, summarizer, retention)
        self._writers: dict[Conversation, Writer] = {}
        """The writers of all conversations that wait or are worked on."""
        self._due: dict[Conversation, datetime] = {}
        self._pauses: dict[Conversation, Pause] = {}
        """The conversations parked by an outage, or waiting for an answer; only these may be due far ahead."""
        super().__init__(workers=0)
        self._inherited = False
        """Whether all reminders come from the parent process."""

    def renew(self) -> None:
        """Begin anew in a forked child, which has none of its parent's threads, but whatever lock one of them held.

        Conversations that waited still wait. One that the parent works on is the parent's, until it is noticed here.
        """
        super().renew()
        self._inherited = True
        self._requested: set[Conversation] = set()
        """The conversations that a flush asked for: what may still be answered is learned from there, too."""
        self._flushes: list[Flush] = []
        self._judgements: _Unjudged = {}
        """The urgency of conversations that were due together with others, until new turns arrive."""
        self._taken: set[Conversation] = set()
        """The conversations that are worked on, or claimed."""
        self._elsewhere: dict[Conversation, float] = {}
        """When to retry conversations leased by another process, by the machine's monotonic clock."""
        # A thread of the parent may have been in the middle of noting one of them.
        self._due = {key: moment for key, moment in self._due.items() if key in self._writers}
        self._writers = {key: self._writers[key] for key in self._due}

    def start(self) -> None:
        """Have background workers run the updates; the first reminder starts them."""
        with self._changed:
            self._workers = self._size
            if self._due:
                self._wake()

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
            self._inherited = False
            self._wake()
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
                self._inherited = False
                self._wake()
                return

    def _moment(self, writer: Writer, name: str, *, immediate: bool = False) -> datetime | None:
        with writer.state(durable=False) as state:
            return self._when(writer, state, name, immediate=immediate)

    def _when(self, writer: Writer, state: State, name: str, *, immediate: bool = False) -> datetime | None:
        """Return when a thread is due, as known now."""
        key = (writer.scope, name)
        moment, pause = self._learner.due(state, name, immediate=immediate)
        if pause is None:
            self._pauses.pop(key, None)
        else:
            self._pauses[key] = pause
        return moment

    def depth(self) -> int:
        """Return the number of conversations that are due and waiting."""
        now = self._clock.now()
        with self._changed:
            return sum(moment <= now for moment in self._due.values())

    def load(self) -> tuple[int, int, int]:
        """Return how many conversations wait and are due, how many are due later, and how many are worked on."""
        now = self._clock.now()
        with self._changed:
            waiting = [moment <= now for key, moment in self._due.items() if key not in self._taken]
            return sum(waiting), len(waiting) - sum(waiting), len(self._taken)

    def run_due(self) -> int:
        """Run every update that is due now, in this thread, and return their number."""
        count = 0
        elsewhere: set[Conversation] = set()
        while not self.ending and (key := self._take(elsewhere)) is not None:
            self._learn(key)
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
            flush = Flush(self._taken | waiting)
            for key in waiting:
                self._due[key] = min(self._due[key], now)
            if unanswered:
                self._requested |= flush.wanted
            self._flushes.append(flush)
            self._inherited = False
            attended = not self.ending and self._wake()
        try:
            if not attended:
                self.run_due()
                timeout = 0.0
            with self._changed:
                self._changed.wait_for(lambda: not any(map(self._under_way, flush.wanted)), timeout)
                left = [key for key in flush.wanted if self._under_way(key)]
                return flush.outcome(left, elsewhere=self._elsewhere, closed=self.ending)
        finally:
            with self._changed:
                self._flushes.remove(flush)

    def _for_answer(self, key: Conversation) -> bool:
        """Whether a conversation is reminded of only because its last words wait for an answer."""
        pause = self._pauses.get(key)
        return pause is not None and pause.for_answer and pause.until == self._due.get(key)

    def drain(self, timeout: float, *, unanswered: bool = False) -> Flushed:
        """Flush without a gap between calls, for a process that is about to end.

        Words that may still be answered stay pending on disk, unless asked for: the next process counts on from when
        they were recorded.
        """
        with self._updater.model_caller.hurrying():
            return self.flush(timeout, unanswered=unanswered)

    def _under_way(self, key: Conversation) -> bool:
        return key in self._taken or (key in self._due and self._due[key] <= self._clock.now())

    def close(self, timeout: float) -> bool:
        """Flush for at most `timeout` seconds, then stop; unfinished turns stay pending on disk.

        A forked child that has done nothing itself leaves the reminders to its parent.

        Returns:
            Whether nothing is left.
        """
        done = self._inherited or bool(self.drain(timeout))
        self._updater.stop()
        # What is released from here on starts no worker.
        self._workers = 0
        self.end(timeout if done else 0.0)
        return done

    def _next(self) -> tuple[float, Conversation | _Unjudged | None] | None:
        if self.ending:
            return None
        now, monotonic = self._clock.now(), time.monotonic()
        job = self._take_locked({key for key, again in self._elsewhere.items() if again > monotonic})
        if job is not None:
            return 0.0, job
        pauses = [
            max((moment - now).total_seconds(), self._elsewhere.get(key, monotonic) - monotonic)
            for key, moment in self._due.items()
            if key not in self._taken
        ]
        return (min(pauses), None) if pauses else None

    def _run(self, job: Conversation | _Unjudged, /) -> None:
        self._judge(job) if isinstance(job, dict) else self._learn(job)

    def _take(self, excluded: Collection[Conversation]) -> Conversation | None:
        while True:
            with self._changed:
                job = self._take_locked(excluded)
            if not isinstance(job, dict):
                return job
            self._judge(job)

    def _take_locked(self, excluded: Collection[Conversation]) -> Conversation | _Unjudged | None:
        """Take the next conversation; the lock must be held.

        A conversation that is due alone, or has been due for `max_wait`, is not judged.

        Returns:
            The conversation, or the judgements that must be made first; None where nothing is due.
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
            if moment <= now and key not in self._taken and key not in excluded
        )
        if not ready:
            return None
        earliest, _, key = ready[0]
        if len(ready) > 1 and now - earliest < timedelta(seconds=self._timing.max_wait):
            judgements = {key: self._judgements.setdefault(key, _Judgement()) for _, _, key in ready}
            unjudged = {key: judgement for key, judgement in judgements.items() if judgement.urgency is None}
            if unjudged:
                return unjudged
            key = min(judgements, key=lambda key: judgements[key].urgency or Urgency.CORRECTED)
        self._taken.add(key)
        del self._due[key]
        self._judgements.pop(key, None)
        return key

    def _furthest(self, key: Conversation, moment: datetime) -> timedelta:
        """Return how far ahead a conversation can be due while the clock goes on."""
        longest = max(timedelta(seconds=self._timing.debounce), _AFTER_FAULT)
        pause = self._pauses.get(key)
        if pause is None or pause.until != moment:
            return longest
        return max(longest, timedelta(seconds=self._timing.answer_wait)) if pause.for_answer else LONGEST_PAUSE

    def _judge(self, unjudged: _Unjudged) -> None:
        """Judge the urgency of conversations without the lock, so that recording does not wait for it."""
        for key, judgement in unjudged.items():
            writer = self._writers.get(key)
            judgement.urgency = Urgency.PLAIN if writer is None else self._learner.urgency(writer, key[1])

    def _learn(self, key: Conversation) -> None:
        scope, thread = key
        writer = self._writers[key]
        again: datetime | None = None
        trouble: str | None = "an update ended in a fault; see the log"
        faulty, elsewhere, requested = True, False, False
        try:
            # A lease would make a folder for a memory that was removed.
            if knows(writer, thread):
                with writer.store.lease(writer.ledger, thread) as leased:
                    if leased:
                        requested = self._take_request(key)
                        trouble = self._learner.learn(writer, thread, unanswered=requested)
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

    def _take_request(self, key: Conversation) -> bool:
        with self._changed:
            requested = key in self._requested
            self._requested.discard(key)
            return requested

    def _report(self, key: Conversation, trouble: str, *, faulty: bool) -> None:
        """Report what went wrong in a conversation to the flushes that wait for it."""
        with self._changed:
            for flush in self._flushes:
                flush.report(key, trouble, faulty=faulty)

    def _release(self, key: Conversation, again: datetime | None, *, faulty: bool, elsewhere: bool = False) -> None:
        """Release a conversation and queue it again for `again`; after a fault it is due a minute from now."""
        with self._changed:
            self._taken.discard(key)
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
            self._wake()

    @contextlib.contextmanager
    def claim(self, writer: Writer, thread: str) -> Iterator[None]:
        """Wait until no worker is busy with a conversation, and keep the workers off it inside the context."""
        key = (writer.scope, thread)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._taken)
            self._taken.add(key)
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
