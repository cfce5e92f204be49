"""Turn check: the order of the turns in the transcript, and their coverage by the ledger.

Turns count 1, 2, 3, … within their thread. A turn stands until it is superseded. At most one commit of the ledger
covers it, or one more after it was restored. After damage or an erased cause the check stops.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType

import msgspec

from backstory.ledger.core.commit import UNREADABLE, Commit, head_of
from backstory.ledger.core.events import Erased, TurnRange, TurnRecorded, TurnRestored, TurnSuperseded, UpdateFailed
from backstory.ledger.threads import ranges
from backstory.ledger.threads.ranges import Ranges
from backstory.projections.integrity.stream_check import NOT_OURS, StreamCheck

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
    """Checks that the turns of a transcript are consecutive, and that superseded turns stood."""

    def __init__(self, check: StreamCheck) -> None:
        self.sure = True
        """Whether the next ordinals are known."""
        self.last: dict[str, int] = {}
        """The last ordinal of each thread."""
        self.restored: dict[tuple[str, int], int] = {}
        """The turns to learn from again, with the first commit that restored them."""
        self._check = check
        self._superseded: dict[str, set[int]] = {}
        self._at = ""

    def take(self, commit: Commit) -> None:
        """Check a commit and apply it."""
        cause = commit.cause
        self.sure = self.sure and not self._check.damaged and cause.kind != "erased"
        violation = self._violation(commit) if self.sure else None
        self._at = max(self._at, commit.at)
        if violation is not None:
            self._check.impossible(commit, violation)
        if self.sure and cause.thread is not None and cause.turns is not None:
            self._count(commit, cause.thread, cause.turns)

    def _violation(self, commit: Commit) -> str | None:
        cause = commit.cause
        if cause.kind not in _EVENTS:
            # For the first line, an exchanged file is reported elsewhere.
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
        return self._check_superseding(commit, cause.thread)

    def _check_superseding(self, commit: Commit, thread: str) -> str | None:
        superseded = self._superseded.get(thread)
        for event in commit.events:
            if isinstance(event, TurnRestored):
                if superseded is None or event.n not in superseded:
                    return f"restores turn {event.n} of thread {thread}, which was not superseded"
                superseded.remove(event.n)
                if event.again:
                    self.restored.setdefault((thread, event.n), commit.seq)
            if not isinstance(event, TurnSuperseded):
                continue
            if not 1 <= event.n <= self.last.get(thread, 0):
                return f"supersedes turn {event.n} of thread {thread}, which was not recorded"
            if superseded is None:
                superseded = self._superseded.setdefault(thread, set())
            if event.n in superseded:
                return f"supersedes turn {event.n} of thread {thread}, which is superseded already"
            superseded.add(event.n)
        return None

    def _count(self, commit: Commit, thread: str, turns: TurnRange) -> None:
        first, last = turns.first, turns.last
        recorded = commit.events[len(commit.events) - (last - first + 1) :] if first <= last else ()
        stated = [event.turn.n if isinstance(event, TurnRecorded) else None for event in recorded]
        expected = self.last.get(thread, 0) + 1
        wrong = next((n for n, found in enumerate(stated, first) if found not in (None, n)), None)
        problem = None
        if first != expected:
            problem = f"the line records turn {first} of thread {thread}, where {expected} is the next"
        elif len(stated) != last - first + 1 or wrong is not None:
            problem = f"the line does not hold the turns {first} to {last} of thread {thread} that it states"
        if problem is not None:
            kind = "missing" if first > expected else "altered"
            self._check.found_here(kind, problem)
        self.last[thread] = max(last, expected - 1)


class _Claims:
    """The turns of one thread that ledger commits cover, in a compact array."""

    def __init__(self) -> None:
        self.covered: Ranges = []
        self.furthest = 0
        """The last turn that a commit names."""
        self.named_by = 0
        self.begun = 0
        self.ended = 0
        """The positions up to which first and last turns were compared with the transcript."""
        self.numbers = array("q")
        """For each claim: first and last turn, seq, and the transcript's seq at the last clear and at the claim."""

    def sort(self) -> None:
        """Sort the claims by their first turns; they nearly always are in order."""
        firsts = self.numbers[::_NUMBERS]
        if any(a > b for a, b in pairwise(firsts)):
            order = sorted(range(len(firsts)), key=firsts.__getitem__)
            self.numbers = array("q", [n for i in order for n in self.numbers[i * _NUMBERS : (i + 1) * _NUMBERS]])


