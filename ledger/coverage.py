"""Which turns are still to be learned from: what no commit covers, less what is parked.

Folded from the ledger alone, so it is as durable as the ledger and needs no queue: a process that dies forgets nothing.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from ledger.commit import Commit
from ledger.events import TurnRange, UpdateFailed
from ledger.quiet import is_acknowledgement
from ledger.transcript import Thread

__all__ = ["Coverage", "Parked", "is_quiet"]

_COVERING_ALL = ("clear",)


class Parked(msgspec.Struct, frozen=True):
    """Turns whose update failed for good: they wait for a person's retry or discard."""

    turns: TurnRange
    reason: str
    detail: str
    attempts: int


class Coverage:
    """What the commits of a ledger say about the turns of its transcript."""

    def __init__(self) -> None:
        self._covered: dict[str, list[TurnRange]] = {}
        self._parked: dict[str, list[Parked]] = {}
        self._everything_to = 0

    def apply(self, commit: Commit) -> None:
        """Take one ledger commit in."""
        cause = commit.cause
        if cause.kind in _COVERING_ALL and cause.transcript is not None:
            self._everything_to = max(self._everything_to, cause.transcript.seq)
        if cause.thread is None:
            return
        if cause.turns is not None:
            self._cover(cause.thread, cause.turns)
        for event in commit.events:
            if isinstance(event, UpdateFailed) and event.turns is not None:
                parked = self._parked.setdefault(cause.thread, [])
                parked[:] = [p for p in parked if not _overlap(p.turns, event.turns)]
                parked.append(Parked(event.turns, event.reason, event.detail, event.attempts))

    def _cover(self, thread: str, turns: TurnRange) -> None:
        ranges = sorted([*self._covered.get(thread, []), turns], key=lambda r: r.first)
        merged = [ranges[0]]
        for following in ranges[1:]:
            if following.first <= merged[-1].last + 1:
                merged[-1] = TurnRange(merged[-1].first, max(merged[-1].last, following.last))
            else:
                merged.append(following)
        self._covered[thread] = merged
        if thread in self._parked:
            self._parked[thread] = [p for p in self._parked[thread] if not _overlap(p.turns, turns)]

    def covers(self, thread: Thread, turns: TurnRange) -> bool:
        """Whether any turn of the range is covered already."""
        return turns.first <= self._cleared(thread) or any(
            _overlap(r, turns) for r in self._covered.get(thread.name, [])
        )

    def _cleared(self, thread: Thread) -> int:
        """The last ordinal that a clear covered."""
        return bisect_right(thread.seqs, self._everything_to)

    def parked(self, thread: Thread) -> list[Parked]:
        """The parked ranges of a thread that a later clear has not covered, in order."""
        cleared = self._cleared(thread)
        return sorted(
            (p for p in self._parked.get(thread.name, []) if p.turns.last > cleared), key=lambda p: p.turns.first
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


def _overlap(a: TurnRange, b: TurnRange) -> bool:
    return a.first <= b.last and b.first <= a.last


def is_quiet(thread: Thread, turns: TurnRange) -> bool:
    """Whether turns are never due alone: no user's words beyond an acknowledgement that an answer follows."""
    asked = False
    for turn in thread.standing(turns.first, turns.last):
        if turn.role == "user":
            asked = asked or not is_acknowledgement(turn.content)
        elif asked:
            return False
    return True
