"""Verification of one scope: is the log what was written, could it have been, and do its readers show what it says?"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Head, head_of
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import TurnRecorded
from backstory.ledger.core.memory import Fold
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.log.clock import Clock, SystemClock
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.writer import read_commits
from backstory.projections.document.document import render, stated_moment
from backstory.projections.history.replay import memories_when
from backstory.projections.integrity.ledger_check import LedgerCheck
from backstory.projections.integrity.redaction_check import RedactionCheck
from backstory.projections.integrity.stream_check import Problem, StreamCheck
from backstory.projections.integrity.turn_check import CoverageCheck, TranscriptCheck
from backstory.projections.integrity.witnessed import WITNESS, Witnessed, judge

__all__ = ["INDEX", "Problem", "Verification", "verify"]

INDEX = "index.sqlite"
"""What a problem of the index names as its stream."""

_HASH_BYTES = 32
_LAG_SECONDS = 0.2
"""memory.json is written at most 100 ms after a commit, by whoever made it."""


class Verification(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was checked and what was found; a torn tail alone leaves `ok` true: nobody was told it was there.

    `notes` say what could not be checked and is no fault, such as a witness that cannot be read from here.
    """

    ok: bool
    commits: int
    turns: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()


class _Pins:
    """Which commit of the ledger was made on which head of the transcript; side by side, for there may be a million."""

    def __init__(self) -> None:
        self._seqs = array("Q")
        self._commits = array("Q")
        self._hashes = bytearray()
        self._last = EMPTY

    def take(self, commit: Commit) -> None:
        pin = commit.cause.transcript
        if pin is None or pin.seq <= 0 or pin == self._last:
            return
        self._last = pin
        self._seqs.append(min(pin.seq, 2**63))
        self._commits.append(commit.seq)
        self._hashes += _raw(pin.hash)

    def judge(self, transcript: StreamCheck) -> None:
        """A commit names the transcript's head it was made on: if that is gone, words were cut off behind its back."""
        if not self._seqs:
            return
        last = max(range(len(self._seqs)), key=self._seqs.__getitem__)
        if self._seqs[last] > transcript.head.seq + transcript.unread:
            made = f"commit {self._commits[last]} of the ledger was made on turns up to commit {self._seqs[last]} here"
            transcript.found("missing", transcript.lines + 1, transcript.end, f"{made}, which is not there")
        others = [
            place
            for place, seq in enumerate(self._seqs)
            if (known := transcript.hashes.get(seq)) is not None
            and _raw(known) != self._hashes[_HASH_BYTES * place : _HASH_BYTES * (place + 1)]
        ]
        if others:
            first = min(others, key=self._seqs.__getitem__)
            seq = self._seqs[first]
            number, byte = _place_of(transcript, seq)
            told = f"commit {self._commits[first]} of the ledger was made on another commit {seq} than the one here"
            transcript.found("altered", number, byte, told)


def _raw(digest: str) -> bytes:
    """Half the room; what is no hash is none that any commit has."""
    try:
        return bytes.fromhex(digest)[:_HASH_BYTES].ljust(_HASH_BYTES, b"\0")
    except ValueError:
        return bytes(_HASH_BYTES)


def _place_of(check: StreamCheck, seq: int) -> tuple[int, int]:
    """Find the line and byte of a commit by its hash, once more from the start: nobody keeps a million places."""
    digest = check.hashes.get(seq)
    for number, record in enumerate(check.store.read(check.stream), 1):
        try:
            if head_of(record.line).hash == digest:
                return number, record.byte
        except UNREADABLE:
            continue
    return 0, 0


