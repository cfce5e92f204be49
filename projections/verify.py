"""Is the log what was written, and is what people read what the log says?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from ledger.commit import EMPTY, UNREADABLE, Commit, Head, Inspection, decode, inspect
from ledger.errors import CorruptLogError
from ledger.events import Redacted, TurnRecorded
from ledger.memory import Fold, Memory
from ledger.scope import LEDGER, TRANSCRIPT, Scope
from ledger.store import EventStore, Record
from ledger.writer import read_commits
from projections.document import render, stated_moment
from projections.replay import memories_when

__all__ = ["Problem", "Verification", "verify"]


class Problem(msgspec.Struct, frozen=True):
    """One finding; `line` counts from 1 and `byte` from 0, both 0 where they say nothing."""

    kind: str
    stream: str
    line: int
    byte: int
    message: str


class Verification(msgspec.Struct, frozen=True):
    """What was checked and what was found; a torn tail alone leaves `ok` true: nobody was told it was there."""

    ok: bool
    commits: int
    turns: int
    problems: tuple[Problem, ...]


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


class _Walk:
    """One pass over one stream; goes on behind damage, so that one finding does not hide the next.

    `hashes` holds every intact line's hash by its seq, `places` where the seqs in `wanted` stand.
    """

    def __init__(self, store: EventStore, stream: str, wanted: Collection[int] = ()) -> None:
        self.store = store
        self.stream = stream
        self.problems: list[Problem] = []
        self.erased: list[tuple[_Line, int]] = []
        self.hashes: dict[int, str] = {}
        self.places: dict[int, _Line] = {}
        self.head = EMPTY
        self.unread = 0
        self.lines = 0
        self.end = 0
        self._wanted = wanted
        self._gaps: list[_Gap] = []
        self._loose: list[_Line] = []

    @property
    def damaged(self) -> bool:
        """Whether anything was found but a torn tail."""
        return any(problem.kind != "torn_tail" for problem in self.problems)

    def commits(self) -> Iterator[Commit]:
        """Yield the commits that are what was written, each once."""
        for number, record in enumerate(self.store.read(self.stream), 1):
            self.lines, self.end = number, record.byte + len(record.line) + 1
            commit = self._check(number, record)
            if commit is not None:
                yield commit
        self._judge_gaps()
        self._check_loose_links()
        self.problems.sort(key=lambda problem: problem.line)
        torn = self.store.torn_tail(self.stream)
        if torn is not None:
            told = f"{len(torn.line)} bytes cut short by a crash; the next write moves them aside"
            self.found("torn_tail", self.lines + 1, torn.byte, told)

    def found(self, kind: str, line: int, byte: int, message: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(kind, self.stream, line, byte, message))

    def _check(self, number: int, record: Record) -> Commit | None:
        try:
            found = inspect(record.line)
            problem = None if found.intact else "is not what was written: its hash does not match its content"
        except UNREADABLE as error:
            problem = f"is no commit ({error})"
        if problem is not None:
            self.found("altered", number, record.byte, f"the line {problem}")
            self.unread += 1
            return None
        line = _Line(found.seq, found.prev, number, record.byte)
        self.erased += [(line, index) for index in found.erased]
        repeated = found.seq in self.hashes
        self._place(line, found)
        if repeated:
            return None
        self.hashes[found.seq] = found.hash
        if found.seq in self._wanted:
            self.places[found.seq] = line
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
            self._loose.append(line)
            return
        if line.seq == self.head.seq + 1 and not self.unread:
            self._check_link(line, self.head.hash)
        else:
            self._loose.append(line)
        if line.seq > self.head.seq + 1 + self.unread:
            self._gaps.append(_Gap(self.head.seq + 1, line.seq - 1, self.unread, line))
            self.found("missing", line.number, line.byte, f"{told}: what belongs between them is missing")
        self.head = Head(line.seq, found.hash)
        self.unread = 0

    def _judge_gaps(self) -> None:
        """What a line skipped and a later line brought is not missing: the lines were put in another order."""
        for gap in self._gaps:
            wide = gap.last - gap.first >= len(self.hashes)
            seqs = self.hashes if wide else range(gap.first, gap.last + 1)
            there = sum(gap.first <= seq <= gap.last and seq in self.hashes for seq in seqs)
            if there + gap.unread > gap.last - gap.first:
                line = gap.line
                at = next(i for i, p in enumerate(self.problems) if (p.kind, p.line) == ("missing", line.number))
                told = f"the line has seq {line.seq} and stands before {gap.last}"
                self.problems[at] = Problem("reordered", self.stream, line.number, line.byte, told)

    def _check_loose_links(self) -> None:
        for line in self._loose:
            before = EMPTY.hash if line.seq == 1 else self.hashes.get(line.seq - 1)
            if before is not None:
                self._check_link(line, before)

    def _check_link(self, line: _Line, before: str) -> None:
        if line.prev != before:
            told = f"the line does not continue the commit before it, {line.seq - 1}"
            self.found("broken_prev", line.number, line.byte, told)


def verify(
    store: EventStore, scope: Scope, *, document: Path | None = None, expect_head: str | None = None
) -> Verification:
    """Check both chains of a scope, what they say of each other, and the document against the replay.

    `document` is memory.json's path, `expect_head` a hash that has to be in the ledger's chain. Others may go on
    writing meanwhile.

    Raises:
        StoreError: a log cannot be read, or is in a newer format.
    """
    ledger = _Walk(store, scope.stream(LEDGER))
    fold = Fold(Memory())
    explained: set[tuple[str, int, int]] = set()
    pins: dict[Head, int] = {}
    for commit in ledger.commits():
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        explained |= {(e.stream, e.seq, e.index) for e in commit.events if isinstance(e, Redacted)}
        if commit.cause.transcript is not None and commit.cause.transcript.seq > 0:
            pins.setdefault(commit.cause.transcript, commit.seq)
        _check_owner(commit, ledger, scope)
    # Read after the ledger, the transcript is never older than what the ledger says of it.
    transcript = _Walk(store, scope.stream(TRANSCRIPT), {pin.seq for pin in pins})
    turns = 0
    for commit in transcript.commits():
        turns += sum(isinstance(event, TurnRecorded) for event in commit.events)
        _check_owner(commit, transcript, scope)
    _check_pins(pins, transcript)
    problems = [*ledger.problems, *transcript.problems]
    for walk in (ledger, transcript):
        problems += _unexplained(walk, explained)
    if expect_head is not None and expect_head not in (ledger.hashes.values() or (EMPTY.hash,)):
        message = f"{expect_head} is not in the chain: its tail was cut off, or it is another ledger's"
        problems.append(Problem("head_not_found", ledger.stream, 0, 0, message))
    if document is not None and not ledger.damaged:
        problems += _check_document(document, store, scope, fold, ledger.head)
    ok = all(problem.kind == "torn_tail" for problem in problems)
    return Verification(ok, ledger.lines, turns, tuple(problems))


def _check_owner(commit: Commit, walk: _Walk, scope: Scope) -> None:
    """The first commit says whose stream it is, so that nobody's memory can be laid in another's place."""
    if commit.seq != 1 or commit.cause.kind == "erased":
        return
    owner = Scope(commit.cause.user, commit.cause.agent)
    if owner != scope:
        walk.found("altered", 1, 0, f"the log is that of {owner}, not of {scope}: was the file put in its place?")


def _check_pins(pins: dict[Head, int], transcript: _Walk) -> None:
    """A commit names the transcript's head it was made on: if that is gone, words were cut off behind its back."""
    lost = [pin for pin in pins if pin.seq > transcript.head.seq + transcript.unread]
    if lost:
        pin = max(lost, key=lambda pin: pin.seq)
        told = f"commit {pins[pin]} of the ledger was made on turns up to commit {pin.seq} here, which is not there"
        transcript.found("missing", transcript.lines + 1, transcript.end, told)
    others = [pin for pin in pins if transcript.hashes.get(pin.seq, pin.hash) != pin.hash]
    if others:
        pin = min(others, key=lambda pin: pin.seq)
        place = transcript.places[pin.seq]
        told = f"commit {pins[pin]} of the ledger was made on another commit {pin.seq} than the one here"
        transcript.found("altered", place.number, place.byte, told)


