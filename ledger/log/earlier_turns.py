"""Reader of the turns of one thread up to a snapshot's origin, a block at a time, at the offsets in the index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import Redacted, Turn, TurnRange
from backstory.ledger.core.ranges import members
from backstory.ledger.log.snapshot import Origin, Place, RecordedLine, RecordedLines, Snapshots, ThreadSnapshot
from backstory.ledger.threads.turn_columns import Block, Trace, turns_of

__all__ = ["BLOCK_TURNS", "Log", "StoredTurns"]

BLOCK_TURNS = 64
_MOST_TURNS = 8192
_NO_END = 2**62


class Log(Protocol):
    """A transcript as it is now, of which lines up to an origin are asked for."""

    @property
    def stream(self) -> str:
        """Its name."""

    def at(self, places: Iterable[Place]) -> Iterable[Commit | None]:
        """Yield the commits at some places, checked; None where another line is there, or one that is not intact."""

    def everything(self) -> Iterable[Commit]:
        """Yield all commits up to the origin.

        Raises:
            CorruptLogError: at the first line that is not what was written.
        """

    def redacted_since(self, thread: str) -> Iterable[Redacted]:
        """Yield what was redacted of a thread since the origin."""


class StoredTurns:
    """See `EarlierTurns`; safe for one thread at a time."""

    def __init__(self, name: str, known: ThreadSnapshot, snapshots: Snapshots, origin: Origin, log: Log) -> None:
        self.count = known.turns
        self.seq = origin.transcript.seq
        self.superseded = members(known.superseded)
        self.withdrawn = members(known.withdrawn)
        self.restored = known.restored
        self.redacted = known.redacted
        self._name = name
        self._snapshots = snapshots
        self._origin = origin
        self._log = log
        self._newest: RecordedLines | None = known.newest
        """What the first block can be read from without asking again, if that is at the end."""
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
            CorruptLogError: the turn is not there any more, or the transcript is damaged.
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
        """Read lines; None where one of them is not what the index says, or they do not hold what is asked for."""
        rows = self._rows(found.lines)
        return self._block(rows, found.redacted) if rows is not None and rows.holds(first, last) else None

    def _around(self, n: int) -> tuple[int, int]:
        """Say which turns to read; whoever goes on from the last block, in either direction, gets twice as many."""
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
        """Read lines that follow each other; None where one of them is not what the index says."""
        rows: _Rows | None = None
        for line, commit in zip(lines, self._log.at(line.place for line in lines), strict=True):
            rows = rows or _Rows(line.first)
            if commit is None or commit.cause.thread != self._name or line.first != rows.end:
                return None
            rows.take(commit)
            if line.last + 1 != rows.end:
                return None
        return rows

    def _whole(self) -> Block:
        """Read everything, where a line is not where it should be."""
        rows = _Rows(1)
        for commit in self._log.everything():
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
            # Erased since the index looked; the view starts over with its next look, and has to know of it now, too.
            later = self._log.redacted_since(self._name)
            redacted = {**redacted, **{event.n: Trace.of(event) for event in later if event.n is not None}}
        # Where the log was exchanged for another there may be more of them than there were.
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
        """The ordinals of the turns whose content is gone from their lines."""
        return [n for n, turn in enumerate(self.turns, self.first) if turn is None and n not in self._lost]
