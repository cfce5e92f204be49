"""One pass over one stream: is every line what was written, and does it stand where it was written?

It goes on behind damage, so that one finding does not hide the next, and keeps 32 bytes a line, so that a million lines
are checked in little memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

import msgspec

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Head, Inspection, decode, inspect
from backstory.ledger.log.store import EventStore, Record

__all__ = ["Hashes", "Problem", "Slot", "StreamCheck"]

_MOST_TOLD = 1_000
_WHOLE = ("torn_tail", "impossible")
"""Kinds of problem that leave the lines as they are: they can be read and folded."""
_LARGEST_SEQ = 2**63 - 1
_HASH_BYTES = 32
_GONE = bytes(_HASH_BYTES)
_SPARE = 4_096


class Problem(msgspec.Struct, frozen=True):
    """One finding; `line` counts from 1 and `byte` from 0, both 0 where they say nothing."""

    kind: str
    stream: str
    line: int
    byte: int
    message: str


class Slot(msgspec.Struct, frozen=True):
    """A content that was erased: which one (index -1: the cause), and where its line stands."""

    seq: int
    index: int
    line: int
    byte: int


class _Line(msgspec.Struct, frozen=True):
    """A line that is what somebody sealed, and where it stands."""

    seq: int
    prev: str
    number: int
    byte: int


class _Gap(msgspec.Struct, frozen=True):
    """Seqs that a line skips; `unread` lines before it may hold some of them."""

    first: int
    last: int
    unread: int
    line: _Line


class Hashes:
    """Hashes by seq, all in hex. A dict of a million would take 250 MB; side by side they take 32."""

    def __init__(self) -> None:
        self._dense = bytearray()
        self._far: dict[int, bytes] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, seq: int) -> bool:
        return self.get(seq) is not None

    def get(self, seq: int) -> str | None:
        """Return the hash of a seq; None where there is none."""
        start = (seq - 1) * _HASH_BYTES
        found = bytes(self._dense[start : start + _HASH_BYTES]) if 0 <= start < len(self._dense) else _GONE
        if found == _GONE:
            found = self._far.get(seq, _GONE)
        return None if found == _GONE else found.hex()

    def add(self, seq: int, digest: str) -> None:
        """Keep a hash. What one line claims of its seq must not cost more than lines do."""
        self._count += 1
        end = seq * _HASH_BYTES
        if seq > 2 * self._count + _SPARE:
            self._far[seq] = bytes.fromhex(digest)
            return
        if end > len(self._dense):
            self._dense.extend(bytes(end - len(self._dense)))
        self._dense[end - _HASH_BYTES : end] = bytes.fromhex(digest)


class _Slots:
    """Erased contents, side by side: an erasure of everything leaves a stub for each event there ever was."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, slot: Slot) -> None:
        self._numbers.extend((slot.seq, slot.index, slot.line, slot.byte))

    def __iter__(self) -> Iterator[Slot]:
        numbers = iter(self._numbers)
        return (Slot(*four) for four in zip(numbers, numbers, numbers, numbers, strict=True))


