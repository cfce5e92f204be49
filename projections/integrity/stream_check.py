"""Stream check: one pass over a stream that verifies the hash, the seq and the link of each line.

The check continues after damage, so that one finding does not hide the next. It keeps 32 bytes per line, so that a
million lines take little memory.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

import msgspec

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Head, Inspection, decode, inspect
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.events import Erased, Redacted
from backstory.ledger.engines.port import EventStore, Record

NOT_OURS = "its hash is valid, but no rule writes such a commit"
"""The end of each message of an impossible commit."""

_MOST_REPORTED = 1_000
_WHOLE = ("torn_tail", "impossible")
"""The kinds of problem that do not prevent reading and folding the lines."""
_LARGEST_SEQ = 2**63 - 1
_HASH_BYTES = 32
_GONE = bytes(_HASH_BYTES)
_SPARE = 4_096


class Problem(msgspec.Struct, frozen=True):
    """One finding; `line` counts from 1 and `byte` from 0, and both are 0 where they do not apply."""

    kind: str
    stream: str
    line: int
    byte: int
    message: str


class Slot(msgspec.Struct, frozen=True):
    """Erased content: its commit, its event (-1 for the cause), and the position of its line."""

    seq: int
    index: int
    line: int
    byte: int

    def __str__(self) -> str:
        return f"{'the cause' if self.index < 0 else f'event {self.index}'} of commit {self.seq}"


def stubs_of(commit: Commit) -> set[int]:
    """Return the indexes of a commit's stubs, erased as they are; -1 is the cause."""
    stubs = {index for index, event in enumerate(commit.events) if isinstance(event, Erased)}
    return stubs | {-1} if commit.cause.kind == "erased" else stubs


class _Line(msgspec.Struct, frozen=True):
    """An intact line and its position."""

    seq: int
    prev: str
    number: int
    byte: int


class _Gap(msgspec.Struct, frozen=True):
    """Seqs that a line skips; the `unread` lines before it may hold some of them."""

    first: int
    last: int
    unread: int
    line: _Line


class Hashes:
    """Hashes by seq, in hex; a million take 32 MB in a byte array, and 250 MB in a dict."""

    def __init__(self) -> None:
        self._dense = bytearray()
        self._far: dict[int, bytes] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, seq: int) -> bool:
        return self.get(seq) is not None

    def get(self, seq: int) -> str | None:
        """Return the hash of a seq, or None."""
        start = (seq - 1) * _HASH_BYTES
        found = bytes(self._dense[start : start + _HASH_BYTES]) if 0 <= start < len(self._dense) else _GONE
        if found == _GONE:
            found = self._far.get(seq, _GONE)
        return None if found == _GONE else found.hex()

    def add(self, seq: int, digest: str) -> None:
        """Add a hash; a line with a huge seq goes to a dict, so that it does not enlarge the array."""
        self._count += 1
        end = seq * _HASH_BYTES
        if seq > 2 * self._count + _SPARE:
            self._far[seq] = bytes.fromhex(digest)
            return
        if end > len(self._dense):
            self._dense.extend(bytes(end - len(self._dense)))
        self._dense[end - _HASH_BYTES : end] = bytes.fromhex(digest)


