"""What the ledger says about the turns of one thread: which are covered, parked or summed up.

Folded from the ledger's commits, in order. The index keeps it, so that it need not be folded from the first commit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from operator import attrgetter

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import TurnRange, UpdateFailed
from backstory.ledger.threads import ranges
from backstory.ledger.threads.ranges import Ranges

_ALL = 2**62
"""Of a commit that names no moment of the transcript: nothing was asked, so it has seen all there was."""
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


_first: Callable[[Parked], int] = attrgetter("turns.first")
_last: Callable[[Parked], int] = attrgetter("turns.last")


class ThreadCoverage(msgspec.Struct, array_like=True):
    """The turns of one thread by ordinal, as far as commits state them.

    `covered` are ranges, and `parked` is in order and apart from them. `summarized` is, by level, the last ordinal
    that summaries are done with; `tried` the transcript's seq when a summary failed, 0 where none did or one has
    succeeded since. `again` are ranges that were covered once more, each with the transcript's seq that its update has
    seen: only turns that were restored are. What a clear covers is not kept here: it concerns every thread.
    """

    covered: Ranges = []
    parked: list[Parked] = []
    summarized: dict[int, int] = {}
    tried: int = 0
    again: list[tuple[int, int, int]] = []

    def apply(self, commit: Commit) -> list[TurnRange]:
        """Take in a commit of the ledger about this thread; returns the turns that it covers or parks."""
        cause = commit.cause
        if cause.kind == "summary":
            self._sum_up(commit)
            return []
        taken: list[TurnRange] = []
        if cause.turns is not None:
            self._cover(cause.turns, _ALL if cause.transcript is None else cause.transcript.seq)
            taken.append(cause.turns)
        for event in commit.events:
            if isinstance(event, UpdateFailed) and event.turns is not None:
                self._park(Parked(event.turns, event.reason, event.detail, event.attempts, commit.at))
                taken.append(event.turns)
        return taken

    def _sum_up(self, commit: Commit) -> None:
        """Note what is not to be summed up again; or that it failed, and what was said by then."""
        cause = commit.cause
        if cause.summarized is not None:
            self.summarized[cause.level] = max(cause.summarized.last, self.summarized.get(cause.level, 0))
            self.tried = 0
        elif cause.transcript is not None and any(
            isinstance(event, UpdateFailed) and event.reason not in _OVERTAKEN for event in commit.events
        ):
            self.tried = cause.transcript.seq

    def _cover(self, turns: TurnRange, seen: int) -> None:
        self.again += [
            (max(first, turns.first), min(last, turns.last), seen)
            for first, last in ranges.overlap(self.covered, turns.first, turns.last)
        ]
        ranges.add(self.covered, turns.first, turns.last)
        self._unpark(turns)

    def _park(self, failed: Parked) -> None:
        """Park what of a failed update's turns no other update has covered, in the place of older failures."""
        self._unpark(failed.turns)
        for first, last in ranges.without(self.covered, failed.turns.first, failed.turns.last):
            insort(self.parked, msgspec.structs.replace(failed, turns=TurnRange(first, last)), key=_first)

    def _unpark(self, turns: TurnRange) -> None:
        start = bisect_left(self.parked, turns.first, key=_last)
        end = bisect_right(self.parked, turns.last, lo=start, key=_first)
        self.parked[start:end] = [
            msgspec.structs.replace(parked, turns=TurnRange(*part))
            for parked in self.parked[start:end]
            for part in ranges.without([(turns.first, turns.last)], parked.turns.first, parked.turns.last)
        ]

    def reopened(self, restored: Mapping[int, int]) -> list[int]:
        """The restored turns that no update has covered since it could see them again.

        Args:
            restored: by ordinal, the transcript's seq of the commit that restored the turn.
        """
        return [
            n
            for n, seq in restored.items()
            if not any(first <= n <= last and seen >= seq for first, last, seen in self.again)
        ]

    def covered_now(self, restored: Mapping[int, int]) -> Ranges:
        """The ranges that are covered, without those turns."""
        left = list(self.covered)
        for n in self.reopened(restored):
            ranges.remove(left, n, n)
        return left

    @property
    def highest(self) -> int:
        """The highest ordinal that is covered, parked or summed up."""
        ends = [last for _, last in self.covered[-1:]] + [parked.turns.last for parked in self.parked[-1:]]
        return max([*ends, *self.summarized.values()], default=0)

    def covered_from(self, first: int) -> int:
        """The last of the ordinals that are covered from one on without a gap; the one before it where it is not."""
        found = ranges.overlap(self.covered, first, first)
        return found[0][1] if found else first - 1
