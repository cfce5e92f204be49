"""Is the log what was written, and is what people read what the log says?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ledger.commit import EMPTY, Commit, Head, follows, inspect, unseal
from ledger.errors import BackstoryError
from ledger.events import Redacted, TurnRecorded
from ledger.memory import Fold, Memory
from ledger.scope import LEDGER, TRANSCRIPT, Scope
from ledger.store import EventStore, Record
from projections.document import render

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


class _Erasure(msgspec.Struct, frozen=True):
    stream: str
    seq: int
    index: int
    line: int
    byte: int


class _Walk:
    """One pass over one stream; goes on behind damage, so that one finding does not hide the next."""

    def __init__(self, store: EventStore, stream: str) -> None:
        self.store = store
        self.stream = stream
        self.problems: list[Problem] = []
        self.erasures: list[_Erasure] = []
        self.hashes: dict[str, int] = {}
        self.head = EMPTY
        self.lines = 0

    def commits(self) -> Iterator[Commit]:
        """Yield the commits that are what was written."""
        for number, record in enumerate(self.store.read(self.stream), 1):
            self.lines = number
            commit = self._check(number, record)
            if commit is not None:
                yield commit
        torn = self.store.torn_tail(self.stream)
        if torn is not None:
            self._found(
                "torn_tail",
                self.lines + 1,
                torn.byte,
                f"{len(torn.line)} bytes cut short by a crash; the next write moves them aside",
            )

    def _found(self, kind: str, line: int, byte: int, message: str) -> None:
        self.problems.append(Problem(kind, self.stream, line, byte, message))

    def _check(self, number: int, record: Record) -> Commit | None:
        try:
            found = inspect(record.line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._found("altered", number, record.byte, f"the line is no commit ({error})")
            self.head = Head(self.head.seq + 1, "")
            return None
        # Behind a line whose hash is unknown only the order can be told, not the link.
        after = Head(self.head.seq, found.prev) if not self.head.hash else self.head
        problem = follows(found, after)
        if problem is not None:
            self._found(problem[0], number, record.byte, f"the line {problem[1]}")
        commit = None
        if found.intact:
            self.hashes[found.hash] = found.seq
            self.erasures += [_Erasure(self.stream, found.seq, i, number, record.byte) for i in found.erased]
            if problem is None:
                commit = self._read(number, record, found.prev)
        if found.seq > self.head.seq:
            self.head = Head(found.seq, found.hash)
        return commit

    def _read(self, number: int, record: Record, prev: str) -> Commit | None:
        try:
            return unseal(record.line, Head(self.head.seq, prev), stream=self.stream, byte=record.byte)
        except BackstoryError as error:
            self._found("altered", number, record.byte, str(error))
            return None


def verify(
    store: EventStore, scope: Scope, *, document: Path | None = None, expect_head: str | None = None
) -> Verification:
    """Check both chains of a scope, what they say of each other, and the document against the replay.

    `document` is memory.json's path, `expect_head` a hash that has to be in the ledger's chain.
    """
    transcript = _Walk(store, scope.stream(TRANSCRIPT))
    turns = sum(isinstance(event, TurnRecorded) for commit in transcript.commits() for event in commit.events)
    ledger = _Walk(store, scope.stream(LEDGER))
    fold = Fold(Memory())
    explained: set[tuple[str, int, int]] = set()
    for commit in ledger.commits():
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        explained |= {(e.stream, e.seq, e.index) for e in commit.events if isinstance(e, Redacted)}
        _check_pin(commit, transcript)
    problems = [*ledger.problems, *transcript.problems]
    problems += _unexplained([*ledger.erasures, *transcript.erasures], explained)
    if expect_head is not None and expect_head != EMPTY.hash and expect_head not in ledger.hashes:
        message = f"{expect_head} is not in the chain: its tail was cut off, or it is another ledger's"
        problems.append(Problem("head_not_found", ledger.stream, 0, 0, message))
    if document is not None and not any(problem.kind != "torn_tail" for problem in ledger.problems):
        problems += _check_document(document, fold.memory())
    ok = all(problem.kind == "torn_tail" for problem in problems)
    return Verification(ok, ledger.lines, turns, tuple(problems))


def _check_pin(commit: Commit, transcript: _Walk) -> None:
    """A commit names the transcript's head it was made on: if that is gone, words were cut off behind its back."""
    pin = commit.cause.transcript
    if pin is None or pin.seq == 0 or transcript.hashes.get(pin.hash) == pin.seq:
        return
    if any(problem.kind != "torn_tail" for problem in transcript.problems):
        return
    message = f"commit {commit.seq} of the ledger was made on turns up to commit {pin.seq} here, which is not there"
    transcript.problems.append(Problem("missing", transcript.stream, pin.seq, 0, message))


def _unexplained(erasures: list[_Erasure], explained: set[tuple[str, int, int]]) -> list[Problem]:
    return [
        Problem(
            "unexplained_redaction",
            erasure.stream,
            erasure.line,
            erasure.byte,
            f"event {erasure.index} of commit {erasure.seq} was erased and no redaction says so",
        )
        for erasure in erasures
        if (erasure.stream, erasure.seq, erasure.index) not in explained
    ]


def _check_document(path: Path, memory: Memory) -> list[Problem]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        return [Problem("document_differs", path.name, 0, 0, f"{path} cannot be read: {error.strerror}")]
    expected = render(memory)
    if data == expected:
        return []
    same = next(
        (i for i, (a, b) in enumerate(zip(data, expected, strict=False)) if a != b), min(len(data), len(expected))
    )
    line = data.count(b"\n", 0, same) + 1
    return [
        Problem("document_differs", path.name, line, same, f"{path} is not what the ledger says at commit {memory.seq}")
    ]