class _Slots:
    """Erased slots in a compact array: erasing everything leaves a stub for each event."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, slot: Slot) -> None:
        self._numbers.extend((slot.seq, slot.index, slot.line, slot.byte))

    def __iter__(self) -> Iterator[Slot]:
        numbers = iter(self._numbers)
        return (Slot(*four) for four in zip(numbers, numbers, numbers, numbers, strict=True))


class StreamCheck:
    """Checks a stream while its commits are read.

    Attributes:
        erased: the erased slots.
        hashes: the hash of every intact line by seq, until `forget_hashes`.
        head: the last commit in order.
        found_sought: whether one of the hashes is the `sought` one.
        lines: the whole lines read.
        byte: where the last line begins.
        end: where the last line ends.
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
        self._counts: Counter[str] = Counter()
        self._unreported: dict[str, Problem] = {}
        self._gaps: list[_Gap] = []
        self._late = array("q")
        self._loose: list[_Line] = []

    @property
    def damaged(self) -> bool:
        """Whether a line read so far is damaged or out of order."""
        return bool(self._gaps) or any(kind not in _WHOLE for kind in self._counts)

    def commits(self) -> Iterator[Commit]:
        """Yield each intact commit once; `lines` and `byte` give its position."""
        for number, record in enumerate(self.store.read(self.stream), 1):
            self.lines, self.byte, self.end = number, record.byte, record.byte + len(record.line) + 1
            commit = self._check(number, record)
            if commit is not None:
                yield commit
        self._judge_gaps()
        self._check_loose_links()
        torn = self.store.torn_tail(self.stream)
        # A tail that begins elsewhere belongs to a write made since the lines were read.
        if torn is not None and torn.byte == self.end:
            message = f"{len(torn.line)} bytes cut short by a crash; the next write or `repair` moves them aside"
            self.found("torn_tail", self.lines + 1, torn.byte, message)

    def found(self, kind: str, line: int, byte: int, message: str) -> None:
        """Add a problem; after a thousand of one kind the others are only counted."""
        self._counts[kind] += 1
        problem = Problem(kind, self.stream, line, byte, message)
        if self._counts[kind] <= _MOST_REPORTED:
            self._problems.append(problem)
        else:
            self._unreported.setdefault(kind, problem)

    def found_here(self, kind: str, message: str) -> None:
        """Add a problem of the line that was read last."""
        self.found(kind, self.lines, self.byte, message)

    def impossible(self, commit: Commit, violation: str) -> None:
        """Add the problem of a commit, read last, that no rule writes."""
        self.found_here("impossible", f"commit {commit.seq} ({commit.cause.kind}) {violation}; {NOT_OURS}")

    @property
    def problems(self) -> list[Problem]:
        """The problems, in the order of the lines."""
        rest = [
            msgspec.structs.replace(
                problem,
                message=f"{problem.message}; {self._counts[kind] - _MOST_REPORTED - 1} more of this kind not listed",
            )
            for kind, problem in self._unreported.items()
        ]
        return sorted([*self._problems, *rest], key=lambda problem: problem.line)

    def forget_hashes(self) -> None:
        """Free the hashes."""
        self.hashes = Hashes()

    def _check(self, number: int, record: Record) -> Commit | None:
        try:
            found = inspect(record.line)
            problem = None if found.intact else "was altered: its hash does not match its content"
            if problem is None and not 0 < found.seq <= _LARGEST_SEQ:
                problem = f"has the invalid seq {found.seq}"
        except UNREADABLE as error:
            problem = f"is not a commit ({error})"
        if problem is not None:
            self.found_here("altered", f"the line {problem}")
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
            commit = decode(record.line)
        except UNREADABLE as error:
            self.found_here("altered", f"the line cannot be read ({error})")
            return None
        for index in stubs_of(commit).difference(found.erased):
            # Only a forger writes one: it would pass for an erasure that needs no redaction.
            slot = Slot(found.seq, index, number, record.byte)
            self.found_here("impossible", f"{slot} is a stub, and has the salt of content: forged")
        return commit

    def _place(self, line: _Line, found: Inspection) -> None:
        """Check the position of an intact line; after unreadable lines only the order can be checked."""
        position = f"the line has seq {line.seq} after {self.head.seq}"
        if line.seq in self.hashes:
            self.found_here("duplicate_seq", f"{position}, which exists already")
            return
        if line.seq <= self.head.seq:
            self.found_here("reordered", position)
            self._late.append(line.seq)
            self._loose.append(line)
            return
        if line.seq == self.head.seq + 1:
            self._check_link(line, self.head.hash)
        else:
            self._loose.append(line)
        if line.seq > self.head.seq + 1 + self.unread:
            self._gaps.append(_Gap(self.head.seq + 1, line.seq - 1, self.unread, line))
        self.head = Head(line.seq, found.hash)
        self.unread = 0

    def _judge_gaps(self) -> None:
        """Report skipped seqs: as reordered where later lines hold them, otherwise as missing."""
        late = sorted(self._late) if self._gaps else []
        for gap in self._gaps:
            line = gap.line
            found_later = bisect_right(late, gap.last) - bisect_left(late, gap.first)
            if found_later + gap.unread > gap.last - gap.first:
                self.found(
                    "reordered", line.number, line.byte, f"the line has seq {line.seq} but comes before {gap.last}"
                )
            else:
                message = f"the line has seq {line.seq} after {gap.first - 1}: the commits between them are missing"
                self.found("missing", line.number, line.byte, message)

    def _check_loose_links(self) -> None:
        for line in self._loose:
            before = EMPTY.hash if line.seq == 1 else self.hashes.get(line.seq - 1)
            if before is not None:
                self._check_link(line, before)

    def _check_link(self, line: _Line, before: str) -> None:
        if line.prev != before:
            message = f"the line does not continue the commit before it, {line.seq - 1}"
            self.found("broken_prev", line.number, line.byte, message)


_UNDO_OR_REDACTION = re.compile(rb'\{"v":\d+,"seq":\d+,"at":"[^"]*","cause":\{"kind":"(?:redaction|revert|rollback)"')


class LaterReferences:
    """References of later commits to earlier ones: the subjects of stubs, and the commits that are undone."""

    def __init__(self, store: EventStore, stream: str) -> None:
        self._erased: dict[tuple[int, int], tuple[str | None, str | None]] = {}
        self.undone: dict[tuple[str, int], int] = {}
        """The last commit that reverts a commit, or rolls back to it, by its kind and its target."""
        names: dict[str | None, str | None] = {}
        for commit in _undos_and_redactions(store, stream):
            target = commit.cause.target
            if target is not None:
                self.undone[commit.cause.kind, target] = commit.seq
            for event in commit.events:
                if isinstance(event, Redacted) and event.stream == stream and event.seq < commit.seq:
                    subject = (names.setdefault(event.fact, event.fact), names.setdefault(event.section, event.section))
                    self._erased.setdefault((event.seq, event.index), subject)

    def subject(self, seq: int, index: int) -> tuple[str | None, str | None] | None:
        """Return the fact and the section of an erased event, or None where no redaction names it."""
        return self._erased.get((seq, index))


def _undos_and_redactions(store: EventStore, stream: str) -> Iterator[Commit]:
    """Yield the redactions and undos; the stream check reports lines that cannot be read."""
    for record in store.read(stream):
        if _UNDO_OR_REDACTION.match(record.line) is not None:
            try:
                yield decode(record.line)
            except (*UNREADABLE, StoreError):
                continue
