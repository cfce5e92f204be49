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

import msgspec

from backstory.ledger.concurrency.jobs import Jobs
from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.extraction.models.model import Model
from backstory.ledger.learning.flushed import ConversationKey, Flush, Flushed
from backstory.ledger.learning.summarizer import Summarizer
from backstory.ledger.learning.thread_learner import ThreadLearner, knows
from backstory.ledger.learning.updater import Updater
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.due import Due, Timing, Urgency

_log = logging.getLogger(__name__)

_AFTER_FAULT = timedelta(seconds=60)
_LOOK_AGAIN_SECONDS = 0.2


class _Judgement(msgspec.Struct):
    """The urgency of a thread; None until it was judged.

    New turns replace the object, so a judgement in progress, which writes into the old object, is discarded.
    """

    urgency: Urgency | None = None


class _Waiting(msgspec.Struct):
    """A conversation that waits, or that is worked on."""

    writer: Writer
    due: Due | None = None
    requested: bool = False
    """Whether a flush asked for it: what may still be answered is learned from, too."""
    judgement: _Judgement = msgspec.field(default_factory=_Judgement)
    """Its urgency, once it was due together with others."""
    elsewhere_until: float = 0.0
    """When to retry it, by the machine's monotonic clock; 0 unless another process has its lease."""
    taken: bool = False
    """Whether it is worked on, or claimed."""

    def is_due(self, now: datetime) -> bool:
        """Whether it is to be learned from now, or is being learned from."""
        return self.due is not None and self.due.at <= now


_Unjudged = dict[ConversationKey, _Judgement]