class CoverageCheck:
    """Checks that the ledger covers each turn of the transcript once, and after it was recorded."""

    def __init__(self, check: StreamCheck) -> None:
        self._check = check
        self._threads: dict[str, _Claims] = {}
        self._cleared = 0
        self._sorted: set[str] = set()
        self._violations: dict[int, str] = {}
        self._again: list[tuple[Commit, str, int, int]] = []
        """Turns that a commit covers again, as it may do with restored turns."""

    def take(self, commit: Commit) -> None:
        """Collect the turns that a commit of the ledger names."""
        cause = commit.cause
        if cause.kind == "clear" and cause.transcript is not None:
            self._cleared = max(self._cleared, cause.transcript.seq)
        if cause.thread is None or self._check.damaged:
            return
        for turns in _named_turns(commit):
            self._note(commit, cause.thread, turns)
        if cause.turns is not None and commit.seq not in self._violations:
            self._cover(commit, cause.thread, cause.turns)
        if commit.seq in self._violations:
            self._check.impossible(commit, self._violations.pop(commit.seq))

    def _note(self, commit: Commit, thread: str, turns: TurnRange) -> None:
        if not 1 <= turns.first <= turns.last <= _ANY:
            self._violations[commit.seq] = f"names the turns {turns.first} to {turns.last} of thread {thread}"
            return
        claims = self._threads.setdefault(thread, _Claims())
        if turns.last > claims.furthest:
            claims.furthest, claims.named_by = turns.last, commit.seq

    def _cover(self, commit: Commit, thread: str, turns: TurnRange) -> None:
        claims, first, last = self._threads[thread], turns.first, turns.last
        before = ranges.overlap(claims.covered, first, last)
        if before:
            bare = msgspec.structs.replace(commit, events=())
            self._again += [(bare, thread, max(a, first), min(b, last)) for a, b in before]
            return
        ranges.add(claims.covered, first, last)
        pin = commit.cause.transcript
        claims.numbers.extend((first, last, commit.seq, self._cleared, _ANY if pin is None else min(pin.seq, _ANY)))

    # Comparison with the transcript.

    def record(self, commit: Commit) -> None:
        """Compare the covered turns with a commit of the transcript."""
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
                self._violations.setdefault(seq, f"covers turn {first} of thread {thread}, which a clear had covered")
            claims.begun += _NUMBERS
        while claims.ended < end and numbers[claims.ended + 1] <= turns.last:
            _, last, seq, _, pin = numbers[claims.ended : claims.ended + _NUMBERS]
            if commit.seq > pin:
                self._violations.setdefault(seq, f"covers turn {last} of thread {thread}, which was recorded later")
            claims.ended += _NUMBERS

    def judge(self, transcript: TranscriptCheck) -> None:
        """Report the impossible commits, after the whole transcript was read."""
        for thread, claims in self._threads.items():
            last = transcript.last.get(thread, 0)
            if claims.furthest > last:
                message = f"names turn {claims.furthest} of thread {thread}, of which {last} were recorded"
                self._violations.setdefault(claims.named_by, message)
        for commit, thread, first, last in self._again:
            pin = _ANY if commit.cause.transcript is None else commit.cause.transcript.seq
            restored = (transcript.restored.get((thread, n)) for n in range(first, last + 1))
            if any(seq is None or seq > pin for seq in restored):
                message = f"covers turns of thread {thread} that are covered already ({first} to {last})"
                self._violations.setdefault(commit.seq, f"({commit.cause.kind}) {message}")
        if not self._violations:
            return
        for number, record in enumerate(self._check.store.read(self._check.stream), 1):
            try:
                seq = head_of(record.line).seq
            except UNREADABLE:
                continue
            if seq in self._violations:
                message = f"commit {seq} {self._violations.pop(seq)}; {NOT_OURS}"
                self._check.found("impossible", number, record.byte, message)


def _named_turns(commit: Commit) -> Iterator[TurnRange]:
    """Yield the turns that a commit covers, parks or summarises."""
    cause = commit.cause
    if cause.turns is not None:
        yield cause.turns
    if cause.summarized is not None:
        yield cause.summarized
    for event in commit.events:
        if isinstance(event, UpdateFailed) and event.turns is not None:
            yield event.turns
