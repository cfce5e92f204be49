"""Learning from one thread: when it is due, how urgent that is, the updates that are run, and what follows them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta

import msgspec

from backstory.ledger.core.errors import UnavailableError
from backstory.ledger.core.events import Redacted, UpdateFailed
from backstory.ledger.core.sanitize import clip
from backstory.ledger.extraction.models.model import Model
from backstory.ledger.learning.summarizer import Summarizer
from backstory.ledger.learning.updater import Job, Outcome, Updater
from backstory.ledger.log.reader import State
from backstory.ledger.log.writer import Writer
from backstory.ledger.threads.due import (
    Due,
    Timing,
    Urgency,
    dues_of,
    out_of_reach,
    ready_runs,
    retry_at,
    telling_runs,
)

_log = logging.getLogger(__name__)

_DETAIL_CHARS = 300
_CHECK_EVERY = timedelta(hours=1)


class ThreadLearner(msgspec.Struct, frozen=True):
    """Learns from threads, one at a time, as a producer asks for it."""

    updater: Updater
    model: Model
    timing: Timing
    summarizer: Summarizer | None = None
    retention_days: int | None = None

    def due(self, state: State, name: str, *, immediate: bool = False) -> Due | None:
        """Return when a thread is due, as known now; None where nothing is pending."""
        thread = state.transcript.threads.get(name)
        if thread is None:
            return None
        now = self.updater.clock.now()
        runs = state.coverage.pending(thread)
        dues = [due.no_later(self.timing, now) for due in dues_of(thread, runs, self.timing)]
        if immediate and not all(due.waits_for for due in dues):
            dues.append(Due(now))
        if (again := retry_at(state.coverage, thread, now)) is not None:
            dues.append(Due(again, "model"))
        return min(dues, default=None)

    def urgency(self, writer: Writer, name: str) -> Urgency:
        """Return how urgent it is to learn from a thread."""
        try:
            with writer.state(durable=False) as state:
                thread = state.transcript.threads[name]
                runs = state.coverage.pending(thread)
                turns = [turn for run in runs for turn in thread.standing(run.first, run.last)]
            return Urgency.of(self.updater.signals().seen_in(turns))
        except Exception:  # noqa: BLE001 the update meets the same error and reports it
            return Urgency.PLAIN

    def learn(self, writer: Writer, thread: str, *, unanswered: bool) -> str | None:
        """Run the updates of a thread that are due, then what follows them.

        Args:
            writer: The scope.
            thread: Its name; the caller holds its lease.
            unanswered: Whether to learn also from words that may still be answered.

        Returns:
            What went wrong in the last update that failed; None where none failed.
        """
        now = self.updater.clock.now()
        with writer.state() as state:
            known = state.transcript.threads.get(thread)
            if known is None:
                return None
            if unanswered:
                runs = telling_runs(state.coverage, known)
            else:
                runs = ready_runs(state.coverage, known, self.timing, now)
            jobs = [Job(thread, run, unanswered=unanswered) for run in runs]
            retries = out_of_reach(state.coverage, known, now)
            jobs += [Job(thread, parked.turns, attempts=parked.attempts) for parked in retries]
        outcomes: list[Outcome] = []
        for job in sorted(jobs, key=lambda job: job.turns.first):
            outcomes += self.updater.run(writer, job, self.model)
        if self.summarizer is not None:
            self.summarizer.run(writer, thread, self.model)
        erase_old_turns(writer, self.retention_days)
        return _failure(outcomes)


def erase_old_turns(writer: Writer, days: int | None) -> None:
    """Erase a scope's turns that are older than `days` days, at most once an hour: that reads the transcript.

    Where the store is unavailable, a later call tries again. None keeps the turns.
    """
    if days is None:
        return
    now, checked = writer.clock.now(), writer.retained_at
    if checked is not None and checked <= now < checked + _CHECK_EVERY:
        return
    writer.retained_at = now
    try:
        commit = writer.expire(now - timedelta(days=days))
    except UnavailableError as error:
        _log.warning("%s: expired turns are not erased yet: %s", writer.scope, error)
    else:
        if commit is not None:
            turns = sum(isinstance(event, Redacted) and event.n is not None for event in commit.events)
            _log.info("%s: commit %d erased %d expired turns", writer.scope, commit.seq, turns)


def knows(writer: Writer, thread: str) -> bool:
    """Whether a scope has a thread."""
    with writer.state(durable=False) as state:
        return thread in state.transcript.threads


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
