"""Which turns are still to be learned from: what no commit covers, less what is parked.

Every turn that stands is in exactly one of three: covered, parked or pending.

Folded from the ledger alone, so it is as durable as the ledger and needs no queue: a process that dies forgets nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from ledger.commit import Commit
from ledger.events import TurnRange, UpdateFailed
from ledger.quiet import is_acknowledgement
from ledger.transcript import Thread

__all__ = ["Coverage", "Parked", "is_quiet", "opening"]

_COVERING_ALL = ("clear",)
_OVERTAKEN = ("basis", "covered")
"""Why a summary came to nothing without a fault of the model's."""


class Parked(msgspec.Struct, frozen=True):
    """Turns whose update failed, at `at` (ISO 8601); the ends are turns that stand.

    They wait for a person's retry or discard, or, where the model was merely out of reach, for it to come back.
    """

    turns: TurnRange
    reason: str
    detail: str
    attempts: int
    at: str = ""


class Coverage:
    """What the commits of a ledger say about the turns of its transcript.

    `cleared` is the transcript's seq up to which everything is covered from the start.
    """

    def __init__(self, cleared: int = 0) -> None:
        self._covered: dict[str, list[TurnRange]] = {}
        self._parked: dict[str, list[Parked]] = {}
        self._summarized: dict[str, dict[int, int]] = {}
        self._tried: dict[str, int] = {}
        self._everything_to = cleared

    def apply(self, commit: Commit) -> None:
        """Take one ledger commit in."""
        cause = commit.cause
        if cause.kind in _COVERING_ALL and cause.transcript is not None:
            self._everything_to = max(self._everything_to, cause.transcript.seq)
        if cause.thread is None:
            return
        if cause.kind == "summary":
            self._sum_up(cause.thread, commit)
            return
        if cause.turns is not None:
            self._cover(cause.thread, cause.turns)
        for event in commit.events:
            if isinstance(event, UpdateFailed) and event.turns is not None:
                failed = Parked(event.turns, event.reason, event.detail, event.attempts, commit.at)
                self._park(cause.thread, failed)

    def _sum_up(self, thread: str, commit: Commit) -> None:
        """Note what nobody is to be asked to sum up again; or that it failed, and what was said by then."""
        cause = commit.cause
        if cause.summarized is not None:
            levels = self._summarized.setdefault(thread, {})
            levels[cause.level] = max(cause.summarized.last, levels.get(cause.level, 0))
            self._tried.pop(thread, None)
        elif cause.transcript is not None and any(
            isinstance(event, UpdateFailed) and event.reason not in _OVERTAKEN for event in commit.events
        ):
            self._tried[thread] = cause.transcript.seq

    def summarized(self, thread: Thread, level: int) -> int:
        """The highest ordinal of a thread that its summaries of a level, or a clear, are done with."""
        return max(self._cleared(thread), self._summarized.get(thread.name, {}).get(level, 0))

    def not_summarized(self, thread: Thread) -> int:
        """The last ordinal there was when a summary failed, 0 where none did or one has succeeded since."""
        return bisect_right(thread.seqs, self._tried.get(thread.name, 0))

    def _park(self, thread: str, failed: Parked) -> None:
        """Park what of a failed update's turns no other update has covered, in the place of older failures."""
        self._unpark(thread, failed.turns)
        left = _less(failed.turns, self._covered.get(thread, []))
        self._parked.setdefault(thread, []).extend(msgspec.structs.replace(failed, turns=part) for part in left)

    def _unpark(self, thread: str, turns: TurnRange) -> None:
        if thread in self._parked:
            self._parked[thread] = [
                msgspec.structs.replace(parked, turns=part)
                for parked in self._parked[thread]
                for part in _less(parked.turns, [turns])
            ]

    def _cover(self, thread: str, turns: TurnRange) -> None:
        ranges = sorted([*self._covered.get(thread, []), turns], key=lambda r: r.first)
        merged = [ranges[0]]
        for following in ranges[1:]:
            if following.first <= merged[-1].last + 1:
                merged[-1] = TurnRange(merged[-1].first, max(merged[-1].last, following.last))
            else:
                merged.append(following)
        self._covered[thread] = merged
        self._unpark(thread, turns)

    def covers(self, thread: Thread, turns: TurnRange) -> bool:
        """Whether any turn of the range is covered already."""
        return turns.first <= self._cleared(thread) or any(
            _overlap(r, turns) for r in self._covered.get(thread.name, [])
        )

    def highest(self, thread: str) -> int:
        """The highest ordinal of a thread that is covered, parked or summed up; a turn recorded now comes after it."""
        ends = [turns.last for turns in self._covered.get(thread, [])]
        ends += [parked.turns.last for parked in self._parked.get(thread, [])]
        ends += self._summarized.get(thread, {}).values()
        return max(ends, default=0)

    def _cleared(self, thread: Thread) -> int:
        """The last ordinal that a clear covered."""
        return bisect_right(thread.seqs, self._everything_to)

    def parked(self, thread: Thread) -> list[Parked]:
        """The parked runs of a thread in which a turn stands, less what a later clear has covered, in order."""
        cleared = self._cleared(thread)
        return sorted(
            (
                msgspec.structs.replace(parked, turns=run)
                for parked in self._parked.get(thread.name, [])
                for run in _standing_run(thread, max(parked.turns.first, cleared + 1), parked.turns.last)
            ),
            key=lambda p: p.turns.first,
        )

    def pending(self, thread: Thread) -> list[TurnRange]:
        """The runs of turns that are neither covered nor parked, in order; ends are turns that stand."""
        taken = [TurnRange(1, cleared)] if (cleared := self._cleared(thread)) else []
        taken += self._covered.get(thread.name, [])
        taken += [p.turns for p in self._parked.get(thread.name, [])]
        runs: list[TurnRange] = []
        start = 1
        for r in sorted(taken, key=lambda r: r.first):
            runs += _standing_run(thread, start, r.first - 1)
            start = max(start, r.last + 1)
        return runs + _standing_run(thread, start, len(thread.turns))


def _standing_run(thread: Thread, first: int, last: int) -> list[TurnRange]:
    """Trim a run to turns that stand; empty where none does."""
    while first <= last and not thread.stands(first):
        first += 1
    while last >= first and not thread.stands(last):
        last -= 1
    return [TurnRange(first, last)] if first <= last else []


def _less(turns: TurnRange, taken: Iterable[TurnRange]) -> list[TurnRange]:
    """What is left of a range without others, which are in order and apart."""
    left: list[TurnRange] = []
    start = turns.first
    for other in taken:
        if other.last < start or other.first > turns.last:
            continue
        if start < other.first:
            left.append(TurnRange(start, other.first - 1))
        start = other.last + 1
    if start <= turns.last:
        left.append(TurnRange(start, turns.last))
    return left


def _overlap(a: TurnRange, b: TurnRange) -> bool:
    return a.first <= b.last and b.first <= a.last


def opening(thread: Thread, turns: TurnRange) -> int | None:
    """The first turn of a run in which a user says more than an acknowledgement."""
    for turn in thread.standing(turns.first, turns.last):
        if turn.role == "user" and not is_acknowledgement(turn.content):
            return turn.n
    return None


def is_quiet(thread: Thread, turns: TurnRange) -> bool:
    """Whether turns are never due alone: no user's words beyond an acknowledgement that an answer follows."""
    first = opening(thread, turns)
    return first is None or all(turn.role == "user" for turn in thread.standing(first, turns.last))
