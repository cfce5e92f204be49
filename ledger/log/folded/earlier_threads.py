"""Threads as they were at an origin: opened when they are asked for, their turns read a block at a time.

The index says where a thread's lines are. Every line is checked when it is read. Where the index points at another
line, the whole stream is read instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from backstory.ledger.core.commit import Commit, Head, head_before, unseal
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import Redacted, Turn, TurnRange
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore, Record
from backstory.ledger.log.commits import commit_at, read_commits
from backstory.ledger.log.folded.snapshot import (
    Place,
    RecordedLine,
    RecordedLines,
    SnapshotOrigin,
    Snapshots,
    ThreadSnapshot,
)
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.ranges import members
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_columns import Block, Trace, turns_of

BLOCK_TURNS = 64
_MOST_TURNS = 8192
_MOST_NAMES = 10_000
"""Names of threads that are kept in memory."""
_NO_END = 2**62
_NEAR_BYTES = 65536
"""How far ahead a line may be for the read under way to go on to it: a new read asks the engine where it is."""


class EarlierThreads:
    """Threads up to the origin of a state. Each is opened, and its turns are read, on demand."""

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        coverage: Coverage,
        snapshots: Snapshots,
        origin: SnapshotOrigin,
    ) -> None:
        self._store = store
        self._ledger = scope.stream(LEDGER)
        self.stream = scope.stream(TRANSCRIPT)
        self._coverage = coverage
        self.snapshots = snapshots
        self.origin = origin
        self._names: Sequence[str] | None = None
        self._given: set[str] = set()
        self._ready: dict[str, Thread] = {}
        """Threads that were loaded before they were asked for."""

    def names(self) -> Sequence[str]:
        """See `Earlier.names`."""
        if self._names is not None:
            return self._names
        names = self.snapshots.threads(self.origin)
        # An origin does not change, and to ask the index makes it take in what was recorded since.
        self._names = names if len(names) <= _MOST_NAMES else None
        return names

    def unsettled(self) -> Sequence[str]:
        """See `Earlier.unsettled`."""
        return self.snapshots.unsettled(self.origin)

    def load(self, name: str) -> Thread | None:
        """See `Earlier.load`; the coverage of the thread is loaded with it."""
        self._given.add(name)
        thread = self._ready.pop(name, None)
        if thread is None:
            known = self.snapshots.thread(name, self.origin, BLOCK_TURNS)
            if known is not None and known.turns:
                self._coverage.adopt(name, known.coverage)
                return Thread(name, EarlierThreadTurns(name, known, self))
            thread = self._read(name)
        if any(turn is None and n not in thread.traces for n, turn in enumerate(thread.turns, 1)):
            # Erased since the origin. The state starts over with its next refresh; this thread needs the erasure now.
            for event in self.redacted_since(name):
                thread.redact(event)
        return thread if thread.turns or thread.superseded else None

    def _read(self, name: str) -> Thread:
        """Fold a thread from all of its lines, if the index is not at the origin."""
        learned, said = self.snapshots.places(name, self.origin)
        ledger = self._commits(self._ledger, learned, self.origin.ledger)
        return self._folded((name,), self._commits(self.stream, said, self.origin.transcript), ledger)[name]

    def prepare(self, names: Collection[str]) -> None:
        """Load many threads that are needed next, if one pass over each log costs less than seeking."""
        asked = [name for name in names if name not in self._given]
        places = self.snapshots.places_of(asked, self.origin) if asked else {}
        said = {place.seq: place for _, some in places.values() for place in some}
        learned = {place.seq: place for some, _ in places.values() for place in some}
        threads = self._folded(places, self._pass(self.stream, said), self._pass(self._ledger, learned))
        self._ready.update(threads)
        self._given.update(threads)

    def _folded(
        self, names: Iterable[str], transcript: Iterable[Commit], ledger: Iterable[Commit]
    ) -> dict[str, Thread]:
        """Fold threads, by name, and their coverage from the commits that are about them."""
        threads = {name: Thread(name) for name in names}
        for commit in transcript:
            if commit.cause.thread in threads:
                threads[commit.cause.thread].take(commit)
        for commit in ledger:
            if commit.cause.thread in threads:
                self._coverage.apply(commit)
            for event in commit.events:
                if isinstance(event, Redacted) and event.thread in threads:
                    threads[event.thread].redact(event)
        return threads

    def _pass(self, stream: str, places: Mapping[int, Place]) -> Iterator[Commit]:
        """Yield the commits at some places, in one pass over the stream."""
        if not places:
            return
        first, last = places[min(places)], max(places)
        for seq, record in enumerate(self._store.read(stream, first.seq - 1, byte=first.byte), first.seq):
            if seq in places:
                yield unseal(record.line, head_before(record.line, seq), stream=stream, byte=record.byte)
            if seq == last:
                return

    def _commits(self, stream: str, places: Sequence[Place], until: Head) -> list[Commit]:
        """Read the lines at some places; if one of them is another line, read everything instead."""
        found = [commit for commit in self.at(stream, places) if commit is not None]
        return found if len(found) == len(places) else self.everything(stream, until)

    def everything(self, stream: str, until: Head) -> list[Commit]:
        """Return all commits of a stream up to the origin.

        Raises:
            CorruptLogError: At the first line that is not what was written.
        """
        return [commit for commit in read_commits(self._store, stream) if commit.seq <= until.seq]

    def at(self, stream: str, places: Iterable[Place]) -> Iterator[Commit | None]:
        """Yield the commits at some places, checked; None where another line is, or one that is damaged.

        Those near each other are read together.
        """
        records: Iterator[Record] | None = None
        seq = end = 0
        for place in places:
            ahead = place.seq - seq
            if records is None or not (ahead == 1 or (ahead > 1 and 0 <= place.byte - end < _NEAR_BYTES)):
                records = self._store.read(stream, place.seq - 1, byte=place.byte)
                ahead = 1
            record = next(islice(records, ahead - 1, None), None)
            if record is not None:
                end = record.byte + len(record.line) + 1
            seq = place.seq
            yield commit_at(record, place.seq)

    def redacted_since(self, thread: str) -> Iterator[Redacted]:
        """Yield what was redacted of a thread since the origin."""
        for commit in read_commits(self._store, self._ledger, self.origin.ledger):
            for event in commit.events:
                if isinstance(event, Redacted) and event.thread == thread:
                    yield event


class EarlierThreadTurns:
    """See `EarlierTurns`; safe for one thread at a time."""

    def __init__(self, name: str, known: ThreadSnapshot, log: EarlierThreads) -> None:
        self.count = known.turns
        self.seq = log.origin.transcript.seq
        self.superseded = members(known.superseded)
        self.withdrawn = members(known.withdrawn)
        self.restored = known.restored
        self.redacted = known.redacted
        self._name = name
        self._snapshots = log.snapshots
        self._origin = log.origin
        self._log = log
        self._newest: RecordedLines | None = known.newest
        """The newest lines, from which a first block at the end can be read without the index."""
        self._recorded_by: dict[int, int] = {}
        self._last = (-1, -1)
        """The ends of the block that was read last."""

    def recorded_by(self, seq: int) -> int:
        """See `EarlierTurns.recorded_by`."""
        if seq not in self._recorded_by:
            self._recorded_by[seq] = self._snapshots.recorded_by(self._name, seq, self._origin)
        return self._recorded_by[seq]

    def block(self, n: int) -> Block:
        """See `EarlierTurns.block`.

        Raises:
            CorruptLogError: The turn is not there any more, or the transcript is damaged.
        """
        first, last = self._around(n)
        block = None
        if self._newest is not None and self._newest.lines and self._newest.lines[0].first <= first:
            block = self._read(self._newest, first, last)
            self._newest = None
        if block is None:
            found = self._snapshots.lines(
                self._name, TurnRange(first, last if last < self.count else _NO_END), self._origin
            )
            block = self._read(found, first, last) or self._whole()
        self._last = (block.first, block.first + len(block.turns) - 1)
        return block

    def _read(self, found: RecordedLines, first: int, last: int) -> Block | None:
        """Read lines; None if one of them is not what the index says, or a turn is missing."""
        rows = self._rows(found.lines)
        return self._block(rows, found.redacted) if rows is not None and rows.holds(first, last) else None

    def _around(self, n: int) -> tuple[int, int]:
        """Return which turns to read: twice as many if the caller goes on from the last block, in either direction."""
        begin, end = self._last
        width = min(max(2 * (end - begin + 1), BLOCK_TURNS), _MOST_TURNS)
        if n == end + 1:
            first = n
        elif n == begin - 1:
            first = n - width + 1
        else:
            first, width = n - (n - 1) % BLOCK_TURNS, BLOCK_TURNS
        return max(1, first), min(first + width - 1, self.count)

    def _rows(self, lines: Sequence[RecordedLine]) -> _Rows | None:
        """Read consecutive lines; None if one of them is not what the index says."""
        rows: _Rows | None = None
        for line, commit in zip(lines, self._log.at(self._log.stream, (line.place for line in lines)), strict=True):
            rows = rows or _Rows(line.first)
            if commit is None or commit.cause.thread != self._name or line.first != rows.end:
                return None
            rows.take(commit)
            if line.last + 1 != rows.end:
                return None
        return rows

    def _whole(self) -> Block:
        """Read the whole transcript, because a line is not where the index says."""
        rows = _Rows(1)
        for commit in self._log.everything(self._log.stream, self._origin.transcript):
            if commit.cause.thread == self._name:
                rows.take(commit)
        if not rows.holds(1, self.count):
            raise CorruptLogError(
                f"{self._log.stream} held {self.count} turns of thread {self._name} when it ended at {self.seq}, and "
                f"now it holds {rows.end - 1}; restore the file from a copy, then open it again",
                kind="missing",
                stream=self._log.stream,
                line=self.seq,
                byte=0,
            )
        return self._block(rows, self._snapshots.lines(self._name, TurnRange(1, _NO_END), self._origin).redacted)

    def _block(self, rows: _Rows, redacted: Mapping[int, Trace | None]) -> Block:
        if any(n not in redacted for n in rows.erased()):
            # Erased since the index was read. The state starts over with its next refresh; this block needs it now.
            later = self._log.redacted_since(self._name)
            redacted = {**redacted, **{event.n: Trace.of(event) for event in later if event.n is not None}}
        # If the log was replaced, it may hold more turns than there were.
        end = self.count + 1 - rows.first
        turns = [None if n in redacted else turn for n, turn in enumerate(rows.turns[:end], rows.first)]
        traces = {n: trace for n, trace in redacted.items() if trace is not None}
        return Block(rows.first, turns, rows.seqs[:end], rows.recorded_at[:end], traces)


class _Rows:
    """Turns that follow each other, as lines record them."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.turns: list[Turn | None] = []
        self.seqs: list[int] = []
        self.recorded_at: list[str] = []
        self._lost: set[int] = set()

    @property
    def end(self) -> int:
        """The ordinal behind the last."""
        return self.first + len(self.turns)

    def holds(self, first: int, last: int) -> bool:
        """Whether all of some turns are here."""
        return self.first <= first and last < self.end

    def take(self, commit: Commit) -> None:
        """Take in the turns that a commit records."""
        begin = self.end
        said = turns_of(commit, begin - 1)
        if commit.cause.turns is not None:
            self._lost.update(range(begin, commit.cause.turns.first))
        self.turns += said
        self.seqs += [commit.seq] * len(said)
        self.recorded_at += [commit.at] * len(said)

    def erased(self) -> list[int]:
        """The ordinals of the turns whose content was erased."""
        return [n for n, turn in enumerate(self.turns, self.first) if turn is None and n not in self._lost]
