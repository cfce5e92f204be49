"""Verification of a scope: its logs are intact, its commits are possible, and its read models match the ledger.

Every erasure is named by a redaction, and everything that a redaction names is erased.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Head, decode, head_of, inspect
from backstory.ledger.core.errors import CorruptLogError, UnavailableError
from backstory.ledger.core.events import Redacted, TurnRecorded
from backstory.ledger.core.memory import Fold
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.projections.document.document import read_document, render, stated_moment
from backstory.projections.history.moment import memories_when
from backstory.projections.integrity.ledger_check import LedgerCheck
from backstory.projections.integrity.stream_check import Problem, Slot, StreamCheck
from backstory.projections.integrity.turn_check import CoverageCheck, TranscriptCheck
from backstory.projections.integrity.witnessed import MOST_SEQ, WITNESS, Heads, Witnessed, judge

_INDEXES = 1 << 24


def _key(seq: int, index: int) -> int:
    # A set of integers takes half the memory of a set of tuples.
    return seq * _INDEXES + index + 1


class RedactionCheck:
    """Compares the ledger's redactions with what is erased in both streams."""

    def __init__(self, store: EventStore, scope: Scope) -> None:
        self._store = store
        self._ledger = scope.stream(LEDGER)
        self._named: dict[str, set[int]] = {self._ledger: set(), scope.stream(TRANSCRIPT): set()}

    def take(self, commit: Commit) -> None:
        """Collect what a commit of the ledger names as erased; it can name only earlier content."""
        for event in commit.events:
            if not isinstance(event, Redacted) or event.stream not in self._named:
                continue
            if -1 <= event.index < _INDEXES - 1 and (event.stream != self._ledger or event.seq < commit.seq):
                self._named[event.stream].add(_key(event.seq, event.index))

    def judge(self, ledger: StreamCheck, transcript: StreamCheck) -> None:
        """Report the erasures that no redaction names, and the named content that still exists."""
        unexplained = {check.stream: self._match(check) for check in (ledger, transcript)}
        if not any(unexplained.values()) and not any(self._named.values()):
            return
        with ExitStack() as held:
            try:
                held.enter_context(self._store.locked(self._ledger, wait=False))
                locked = True
            except UnavailableError:
                locked = False
            for check in (ledger, transcript):
                later = self._named_later(ledger) if unexplained[check.stream] else set()
                for slot in unexplained[check.stream]:
                    if (check.stream, _key(slot.seq, slot.index)) not in later:
                        message = f"{slot} was erased, and no redaction names it"
                        check.found("unexplained_redaction", slot.line, slot.byte, message)
                self._judge_unfinished(check, locked=locked)

    def _match(self, check: StreamCheck) -> list[Slot]:
        """Remove from the named slots those that are erased; return the erased slots that are not named."""
        named = self._named[check.stream]
        unexplained = []
        done = set()
        for slot in check.erased:
            key = _key(slot.seq, slot.index)
            if key in named:
                done.add(key)
            else:
                unexplained.append(slot)
        named -= done
        return unexplained

    def _named_later(self, ledger: StreamCheck) -> set[tuple[str, int]]:
        """Return what redactions name that were committed after the ledger was read."""
        later: set[tuple[str, int]] = set()
        try:
            for commit in read_commits(self._store, self._ledger, ledger.head):
                later |= {(e.stream, _key(e.seq, e.index)) for e in commit.events if isinstance(e, Redacted)}
        except CorruptLogError:
            pass  # the damage is reported already
        return later

    def _judge_unfinished(self, check: StreamCheck, *, locked: bool) -> None:
        """Report content that a redaction names and that still exists, once for the stream.

        Without the lock another process may be erasing it right now.
        """
        named: dict[int, list[int]] = {}
        for key in sorted(self._named[check.stream]):
            named.setdefault(key // _INDEXES, []).append(key % _INDEXES - 1)
        count, first = 0, None
        for number, record in enumerate(self._store.read(check.stream) if named else (), 1):
            try:
                wanted = named.pop(head_of(record.line).seq, None)
                if wanted is None:
                    continue
                erased, events = inspect(record.line).erased, len(decode(record.line).events)
            except UNREADABLE:
                continue
            still = [index for index in wanted if index not in erased and index < events]
            count += len(still)
            if still and first is None:
                first = Slot(head_of(record.line).seq, still[0], number, record.byte)
        if first is not None:
            content = f"{first} still exists although a redaction names it"
            more = f", and {count - 1} more" if count > 1 else ""
            done = "was interrupted; opening the memory completes it"
            state = done if locked else "is in progress, or was interrupted: verify again"
            message = f"{content}{more}: the erasure {state}"
            check.found("unexplained_redaction", first.line, first.byte, message)
        if named and not check.damaged:
            message = f"a redaction names commit {min(named)}, which does not exist"
            check.found("missing", check.lines + 1, check.end, message)


INDEX = "index.sqlite"
"""The stream that a problem of the index names."""

_NO_HASH = "00" * 32
"""A hash that no commit has."""
_LAG_SECONDS = 0.2
"""Longer than the 100 ms after a commit in which memory.json is written."""


class Verification(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a verification.

    Attributes:
        ok: whether there is no problem; a torn tail does not count, because its line was never acknowledged.
        commits: the lines of the ledger.
        turns: the turns of the transcript.
        problems: the findings.
        notes: what could not be checked and is not a fault, such as an unreachable witness.
    """

    ok: bool
    commits: int
    turns: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()


class _Pins:
    """The transcript heads that ledger commits were made on, each with the seq of the commit."""

    def __init__(self) -> None:
        self._pins = Heads()
        self._last = EMPTY

    def take(self, commit: Commit) -> None:
        pin = commit.cause.transcript
        if pin is None or pin.seq <= 0 or pin == self._last:
            return
        self._last = pin
        if not self._pins.add(pin, commit.seq):
            self._pins.add(Head(min(pin.seq, MOST_SEQ), _NO_HASH), commit.seq)

    def judge(self, transcript: StreamCheck) -> None:
        """Report transcript heads that ledger commits name and the transcript does not have."""
        pin, seq = max(self._pins, key=_pinned_seq, default=(EMPTY, 0))
        if pin.seq > transcript.head.seq + transcript.unread:
            made = f"commit {seq} of the ledger was made on turns up to commit {pin.seq} here"
            transcript.found("missing", transcript.lines + 1, transcript.end, f"{made}, which does not exist")
        others = (one for one in self._pins if transcript.hashes.get(one[0].seq) not in (None, one[0].hash))
        pin, seq = min(others, key=_pinned_seq, default=(EMPTY, 0))
        if seq:
            number, byte = _place_of(transcript, pin.seq)
            message = f"commit {seq} of the ledger was made on another commit {pin.seq} than the one here"
            transcript.found("altered", number, byte, message)


def _pinned_seq(pin: tuple[Head, int]) -> int:
    return pin[0].seq


def _place_of(check: StreamCheck, seq: int) -> tuple[int, int]:
    """Return the line and byte of a commit, by reading the stream again: positions are not kept in memory."""
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
    progress: Callable[[int], None] | None = None,
) -> Verification:
    """Check both streams of a scope, their references to each other, and the read models; others may keep writing.

    A commit with a valid hash that no rule could have written is `impossible`: see
    `backstory.projections.integrity.ledger_check` and `backstory.projections.integrity.turn_check`. At most a thousand
    problems of one kind in one stream are listed, the others are counted.

    Args:
        store: holds the streams.
        scope: the scope to verify.
        document: the path of memory.json.
        index: returns the differences between the index and the logs.
        expect_head: a hash that must be in the ledger's chain.
        witnessed: heads that must be in their chains, read before this call.
        clock: gives a document that lags the time to be written.
        progress: called with the number of lines that were read of both streams.

    Raises:
        StoreError: A log cannot be read, or has a newer format.
    """
    ledger = StreamCheck(store, scope.stream(LEDGER), expect_head)
    ledger_check = LedgerCheck(ledger, scope)
    coverage = CoverageCheck(ledger)
    redactions = RedactionCheck(store, scope)
    pins = _Pins()
    for commit in ledger.commits():
        _check_first(commit, ledger, scope, LEDGER)
        ledger_check.take(commit)
        coverage.take(commit)
        redactions.take(commit)
        pins.take(commit)
        if progress is not None:
            progress(ledger.lines)
    found_head = ledger.found_sought or (expect_head == EMPTY.hash and not len(ledger.hashes))
    not_found = [problem for one in witnessed for problem in judge(one.ledger, one.where, ledger)]
    ledger.forget_hashes()
    # The transcript is read after the ledger, so it has every turn that the ledger refers to.
    transcript = StreamCheck(store, scope.stream(TRANSCRIPT))
    turn_check = TranscriptCheck(transcript)
    turns = 0
    for commit in transcript.commits():
        turns += sum(isinstance(event, TurnRecorded) for event in commit.events)
        _check_first(commit, transcript, scope, TRANSCRIPT)
        turn_check.take(commit)
        coverage.record(commit)
        if progress is not None:
            progress(ledger.lines + transcript.lines)
    pins.judge(transcript)
    if turn_check.sure and not transcript.damaged and not ledger.damaged:
        coverage.judge(turn_check)
    redactions.judge(ledger, transcript)
    not_found += [problem for one in witnessed for problem in judge(one.transcript, one.where, transcript)]
    problems = [*ledger.problems, *transcript.problems, *not_found]
    problems += [Problem("witness_unreadable", WITNESS, 0, 0, text) for one in witnessed for text in one.problems]
    if expect_head is not None and not found_head:
        message = f"{expect_head} is not in the chain: the end of the ledger was cut off, or it is another ledger"
        problems.append(Problem("head_not_found", ledger.stream, 0, 0, message))
    if not ledger.damaged:
        if document is not None:
            problems += _Document(document, store, scope, ledger_check.fold, ledger.head).check(clock or SystemClock())
        if index is not None:
            problems += [Problem("index_differs", INDEX, 0, 0, text) for text in index()]
    ok = all(problem.kind == "torn_tail" for problem in problems)
    notes = tuple(note for one in witnessed for note in one.notes)
    return Verification(ok, ledger.lines, turns, tuple(problems), notes)


def _check_first(commit: Commit, check: StreamCheck, scope: Scope, stream: str) -> None:
    """Check that the first commit names this scope and this kind of stream: files could have been exchanged."""
    if commit.seq != 1 or commit.cause.kind == "erased":
        return
    owner = Scope(commit.cause.user, commit.cause.agent)
    if owner != scope:
        check.found_here("altered", f"the log belongs to {owner}, not to {scope}: was the file exchanged?")
    is_a = TRANSCRIPT if commit.cause.kind == "record" else LEDGER
    if is_a != stream:
        check.found_here("altered", f"the log is a {is_a}, not a {stream}: were the files exchanged?")


class _Difference(msgspec.Struct, frozen=True):
    """The actual and the expected document; `lags` is the earlier commit that it shows, if any."""

    data: bytes
    expected: bytes
    lags: int | None


class _Document:
    """The check of memory.json, while other processes may write; `fold` is the ledger folded up to `head`."""

    def __init__(self, path: Path, store: EventStore, scope: Scope, fold: Fold, head: Head) -> None:
        self._path = path
        self._store = store
        self._scope = scope
        self._fold = fold
        self._head = head

    def check(self, clock: Clock) -> list[Problem]:
        """Return the problem of a document that differs; one that lags gets the time that a writer needs."""
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
            state = f"lags behind: it shows commit {found.lags} of {self._fold.seq}; the next commit updates it"
        elif not self._fold.seq:
            state = (
                "shows a memory, but the ledger has no commits: restore the ledger from a copy, or `import` this file"
            )
        else:
            state = f"differs from the ledger at commit {self._fold.seq}; the next commit moves it aside"
        return [Problem("document_differs", name, line, same, f"{self._path} {state}")]

    def _difference(self) -> _Difference | None:
        data = read_document(self._path)
        # Another process may have committed since the ledger was read, and may have written the document or not.
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