def _unexplained(walk: _Walk, explained: set[tuple[str, int, int]]) -> Iterator[Problem]:
    for line, index in walk.erased:
        if (walk.stream, line.seq, index) not in explained:
            told = f"{'the cause' if index < 0 else f'event {index}'} of commit {line.seq} was erased"
            message = f"{told} and no redaction says so"
            yield Problem("unexplained_redaction", walk.stream, line.number, line.byte, message)


def _check_document(path: Path, store: EventStore, scope: Scope, fold: Fold, head: Head) -> list[Problem]:
    try:
        data = _read(path)
        if data is None or data == render(fold.memory()):
            return []
        # Somebody may have committed since the ledger was read.
        for commit in read_commits(store, scope.stream(LEDGER), head):
            fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        data, expected = _read(path), render(fold.memory())
        if data is None or data == expected:
            return []
        moment = stated_moment(data)
        past = [] if moment is None else memories_when(store, scope, moment)
        lags = next((memory.seq for memory in past if render(memory) == data), None)
    except OSError as error:
        return [Problem("document_differs", path.name, 0, 0, f"{path} cannot be read: {error.strerror}")]
    except CorruptLogError as error:
        return [Problem(error.kind, error.stream, error.line, error.byte, str(error))]
    same = next(
        (i for i, (a, b) in enumerate(zip(data, expected, strict=False)) if a != b), min(len(data), len(expected))
    )
    line = data.count(b"\n", 0, same) + 1
    if lags is not None:
        told = f"{path} lags behind: it shows commit {lags} of {fold.seq}; the next commit brings it up to date"
    else:
        told = f"{path} is not what the ledger says at commit {fold.seq}; the next commit moves it aside"
    return [Problem("document_differs", path.name, line, same, told)]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
