"""Coverage of turns: which are still to be learned from, because no commit covers them and they are not parked.

Every turn that stands is in exactly one of three: covered, parked or pending.
Folded from the ledger alone, so it is as durable as the ledger and needs no queue: a process that dies forgets nothing.
What the ledger says of one thread (`ThreadCoverage`) is kept by the index, so that it need not be folded from the first
commit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from heapq import merge
from operator import attrgetter

import msgspec

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Turn, TurnRange, UpdateFailed
from backstory.ledger.text.acknowledgements import is_acknowledgement
from backstory.ledger.threads import ranges
from backstory.ledger.threads.ranges import Ranges
from backstory.ledger.threads.transcript import Thread

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


COVERING_ALL = ("clear",)
_NO_END = 2**63
"""Behind every ordinal: what is recorded next is pending."""


class _Open(msgspec.Struct):
    """What of a thread may be pending: ranges of ordinals that are neither covered nor parked.

    It gets smaller with every look: what does not stand will not until one is restored, so no turn is passed over
    twice. It holds for a number of restorations.
    """

    thread: Thread
    restorations: int
    ranges: Ranges


class Coverage:
    """What the commits of a ledger say about the turns of its transcript.

    `cleared` is the transcript's seq up to which everything is covered from the start.
    """

    def __init__(self, cleared: int = 0) -> None:
        self._threads: dict[str, ThreadCoverage] = {}
        self._open: dict[str, _Open] = {}
        self._everything_to = cleared

    def apply(self, commit: Commit) -> None:
        """Take one ledger commit in."""
        cause = commit.cause
        if cause.kind in COVERING_ALL and cause.transcript is not None:
            self._everything_to = max(self._everything_to, cause.transcript.seq)
        if cause.thread is None:
            return
        state = self._threads.setdefault(cause.thread, ThreadCoverage())
        again = len(state.again)
        taken = state.apply(commit)
        if len(state.again) != again:
            # What is covered once more may not have seen what was restored.
            self._open.pop(cause.thread, None)
        elif (still := self._open.get(cause.thread)) is not None:
            for turns in taken:
                ranges.remove(still.ranges, turns.first, turns.last)

    def adopt(self, thread: str, known: ThreadCoverage) -> None:
        """Go on from what the commits before have said about a thread."""
        self._threads[thread] = known
        self._open.pop(thread, None)

    def _of(self, thread: str) -> ThreadCoverage:
        return self._threads.get(thread) or ThreadCoverage()

    def summarized(self, thread: Thread, level: int) -> int:
        """The highest ordinal of a thread that its summaries of a level, or a clear, are done with."""
        return max(self._cleared(thread), self._of(thread.name).summarized.get(level, 0))

    def not_summarized(self, thread: Thread) -> int:
        """The last ordinal there was when a summary failed, 0 where none did or one has succeeded since."""
        return thread.recorded_by(self._of(thread.name).tried)

    def covers(self, thread: Thread, turns: TurnRange) -> bool:
        """Whether any turn of the range is covered already."""
        if turns.first <= self._cleared(thread):
            return True
        return bool(ranges.overlap(self._covered(thread), turns.first, turns.last))

    def _covered(self, thread: Thread) -> Ranges:
        state = self._of(thread.name)
        return state.covered_now(thread.restored) if thread.restored else state.covered

    def highest(self, thread: str) -> int:
        """The highest ordinal of a thread that is covered, parked or summed up; a turn recorded now comes after it."""
        return self._of(thread).highest

    def _cleared(self, thread: Thread) -> int:
        """The last ordinal that a clear covered."""
        return thread.recorded_by(self._everything_to)

    def parked(self, thread: Thread, reason: str | None = None) -> list[Parked]:
        """The parked runs of a thread in which a turn stands, less what a later clear has covered, in order.

        With a `reason` only those that were parked for it.
        """
        cleared = self._cleared(thread)
        all_parked = self._of(thread.name).parked
        begin = bisect_right(all_parked, cleared, key=_last)
        return [
            msgspec.structs.replace(parked, turns=run)
            for parked in all_parked[begin:]
            if reason in (None, parked.reason)
            for run in _standing_run(thread, max(parked.turns.first, cleared + 1), parked.turns.last)
        ]

    def pending(self, thread: Thread) -> list[TurnRange]:
        """The runs of turns that are neither covered nor parked, in order; ends are turns that stand."""
        still = self._still_open(thread)
        runs: list[TurnRange] = []
        left: Ranges = []
        count = len(thread.turns)
        for first, last in still:
            found = _standing_run(thread, first, min(last, count))
            runs += found
            # What is not recorded yet may still come to stand.
            begin = found[0].first if found else max(first, count + 1)
            end = found[0].last if found and last <= count else last
            if begin <= end:
                left.append((begin, end))
        still[:] = left
        return runs

    def _still_open(self, thread: Thread) -> Ranges:
        known = self._open.get(thread.name)
        if known is None or known.thread is not thread or known.restorations != thread.restorations:
            state = self._of(thread.name)
            parked = [(parked.turns.first, parked.turns.last) for parked in state.parked]
            taken = merge(self._covered(thread), parked)
            known = _Open(thread, thread.restorations, ranges.complement(taken, 1, _NO_END))
            self._open[thread.name] = known
        if (cleared := self._cleared(thread)) > 0:
            ranges.remove(known.ranges, 1, cleared)
        return known.ranges


def _standing_run(thread: Thread, first: int, last: int) -> list[TurnRange]:
    """Trim a run to turns that stand; empty where none does."""
    while first <= last and not thread.stands(first):
        first += 1
    while last >= first and not thread.stands(last):
        last -= 1
    return [TurnRange(first, last)] if first <= last else []


def opening(thread: Thread, turns: TurnRange) -> int | None:
    """The first turn of a run in which a user says more than an acknowledgement."""
    return thread.seek(_says_something, turns.first, turns.last)


def is_quiet(thread: Thread, turns: TurnRange) -> bool:
    """Whether turns hold no answered words of a user beyond an acknowledgement.

    They wait for the next update, or for an answer as long as `due.Timing` says.
    """
    first = opening(thread, turns)
    return first is None or not is_answered(thread, first, turns.last)


def is_answered(thread: Thread, first: int, last: int) -> bool:
    """Whether a role other than the user says something between two ordinals, both included."""
    return thread.seek(_answers, first, last) is not None


def last_answer(thread: Thread, turns: TurnRange) -> int | None:
    """The last turn of a run in which a role other than the user says something."""
    return thread.seek_back(_answers, turns.last, turns.first)


def _says_something(turn: Turn) -> bool:
    return turn.role == "user" and not is_acknowledgement(turn.content)


def _answers(turn: Turn) -> bool:
    return turn.role != "user"
