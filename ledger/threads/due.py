"""Due times of threads, and their urgency, computed from the transcript, so a restart loses no time."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from backstory.ledger.core.events import TurnRange
from backstory.ledger.core.moments import parse_moment
from backstory.ledger.threads.coverage import Coverage, Parked, is_answered, is_quiet, last_answer, opening
from backstory.ledger.threads.transcript import Thread

LONGEST_PAUSE = timedelta(hours=6)
"""After so long, at the latest, a model that could not be reached is tried again."""


class Timing(msgspec.Struct, frozen=True):
    """When a thread is due, in seconds; see config.md for the keys."""

    debounce: float = 30.0
    max_wait: float = 300.0
    answer_wait: float = 600.0


class Due(msgspec.Struct, frozen=True, order=True):
    """When turns are due, and why that may be further ahead than the debounce.

    `waits_for` is `answer` for a user's words without an answer, and `model` where the model could not be reached.
    """

    at: datetime
    waits_for: Literal["", "answer", "model"] = ""

    def longest(self, timing: Timing) -> timedelta:
        """How far ahead it can be while the clock goes on."""
        if self.waits_for == "model":
            return LONGEST_PAUSE
        wait = timing.answer_wait if self.waits_for == "answer" else 0
        return timedelta(seconds=max(timing.debounce, wait))

    def no_later(self, timing: Timing, now: datetime) -> Due:
        """Limit it to the longest time from now that it can be ahead: the clock may have been set back."""
        latest = now + self.longest(timing)
        return self if self.at <= latest else Due(latest, self.waits_for)


def telling_runs(coverage: Coverage, thread: Thread) -> list[TurnRange]:
    """The pending runs that are worth an update on request, also without an answer: a user says something in them."""
    return [run for run in coverage.pending(thread) if opening(thread, run) is not None]


def ready_runs(coverage: Coverage, thread: Thread, timing: Timing, now: datetime) -> list[TurnRange]:
    """What of the pending runs is worth an update by itself.

    A run ends before the words that may still be answered, unless they have waited for it long enough.
    """
    return [part for run in coverage.pending(thread) if (part := _ready_part(thread, run, timing, now)) is not None]


def _ready_part(thread: Thread, run: TurnRange, timing: Timing, now: datetime) -> TurnRange | None:
    unanswered = first_unanswered(thread, run)
    if unanswered is not None:
        said = _recorded(thread, unanswered)
        # Of words from the future, since the clock was set back, it is unknown how long they have waited.
        if said is None or said > now or said + timedelta(seconds=timing.answer_wait) <= now:
            return run
    return None if is_quiet(thread, run) else answered(thread, run)


def answered(thread: Thread, run: TurnRange) -> TurnRange:
    """A run in which something is answered, without the words at its end that may still be answered."""
    if run.last < len(thread.turns):
        return run
    end = last_answer(thread, run)
    return run if end is None else TurnRange(run.first, end)


def first_unanswered(thread: Thread, run: TurnRange) -> int | None:
    """The first turn of a run in which a user says more than an acknowledgement, and which may still be answered."""
    return _unanswered(thread, run, opening(thread, run))


def _unanswered(thread: Thread, run: TurnRange, opened: int | None) -> int | None:
    if opened is None or not is_answered(thread, opened, run.last):
        return opened
    done = answered(thread, run).last
    return opening(thread, TurnRange(done + 1, run.last)) if done < run.last else None


def due_of(thread: Thread, runs: Iterable[TurnRange], timing: Timing) -> Due | None:
    """When the pending runs of a thread are due; None where nothing in them is ever worth an update by itself."""
    return min(dues_of(thread, runs, timing), default=None)


def dues_of(thread: Thread, runs: Iterable[TurnRange], timing: Timing) -> Iterator[Due]:
    """When each part of some pending runs is due: what is answered, and words that no answer follows.

    An acknowledgement left over from long ago does not start the longest wait, or the words after it, however fresh,
    would have no debounce.
    """
    for run in runs:
        opened, last = opening(thread, run), _recorded(thread, run.last)
        unanswered = _unanswered(thread, run, opened)
        if last is None:
            continue
        if opened is not None and opened != unanswered and (begun := _recorded(thread, opened)) is not None:
            yield Due(_idle(begun, last, timing))
        if unanswered is not None and (said := _recorded(thread, unanswered)) is not None:
            waited = said + timedelta(seconds=timing.answer_wait)
            idle = _idle(waited, last, timing)
            yield Due(waited, "answer") if waited > idle else Due(idle)


def _idle(begun: datetime, last: datetime, timing: Timing) -> datetime:
    """When turns have been idle for long enough, or have waited for that for too long."""
    return min(last + timedelta(seconds=timing.debounce), begun + timedelta(seconds=timing.max_wait))


def _recorded(thread: Thread, n: int) -> datetime | None:
    return parse_moment(thread.recorded_at[n - 1])


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