class Producer(Jobs[ConversationKey | _Unjudged]):
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
        workers: int = 2,
        retention_days: int | None = None,
        summarizer: Summarizer | None = None,
    ) -> None:
        self._updater = updater
        self._timing = timing or Timing()
        self._clock = updater.clock
        self._size = workers
        self._learner = ThreadLearner(updater, model, self._timing, summarizer, retention_days)
        self._waiting: dict[ConversationKey, _Waiting] = {}
        super().__init__(workers=0)
        self._inherited = False
        """Whether all reminders come from the parent process."""

    def renew(self) -> None:
        """Begin anew in a forked child, which has none of its parent's threads, but whatever lock one of them held.

        Conversations that waited still wait. One that the parent works on is the parent's, until it is noticed here.
        """
        super().renew()
        self._looks_at: datetime | None = None
        """When a waiting worker looks again by itself; None where it has to be woken."""
        self._inherited = True
        self._flushes: list[Flush] = []
        self._waiting = {key: _Waiting(one.writer, one.due) for key, one in self._waiting.items() if one.due}

    def start(self) -> None:
        """Have background workers run the updates; the first reminder starts them."""
        with self._changed:
            self._workers = self._size
            if self._waiting:
                self._wake()

    def watch(self, writer: Writer) -> bool:
        """Watch a scope: turns that are already pending are due at the times that the transcript gives.

        A conversation that is already due is not put off.

        Returns:
            Whether any are pending.
        """
        with writer.reader.state() as state:
            found = {name: self._learner.due(state, name) for name in state.transcript.threads.unsettled()}
        with self._changed:
            for name, due in found.items():
                if due is not None:
                    self._remind(writer, name, due)
            self._inherited = False
            self._wake()
        return any(due is not None for due in found.values())

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
                before = self._due_of(key)
            due = self._due_now(writer, thread, immediate=immediate)
            with self._changed:
                if self._due_of(key) != before:
                    # Another call of `notice` came in between, so the moment may be out of date.
                    continue
                self._remind(writer, thread, due)
                self._inherited = False
                # A worker that is woken looks at all that waits, which would be too much for each turn of a burst.
                if due is None or self._looks_at is None or due.at < self._looks_at:
                    self._wake()
                return

    def _due_of(self, key: ConversationKey) -> Due | None:
        return self._waiting[key].due if key in self._waiting else None

    def _due_now(self, writer: Writer, name: str, *, immediate: bool = False) -> Due | None:
        with writer.state(durable=False) as state:
            return self._learner.due(state, name, immediate=immediate)

    def _remind(self, writer: Writer, name: str, due: Due | None) -> None:
        """Note when a conversation is due; the lock must be held."""
        one = self._waiting.setdefault((writer.scope, name), _Waiting(writer))
        one.writer, one.judgement = writer, _Judgement()
        if due is None or not one.is_due(self._clock.now()):
            one.due = due
        self._drop_settled((writer.scope, name))

    def _drop_settled(self, key: ConversationKey) -> None:
        if self._waiting[key].due is None and not self._waiting[key].taken:
            del self._waiting[key]

    def depth(self) -> int:
        """Return the number of conversations that are due and waiting."""
        now = self._clock.now()
        with self._changed:
            return sum(one.is_due(now) for one in self._waiting.values())

    def load(self) -> tuple[int, int, int]:
        """Return how many conversations wait and are due, how many are due later, and how many are worked on."""
        now = self._clock.now()
        with self._changed:
            waiting = [one.is_due(now) for one in self._waiting.values() if not one.taken]
            return sum(waiting), len(waiting) - sum(waiting), len(self._waiting) - len(waiting)

    def run_due(self) -> int:
        """Run every update that is due now, in this thread, and return their number."""
        count = 0
        elsewhere: set[ConversationKey] = set()
        while not self.ending and (key := self._take(elsewhere)) is not None:
            self._learn(key)
            count += 1
            if self._is_elsewhere(key):
                elsewhere.add(key)
        return count

    def _is_elsewhere(self, key: ConversationKey) -> bool:
        one = self._waiting.get(key)
        return one is not None and one.elsewhere_until > 0

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
            wanted = set()
            for key, one in self._waiting.items():
                if one.due is not None and (unanswered or one.is_due(now) or one.due.waits_for != "answer"):
                    one.due = one.due if one.is_due(now) else Due(now)
                    wanted.add(key)
                elif one.taken:
                    wanted.add(key)
                one.requested = one.requested or (unanswered and key in wanted)
            flush = Flush(wanted)
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
                return flush.outcome(left, elsewhere=set(filter(self._is_elsewhere, left)), closed=self.ending)
        finally:
            with self._changed:
                self._flushes.remove(flush)

    def drain(self, timeout: float, *, unanswered: bool = False) -> Flushed:
        """Flush without a gap between calls, for a process that is about to end.

        Words that may still be answered stay pending on disk, unless asked for: the next process counts on from when
        they were recorded.
        """
        with self._updater.model_caller.hurrying():
            return self.flush(timeout, unanswered=unanswered)

    def _under_way(self, key: ConversationKey) -> bool:
        return key in self._waiting and (self._waiting[key].taken or self._waiting[key].is_due(self._clock.now()))

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

    def _next(self) -> tuple[float, ConversationKey | _Unjudged | None] | None:
        if self.ending:
            return None
        now, monotonic = self._clock.now(), time.monotonic()
        job = self._take_locked({key for key, one in self._waiting.items() if one.elsewhere_until > monotonic})
        if job is not None:
            self._looks_at = None
            return 0.0, job
        pauses = [
            max((one.due.at - now).total_seconds(), one.elsewhere_until - monotonic)
            for one in self._waiting.values()
            if one.due is not None and not one.taken
        ]
        self._looks_at = now + timedelta(seconds=min(pauses)) if pauses else None
        return (min(pauses), None) if pauses else None

    def _run(self, job: ConversationKey | _Unjudged, /) -> None:
        self._judge(job) if isinstance(job, dict) else self._learn(job)

    def _take(self, excluded: Collection[ConversationKey]) -> ConversationKey | None:
        while True:
            with self._changed:
                job = self._take_locked(excluded)
            if not isinstance(job, dict):
                return job
            self._judge(job)

    def _take_locked(self, excluded: Collection[ConversationKey]) -> ConversationKey | _Unjudged | None:
        """Take the next conversation; the lock must be held.

        A conversation that is due alone, or has been due for `max_wait`, is not judged.

        Returns:
            The conversation, or the judgements that must be made first; None where nothing is due.
        """
        now = self._clock.now()
        ready: list[tuple[datetime, str, ConversationKey]] = []
        for key, one in self._waiting.items():
            if one.due is not None and one.due.at > now + max(one.due.longest(self._timing), _AFTER_FAULT):
                # A moment so far ahead means that the clock was set back.
                one.due = Due(now + timedelta(seconds=self._timing.debounce))
            if one.due is not None and one.is_due(now) and not one.taken and key not in excluded:
                ready.append((one.due.at, str(key), key))
        if not ready:
            return None
        earliest, _, key = min(ready)
        if len(ready) > 1 and now - earliest < timedelta(seconds=self._timing.max_wait):
            judgements = {key: self._waiting[key].judgement for _, _, key in sorted(ready)}
            unjudged = {key: judgement for key, judgement in judgements.items() if judgement.urgency is None}
            if unjudged:
                return unjudged
            key = min(judgements, key=lambda key: judgements[key].urgency or Urgency.CORRECTED)
        self._take_up(self._waiting[key])
        return key

    def _take_up(self, one: _Waiting) -> None:
        one.taken, one.due, one.judgement = True, None, _Judgement()

    def _judge(self, unjudged: _Unjudged) -> None:
        """Judge the urgency of conversations without the lock, so that recording does not wait for it."""
        for key, judgement in unjudged.items():
            one = self._waiting.get(key)
            judgement.urgency = Urgency.PLAIN if one is None else self._learner.urgency(one.writer, key[1])

    def _learn(self, key: ConversationKey) -> None:
        scope, thread = key
        one = self._waiting[key]
        writer = one.writer
        again: Due | None = None
        trouble: str | None = "an update ended in a fault; see the log"
        faulty, elsewhere, requested = True, False, False
        try:
            # A lease would make a folder for a memory that was removed.
            if knows(writer, thread):
                with writer.store.lease(writer.ledger, thread) as leased:
                    if leased:
                        with self._changed:
                            requested, one.requested = one.requested, False
                        trouble = self._learner.learn(writer, thread, unanswered=requested)
                    else:
                        elsewhere, trouble = True, None
            else:
                trouble = None
            again, faulty = self._due_now(writer, thread), False
        except BackstoryError as error:
            trouble = f"not learned from yet, will be tried again: {error}"
            _log.warning("%s, thread %s: %s", scope, thread, trouble)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 a worker survives a failed update
            trouble = "an update ended in a fault; its turns stay pending"
            _log.exception("%s, thread %s: %s", scope, thread, trouble)
        finally:
            one.requested = one.requested or (faulty and requested)
            if trouble is not None:
                self._report(key, trouble, faulty=faulty)
            self._release(writer, thread, again, faulty=faulty, elsewhere=elsewhere)

    def _report(self, key: ConversationKey, trouble: str, *, faulty: bool) -> None:
        """Report what went wrong in a conversation to the flushes that wait for it."""
        with self._changed:
            for flush in self._flushes:
                flush.report(key, trouble, faulty=faulty)

    def _release(
        self, writer: Writer, thread: str, again: Due | None, *, faulty: bool, elsewhere: bool = False
    ) -> None:
        """Release a conversation and queue it again for `again`; after a fault it is due a minute from now."""
        key, now = (writer.scope, thread), self._clock.now()
        with self._changed:
            # A child that was forked meanwhile has dropped it.
            one = self._waiting.setdefault(key, _Waiting(writer))
            one.taken = False
            if faulty:
                again = Due(now + _AFTER_FAULT)
            elif (elsewhere or one.requested) and again is not None and again.at > now:
                # It was due, perhaps only by a request, and stays due until it has been learned from.
                again = Due(now)
            one.elsewhere_until = time.monotonic() + _LOOK_AGAIN_SECONDS if elsewhere else 0.0
            one.due = min(filter(None, (again, one.due)), key=lambda due: due.at, default=None)
            self._drop_settled(key)
            self._wake()

    @contextlib.contextmanager
    def claim(self, writer: Writer, thread: str) -> Iterator[None]:
        """Wait until no worker is busy with a conversation, and keep the workers off it inside the context."""
        key = (writer.scope, thread)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._waiting or not self._waiting[key].taken)
            one = self._waiting.setdefault(key, _Waiting(writer))
            one.writer = writer
            self._take_up(one)
        try:
            yield
        finally:
            # A conversation that is not released would never be learned from again.
            again: Due | None = None
            faulty = True
            try:
                again, faulty = self._due_now(writer, thread), False
            finally:
                self._release(writer, thread, again, faulty=faulty)
