"""Due times of threads, and their urgency, computed from the transcript, so a restart loses no time."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.moments import parse_moment
from backstory.ledger.threads.coverage import Coverage, is_answered, is_quiet, opening
from backstory.ledger.threads.thread_coverage import Parked
from backstory.ledger.threads.transcript import Thread

LONGEST_PAUSE = timedelta(hours=6)
"""After so long, at the latest, a model that could not be reached is tried again."""


class Timing(msgspec.Struct, frozen=True):
    """When a thread is due, in seconds; see config.md for the keys."""

    debounce: float = 30.0
    max_wait: float = 300.0


def due_runs(coverage: Coverage, thread: Thread) -> list[TurnRange]:
    """The pending runs of a thread that are worth an update by themselves."""
    return [run for run in coverage.pending(thread) if not is_quiet(thread, run)]


def answered(thread: Thread, run: TurnRange) -> TurnRange:
    """A run that is worth an update, without the words at its end that may still be answered."""
    if run.last < len(thread.turns):
        return run
    end = next((turn.n for turn in thread.walk_back(run.last, run.first) if turn.role != "user"), None)
    return run if end is None else TurnRange(run.first, end)


def due_at(coverage: Coverage, thread: Thread, timing: Timing, now: datetime | None = None) -> datetime | None:
    """When the thread is due; None where nothing in it is worth an update by itself.

    With `now` it is no later than the debounce from then: a clock that was set back puts nothing off for a year.

    An acknowledgement left over from long ago does not start the longest wait, or the words after it, however fresh,
    would have no debounce.
    """
    return due_of(thread, coverage.pending(thread), timing, now)


def due_of(thread: Thread, runs: Iterable[TurnRange], timing: Timing, now: datetime | None = None) -> datetime | None:
    """The same for pending runs that are known already."""
    moments = []
    for run in runs:
        opened = opening(thread, run)
        if opened is None or not is_answered(thread, opened, run.last):
            continue
        first = parse_moment(thread.recorded_at[opened - 1])
        last = parse_moment(thread.recorded_at[run.last - 1])
        if first is not None and last is not None:
            moments.append(min(last + timedelta(seconds=timing.debounce), first + timedelta(seconds=timing.max_wait)))
    if not moments:
        return None
    return min(moments if now is None else [*moments, now + timedelta(seconds=timing.debounce)])


def out_of_reach(coverage: Coverage, thread: Thread, now: datetime) -> list[Parked]:
    """What is parked only because the model could not be reached, and is to be tried again by now."""
    return [parked for parked in _outages(coverage, thread) if _again(parked, now) <= now]


def retry_at(coverage: Coverage, thread: Thread, now: datetime) -> datetime | None:
    """When the first of what an outage has parked is to be tried again; None where nothing is.

    As many minutes after it failed as it was tried by then, six hours at most: an outage of a minute costs minutes, and
    one of a week no bill and no log. What a model refused, or answered badly, waits for a person.
    """
    return min((_again(parked, now) for parked in _outages(coverage, thread)), default=None)


def _outages(coverage: Coverage, thread: Thread) -> list[Parked]:
    return coverage.parked(thread, "unavailable")


def _again(parked: Parked, now: datetime) -> datetime:
    failed = parse_moment(parked.at)
    # The clock was set back since: how long ago it was is unknown.
    return now if failed is None or failed > now else failed + min(timedelta(minutes=parked.attempts), LONGEST_PAUSE)


class Urgency(enum.IntEnum):
    """Which of the threads that are due has its turn first: the smaller, then the one that was due earlier."""

    CORRECTED = 0
    """The user has put something right: until that is learned, the agent goes on being wrong."""
    TELLING = 1
    """Another signal is seen in the user's words."""
    PLAIN = 2

    @classmethod
    def of(cls, signals: Collection[str]) -> Urgency:
        """Judge by the signals seen in what is pending."""
        if "correction" in signals:
            return cls.CORRECTED
        return cls.TELLING if signals else cls.PLAIN
