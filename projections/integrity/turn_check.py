"""Checks of the transcript against itself and of what the ledger says of its turns.

Turns count 1, 2, 3, … within their thread, a turn stands until it is superseded, and each is covered by one commit of
the ledger at most, or by one more after it was restored. Behind damage or an erased cause nobody can tell, and
nothing is told.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType

import msgspec

from backstory.ledger.core.commit import UNREADABLE, Commit, head_of
from backstory.ledger.core.events import Erased, TurnRange, TurnRecorded, TurnRestored, TurnSuperseded, UpdateFailed
from backstory.projections.integrity.ledger_check import NOT_OURS
from backstory.projections.integrity.stream_check import StreamCheck

__all__ = ["CoverageCheck", "TranscriptCheck"]

_EVENTS: Mapping[str, frozenset[type]] = MappingProxyType(
    {
        "record": frozenset({TurnRecorded, TurnSuperseded, Erased}),
        "withdrawal": frozenset({TurnSuperseded, Erased}),
        "restore": frozenset({TurnRestored, Erased}),
    }
)
_ANY = 2**63 - 1
_NUMBERS = 5


class TranscriptCheck:
    """What the commits of a transcript say: whether turns follow each other, and whether what is superseded stood."""

    def __init__(self, check: StreamCheck) -> None:
        self.sure = True
        """Whether it can be told which turns come next."""
        self.last: dict[str, int] = {}
        """The last ordinal of each thread."""
        self.restored: dict[tuple[str, int], int] = {}
        """The turns that are to be learned from again, with the first commit that restored them so."""
        self._check = check
        self._superseded: dict[str, set[int]] = {}
        self._at = ""

    def take(self, commit: Commit) -> None:
        """Judge a commit, and take it in."""
        cause = commit.cause
        self.sure = self.sure and not self._check.damaged and cause.kind != "erased"
        odd = self._odd(commit) if self.sure else None
        self._at = max(self._at, commit.at)
        if odd is not None:
            told = f"commit {commit.seq} ({cause.kind}) {odd}; {NOT_OURS}"
            self._check.found("impossible", self._check.lines, self._check.byte, told)
        if self.sure and cause.thread is not None and cause.turns is not None:
            self._count(commit, cause.thread, cause.turns)

    def _odd(self, commit: Commit) -> str | None:
        cause = commit.cause
        if cause.kind not in _EVENTS:
            # Of the first line it is told already, that the file is another one's.
            return None if commit.seq == 1 else "is of a kind that a transcript does not have"
        other = sorted(form.__name__ for form in set(map(type, commit.events)) - _EVENTS[cause.kind])
        if other:
            return f"holds a {other[0]}, which commits of its kind do not"
        if commit.at < self._at:
            return f"is dated {commit.at}, before the commit it follows ({self._at})"
        if cause.thread is None:
            return "is about no thread"
        recorded = sum(type(event) is TurnRecorded for event in commit.events)
        stated = 0 if cause.turns is None else cause.turns.last - cause.turns.first + 1
        if recorded > stated >= 0:
            return f"records {recorded} turns, and states {stated}"
        return self._odd_superseding(commit, cause.thread)

    def _odd_superseding(self, commit: Commit, thread: str) -> str | None:
        gone = self._superseded.get(thread)
        for event in commit.events:
            if isinstance(event, TurnRestored):
                if gone is None or event.n not in gone:
                    return f"restores turn {event.n} of thread {thread}, which was not superseded"
                gone.remove(event.n)
                if event.again:
                    self.restored.setdefault((thread, event.n), commit.seq)
            if not isinstance(event, TurnSuperseded):
                continue
            if not 1 <= event.n <= self.last.get(thread, 0):
                return f"supersedes turn {event.n} of thread {thread}, which was not recorded"
            if gone is None:
                gone = self._superseded.setdefault(thread, set())
            if event.n in gone:
                return f"supersedes turn {event.n} of thread {thread}, which does not stand any more"
            gone.add(event.n)
        return None

    def _count(self, commit: Commit, thread: str, turns: TurnRange) -> None:
        first, last = turns.first, turns.last
        recorded = commit.events[len(commit.events) - (last - first + 1) :] if first <= last else ()
        stated = [event.turn.n if isinstance(event, TurnRecorded) else None for event in recorded]
        expected = self.last.get(thread, 0) + 1
        wrong = next((n for n, told in enumerate(stated, first) if told not in (None, n)), None)
        problem = None
        if first != expected:
            problem = f"the line records turn {first} of thread {thread}, where {expected} is the next"
        elif len(stated) != last - first + 1 or wrong is not None:
            problem = f"the line does not hold the turns {first} to {last} of thread {thread} that it states"
        if problem is not None:
            kind = "missing" if first > expected else "altered"
            self._check.found(kind, self._check.lines, self._check.byte, problem)
        self.last[thread] = max(last, expected - 1)


class _Claims:
    """The turns of one thread that commits of the ledger cover, side by side: there may be a million."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        """Apart, in order, neighbours as one."""
        self.furthest = 0
        """The last turn that a commit speaks of, covering or parking it."""
        self.said_by = 0
        self.begun = 0
        self.ended = 0
        """How far the claims were held against the transcript, by their firsts and by their lasts."""
        self.numbers = array("q")
        """Of each claim: first, last, its seq, and of the transcript the seq that was cleared and the one it saw."""

    def sort(self) -> None:
        """Put the claims in the order of their turns, in which they nearly always are."""
        firsts = self.numbers[::_NUMBERS]
        if any(a > b for a, b in pairwise(firsts)):
            order = sorted(range(len(firsts)), key=firsts.__getitem__)
            self.numbers = array("q", [n for i in order for n in self.numbers[i * _NUMBERS : (i + 1) * _NUMBERS]])

    def overlaps(self, first: int, last: int) -> bool:
        place = bisect_left(self.ranges, (first, 0))
        before = place > 0 and self.ranges[place - 1][1] >= first
        return before or (place < len(self.ranges) and self.ranges[place][0] <= last)

    def met(self, first: int, last: int) -> list[tuple[int, int]]:
        return [(a, b) for a, b in self.ranges if a <= last and first <= b]

    def cover(self, first: int, last: int) -> None:
        if self.ranges and self.ranges[-1][1] == first - 1:
            self.ranges[-1] = (self.ranges[-1][0], last)
        else:
            insort(self.ranges, (first, last))


class CoverageCheck:
    """What the commits of a ledger say of the turns of its transcript: each is covered once, after it was recorded."""

    def __init__(self, check: StreamCheck) -> None:
        self._check = check
        self._threads: dict[str, _Claims] = {}
        self._cleared = 0
        self._sorted: set[str] = set()
        self._odd: dict[int, str] = {}
        self._again: list[tuple[Commit, str, int, int]] = []
        """Turns that were covered once more, which restored ones may be: by which commit, of which thread."""

    def take(self, commit: Commit) -> None:
        """Take in a commit of the ledger."""
        cause = commit.cause
        if cause.kind == "clear" and cause.transcript is not None:
            self._cleared = max(self._cleared, cause.transcript.seq)
        if cause.thread is None or self._check.damaged:
            return
        for turns in _spoken_of(commit):
            self._note(commit, cause.thread, turns)
        if cause.turns is not None and commit.seq not in self._odd:
            self._cover(commit, cause.thread, cause.turns)
        if commit.seq in self._odd:
            self._tell(commit, self._check.lines, self._check.byte)

    def _note(self, commit: Commit, thread: str, turns: TurnRange) -> None:
        if not 1 <= turns.first <= turns.last <= _ANY:
            self._odd[commit.seq] = f"speaks of the turns {turns.first} to {turns.last} of thread {thread}"
            return
        claims = self._threads.setdefault(thread, _Claims())
        if turns.last > claims.furthest:
            claims.furthest, claims.said_by = turns.last, commit.seq

    def _cover(self, commit: Commit, thread: str, turns: TurnRange) -> None:
        claims, first, last = self._threads[thread], turns.first, turns.last
        if claims.overlaps(first, last):
            bare = msgspec.structs.replace(commit, events=())
            self._again += [(bare, thread, max(a, first), min(b, last)) for a, b in claims.met(first, last)]
            return
        claims.cover(first, last)
        pin = commit.cause.transcript
        claims.numbers.extend((first, last, commit.seq, self._cleared, _ANY if pin is None else min(pin.seq, _ANY)))

    def _tell(self, commit: Commit, line: int, byte: int) -> None:
        told = f"commit {commit.seq} ({commit.cause.kind}) {self._odd.pop(commit.seq)}"
        self._check.found("impossible", line, byte, f"{told}; {NOT_OURS}")

    # Against the transcript.

    def record(self, commit: Commit) -> None:
        """Hold what was covered against a commit of the transcript."""
        thread, turns = commit.cause.thread, commit.cause.turns
        claims = None if thread is None or turns is None else self._threads.get(thread)
        if thread is None or turns is None or claims is None:
            return
        if thread not in self._sorted:
            self._sorted.add(thread)
            claims.sort()
        numbers, end = claims.numbers, len(claims.numbers)
        while claims.begun < end and numbers[claims.begun] <= turns.last:
            first, _, seq, cleared, _ = numbers[claims.begun : claims.begun + _NUMBERS]
            if commit.seq <= cleared:
                self._odd.setdefault(seq, f"covers turn {first} of thread {thread}, which a clear had covered")
            claims.begun += _NUMBERS
        while claims.ended < end and numbers[claims.ended + 1] <= turns.last:
            _, last, seq, _, pin = numbers[claims.ended : claims.ended + _NUMBERS]
            if commit.seq > pin:
                told = f"covers turn {last} of thread {thread}, which was recorded after what it was made on"
                self._odd.setdefault(seq, told)
            claims.ended += _NUMBERS

    def judge(self, transcript: TranscriptCheck) -> None:
        """Tell what cannot be, once the whole transcript was read."""
        for thread, claims in self._threads.items():
            last = transcript.last.get(thread, 0)
            if claims.furthest > last:
                told = f"speaks of turn {claims.furthest} of thread {thread}, of which {last} were recorded"
                self._odd.setdefault(claims.said_by, told)
        for commit, thread, first, last in self._again:
            pin = _ANY if commit.cause.transcript is None else commit.cause.transcript.seq
            restored = (transcript.restored.get((thread, n)) for n in range(first, last + 1))
            if any(seq is None or seq > pin for seq in restored):
                told = f"covers turns of thread {thread} that are covered already ({first} to {last})"
                self._odd.setdefault(commit.seq, f"({commit.cause.kind}) {told}")
        if not self._odd:
            return
        for number, record in enumerate(self._check.store.read(self._check.stream), 1):
            try:
                seq = head_of(record.line).seq
            except UNREADABLE:
                continue
            if seq in self._odd:
                told = f"commit {seq} {self._odd.pop(seq)}; {NOT_OURS}"
                self._check.found("impossible", number, record.byte, told)


def _spoken_of(commit: Commit) -> Iterator[TurnRange]:
    """The turns that a commit covers, parks or sums up."""
    cause = commit.cause
    if cause.turns is not None:
        yield cause.turns
    if cause.summarized is not None:
        yield cause.summarized
    for event in commit.events:
        if isinstance(event, UpdateFailed) and event.turns is not None:
            yield event.turns