class StreamCheck:
    """The pass, and what it found.

    `hashes` holds every intact line's hash by its seq, until `forget_hashes`; `found_sought` says whether the hash that
    is sought was among them. `lines` counts the whole lines read, `byte` and `end` are where the last begins and ends.
    """

    def __init__(self, store: EventStore, stream: str, sought: str | None = None) -> None:
        self.store = store
        self.stream = stream
        self.erased = _Slots()
        self.hashes = Hashes()
        self.head = EMPTY
        self.unread = 0
        self.lines = 0
        self.byte = 0
        self.end = 0
        self.found_sought = False
        self._sought = sought
        self._problems: list[Problem] = []
        self._told: Counter[str] = Counter()
        self._untold: dict[str, Problem] = {}
        self._gaps: list[_Gap] = []
        self._late = array("q")
        self._loose: list[_Line] = []

    @property
    def damaged(self) -> bool:
        """Whether a line was found that is not what was written, or not where it was written, so far."""
        return bool(self._gaps) or any(kind not in _WHOLE for kind in self._told)

    def commits(self) -> Iterator[Commit]:
        """Yield the commits that are what was written, each once; meanwhile `lines` and `byte` say where it stands."""
        for number, record in enumerate(self.store.read(self.stream), 1):
            self.lines, self.byte, self.end = number, record.byte, record.byte + len(record.line) + 1
            commit = self._check(number, record)
            if commit is not None:
                yield commit
        self._judge_gaps()
        self._check_loose_links()
        torn = self.store.torn_tail(self.stream)
        # Where it begins elsewhere, somebody has written since the lines were read, and has dealt with it.
        if torn is not None and torn.byte == self.end:
            told = f"{len(torn.line)} bytes cut short by a crash; the next write moves them aside, or `repair`"
            self.found("torn_tail", self.lines + 1, torn.byte, told)

    def found(self, kind: str, line: int, byte: int, message: str) -> None:
        """Note a problem; of one kind so many are told in full, the others are counted."""
        self._told[kind] += 1
        problem = Problem(kind, self.stream, line, byte, message)
        if self._told[kind] <= _MOST_TOLD:
            self._problems.append(problem)
        else:
            self._untold.setdefault(kind, problem)

    @property
    def problems(self) -> list[Problem]:
        """What was found, in the order of the lines."""
        rest = [
            msgspec.structs.replace(
                problem,
                message=f"{problem.message}; {self._told[kind] - _MOST_TOLD - 1} more of this kind are not told",
            )
            for kind, problem in self._untold.items()
        ]
        return sorted([*self._problems, *rest], key=lambda problem: problem.line)

    def forget_hashes(self) -> None:
        """Let go of the hashes when nobody asks for them any more."""
        self.hashes = Hashes()

    def _check(self, number: int, record: Record) -> Commit | None:
        try:
            found = inspect(record.line)
            problem = None if found.intact else "is not what was written: its hash does not match its content"
            if problem is None and not 0 < found.seq <= _LARGEST_SEQ:
                problem = f"has seq {found.seq}, which no commit can have"
        except UNREADABLE as error:
            problem = f"is no commit ({error})"
        if problem is not None:
            self.found("altered", number, record.byte, f"the line {problem}")
            self.unread += 1
            return None
        line = _Line(found.seq, found.prev, number, record.byte)
        for index in found.erased:
            self.erased.add(Slot(found.seq, index, number, record.byte))
        repeated = found.seq in self.hashes
        self._place(line, found)
        if repeated:
            return None
        self.hashes.add(found.seq, found.hash)
        self.found_sought = self.found_sought or found.hash == self._sought
        try:
            return decode(record.line)
        except UNREADABLE as error:
            self.found("altered", number, record.byte, f"the line cannot be read ({error})")
            return None

    def _place(self, line: _Line, found: Inspection) -> None:
        """Judge where an intact line stands; behind lines that cannot be read only the order can be told."""
        told = f"the line has seq {line.seq} after {self.head.seq}"
        if line.seq in self.hashes:
            self.found("duplicate_seq", line.number, line.byte, f"{told}, which is there already")
            return
        if line.seq <= self.head.seq:
            self.found("reordered", line.number, line.byte, told)
            self._late.append(line.seq)
            self._loose.append(line)
            return
        if line.seq == self.head.seq + 1 and not self.unread:
            self._check_link(line, self.head.hash)
        else:
            self._loose.append(line)
        if line.seq > self.head.seq + 1 + self.unread:
            self._gaps.append(_Gap(self.head.seq + 1, line.seq - 1, self.unread, line))
        self.head = Head(line.seq, found.hash)
        self.unread = 0

    def _judge_gaps(self) -> None:
        """What a line skipped and a later line brought is not missing: the lines were put in another order."""
        late = sorted(self._late) if self._gaps else []
        for gap in self._gaps:
            line = gap.line
            brought = bisect_right(late, gap.last) - bisect_left(late, gap.first)
            if brought + gap.unread > gap.last - gap.first:
                self.found(
                    "reordered", line.number, line.byte, f"the line has seq {line.seq} and stands before {gap.last}"
                )
            else:
                told = f"the line has seq {line.seq} after {gap.first - 1}: what belongs between them is missing"
                self.found("missing", line.number, line.byte, told)

    def _check_loose_links(self) -> None:
        for line in self._loose:
            before = EMPTY.hash if line.seq == 1 else self.hashes.get(line.seq - 1)
            if before is not None:
                self._check_link(line, before)

    def _check_link(self, line: _Line, before: str) -> None:
        if line.prev != before:
            told = f"the line does not continue the commit before it, {line.seq - 1}"
            self.found("broken_prev", line.number, line.byte, told)