def verify(
    store: EventStore,
    scope: Scope,
    *,
    document: Path | None = None,
    index: Callable[[], Sequence[str]] | None = None,
    expect_head: str | None = None,
    witnessed: Sequence[Witnessed] = (),
    clock: Clock | None = None,
) -> Verification:
    """Check both chains of a scope, what they say of each other and of memory, and the read models against the replay.

    A commit whose hash is right, but that no rule could have written on the memory it follows, is `impossible`: see
    `backstory.projections.integrity.ledger_check` and `backstory.projections.integrity.turn_check`.

    `document` is memory.json's path, `index` tells in what the derived index differs from the log, `expect_head` is a
    hash that has to be in the ledger's chain. `witnessed` are heads that were put down elsewhere, read before this is
    called; each of them has to be in its chain. Others may go on writing meanwhile. Of one kind of problem in one
    stream a thousand are told in full, the rest counted.

    Raises:
        StoreError: a log cannot be read, or is in a newer format.
    """
    ledger = StreamCheck(store, scope.stream(LEDGER), expect_head)
    meaning = LedgerCheck(ledger, scope)
    coverage = CoverageCheck(ledger)
    redactions = RedactionCheck(store, scope)
    pins = _Pins()
    for commit in ledger.commits():
        _check_first(commit, ledger, scope, LEDGER)
        meaning.take(commit)
        coverage.take(commit)
        redactions.take(commit)
        pins.take(commit)
    found_head = ledger.found_sought or (expect_head == EMPTY.hash and not len(ledger.hashes))
    not_found = [problem for one in witnessed for problem in judge(one.ledger, one.where, ledger)]
    ledger.forget_hashes()
    # Read after the ledger, the transcript is never older than what the ledger says of it.
    transcript = StreamCheck(store, scope.stream(TRANSCRIPT))
    said = TranscriptCheck(transcript)
    turns = 0
    for commit in transcript.commits():
        turns += sum(isinstance(event, TurnRecorded) for event in commit.events)
        _check_first(commit, transcript, scope, TRANSCRIPT)
        said.take(commit)
        coverage.record(commit)
    pins.judge(transcript)
    if said.sure and not transcript.damaged and not ledger.damaged:
        coverage.judge(said)
    redactions.judge(ledger, transcript)
    not_found += [problem for one in witnessed for problem in judge(one.transcript, one.where, transcript)]
    problems = [*ledger.problems, *transcript.problems, *not_found]
    problems += [Problem("witness_unreadable", WITNESS, 0, 0, told) for one in witnessed for told in one.problems]
    if expect_head is not None and not found_head:
        message = f"{expect_head} is not in the chain: its tail was cut off, or it is another ledger's"
        problems.append(Problem("head_not_found", ledger.stream, 0, 0, message))
    if not ledger.damaged:
        if document is not None:
            problems += _Document(document, store, scope, meaning.fold, ledger.head).check(clock or SystemClock())
        if index is not None:
            problems += [Problem("index_differs", INDEX, 0, 0, told) for told in index()]
    ok = all(problem.kind == "torn_tail" for problem in problems)
    notes = tuple(note for one in witnessed for note in one.notes)
    return Verification(ok, ledger.lines, turns, tuple(problems), notes)


def _check_first(commit: Commit, check: StreamCheck, scope: Scope, stream: str) -> None:
    """The first commit says whose stream it is, and of which kind: nobody's memory can be laid in another's place."""
    if commit.seq != 1 or commit.cause.kind == "erased":
        return
    owner = Scope(commit.cause.user, commit.cause.agent)
    if owner != scope:
        told = f"the log is that of {owner}, not of {scope}: was the file put in its place?"
        check.found("altered", check.lines, check.byte, told)
    is_a = TRANSCRIPT if commit.cause.kind == "record" else LEDGER
    if is_a != stream:
        check.found(
            "altered", check.lines, check.byte, f"the log is a {is_a}, not a {stream}: were the files exchanged?"
        )


class _Difference(msgspec.Struct, frozen=True):
    """What the document says and should say; `lags` is the commit that it shows, where it shows an earlier one."""

    data: bytes
    expected: bytes
    lags: int | None


class _Document:
    """memory.json beside the ledger, which others may be writing both; `fold` is the ledger folded up to `head`."""

    def __init__(self, path: Path, store: EventStore, scope: Scope, fold: Fold, head: Head) -> None:
        self._path = path
        self._store = store
        self._scope = scope
        self._fold = fold
        self._head = head

    def check(self, clock: Clock) -> list[Problem]:
        """Tell where the document differs; one that lags is given the time that whoever committed has to write it."""
        name = self._path.name
        try:
            found = self._difference()
            if found is not None and found.lags is not None:
                clock.sleep(_LAG_SECONDS)
                found = self._difference()
        except OSError as error:
            return [Problem("document_differs", name, 0, 0, f"{self._path} cannot be read: {error.strerror}")]
        except CorruptLogError as error:
            return [Problem(error.kind, error.stream, error.line, error.byte, str(error))]
        if found is None:
            return []
        shorter = min(len(found.data), len(found.expected))
        same = next((i for i in range(shorter) if found.data[i] != found.expected[i]), shorter)
        line = found.data.count(b"\n", 0, same) + 1
        if found.lags is not None:
            told = (
                f"lags behind: it shows commit {found.lags} of {self._fold.seq}; the next commit brings it up to date"
            )
        else:
            told = f"is not what the ledger says at commit {self._fold.seq}; the next commit moves it aside"
        return [Problem("document_differs", name, line, same, f"{self._path} {told}")]

    def _difference(self) -> _Difference | None:
        data = _read(self._path)
        # Somebody may have committed since the ledger was read, and have written the document since or not.
        for commit in read_commits(self._store, self._scope.stream(LEDGER), self._head):
            if data == render(self._fold.memory()):
                return None
            self._fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
            self._head = commit.head
        expected = render(self._fold.memory())
        if data is None or data == expected:
            return None
        moment = stated_moment(data)
        past = [] if moment is None else memories_when(self._store, self._scope, moment)
        return _Difference(data, expected, next((memory.seq for memory in past if render(memory) == data), None))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
