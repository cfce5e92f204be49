"""When a thread is due, and how urgently (rows D4, D6): told from the transcript, so a restart loses no time."""

from __future__ import annotations

import enum
from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from ledger.clock import parse_moment
from ledger.coverage import Coverage, is_quiet, opening
from ledger.events import TurnRange
from ledger.transcript import Thread

__all__ = ["Timing", "Urgency", "due_at", "due_runs"]


class Timing(msgspec.Struct, frozen=True):
    """When a thread is due, in seconds; see config.md for the keys."""

    debounce: float = 30.0
    max_wait: float = 300.0


def due_runs(coverage: Coverage, thread: Thread) -> list[TurnRange]:
    """The pending runs of a thread that are worth an update by themselves."""
    return [run for run in coverage.pending(thread) if not is_quiet(thread, run)]


def due_at(coverage: Coverage, thread: Thread, timing: Timing, now: datetime | None = None) -> datetime | None:
    """When the thread is due; None where nothing in it is worth an update by itself.

    With `now` it is no later than the debounce from then: a clock that was set back puts nothing off for a year.

    An acknowledgement left over from long ago does not start the longest wait, or the words after it, however fresh,
    would have no debounce.
    """
    moments = []
    for run in due_runs(coverage, thread):
        first = parse_moment(thread.recorded_at[(opening(thread, run) or run.first) - 1])
        last = parse_moment(thread.recorded_at[run.last - 1])
        if first is not None and last is not None:
            moments.append(min(last + timedelta(seconds=timing.debounce), first + timedelta(seconds=timing.max_wait)))
    if not moments:
        return None
    return min(moments if now is None else [*moments, now + timedelta(seconds=timing.debounce)])


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
