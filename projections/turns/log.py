"""The turns of a scope as its transcript tells them, read on as it grows and anew where it was rewritten."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import msgspec

from ledger.commit import EMPTY, Commit, head_of, unseal
from ledger.errors import CorruptLogError, LockTimeoutError, StoreError
from ledger.events import Turn, TurnRecorded, TurnSuperseded
from ledger.scope import TRANSCRIPT, Scope
from ledger.store import EventStore
from projections.turns.board import Board
from projections.turns.rows import Row, TurnView, Words

__all__ = ["Lens", "Look", "TurnLog", "TurnLogs"]

_RECENT = 8


class Lens(msgspec.Struct, frozen=True):
    """What of a scope's turns is looked at: one thread's, equal words once, so many of the newest (0: all)."""

    thread: str | None = None
    ignore_id: bool = False
    bound: int = 0


class Look:
    """What stands, seen through a lens; see `TurnLog.look`."""

    def __init__(self, board: Board, lens: Lens) -> None:
        self._board = board
        self._lens = lens
        self._since = board.cutoff(lens.bound)

    def count(self) -> int:
        """Return how many turns there are."""
        count = len(self._board.all)
        return min(count, self._lens.bound) if self._lens.bound else count

    def newest(self, k: int = 0) -> list[TurnView]:
        """Return the newest `k` turns, or all for 0, in the order they were recorded."""
        if k == 0:
            return _said(self._board.all.since(self._since))
        return _said(self._board.all.newest(min(k, self._lens.bound) if self._lens.bound else k))

    def last(self) -> TurnView | None:
        """Return the newest turn."""
        row = self._board.all.last()
        return None if row is None else row.said

    def at(self, position: int) -> TurnView | None:
        """Return the turn at a position, from 0; None where there is none."""
        hidden = len(self._board.all) - self.count()
        row = self._board.all.at(position + hidden) if position >= 0 else None
        return None if row is None else row.said

    def of_id(self, turn_id: str) -> TurnView | None:
        """Return the newest turn of an id."""
        row = self._board.of_id(turn_id)
        return None if row is None or row.serial < self._since else row.said

    def of_role(self, role: str) -> list[TurnView]:
        """Return what was said in a role."""
        return _said(self._board.of_role(role, self._since))

    def of_actions(self, actions: Iterable[str]) -> list[TurnView]:
        """Return what was caused by any of some actions."""
        found = [self._board.of_action(action, self._since) for action in dict.fromkeys(actions)]
        if len(found) == 1:
            return _said(found[0])
        return _said(sorted((row for rows in found for row in rows), key=lambda row: row.serial))

    def addressed_to(self, name: str) -> list[TurnView]:
        """Return what is for somebody, by name or because it is for all."""
        return _said(self._board.addressed_to(name, self._since))

    def knows(self, turn_id: str | None, said: Words, *, thread: str | None = None, k: int = 0) -> bool:
        """Whether a message is among the newest `k` turns (0: all)."""
        row = self._board.known(turn_id, said, thread)
        return row is not None and row.serial >= max(self._since, self._board.cutoff(k))

    def known(self, turn_id: str | None, said: Words, *, thread: str | None = None) -> TurnView | None:
        """Return the newest turn that a message is."""
        row = self._board.known(turn_id, said, thread)
        return None if row is None or row.serial < self._since else row.said

    def one_with(self, said: TurnView) -> list[TurnView]:
        """Return what a turn is shown for: all that is one with it where ids are ignored, else itself alone."""
        return _said(self._board.like(said)) if self._lens.ignore_id else [said]


def _said(rows: Iterable[Row]) -> list[TurnView]:
    return [row.said for row in rows]


class _Held:
    """What was folded of a transcript so far; `edition` and `size` are those it had before it was read."""

    def __init__(self, edition: str) -> None:
        self.edition = edition
        self.head = EMPTY
        self.begin = self.byte = 0
        """Where the last line begins that was read, and the byte behind it."""
        self.size = 0
        self.threads: dict[str, list[Row | None]] = {}
        self.boards: dict[tuple[str | None, bool], Board] = {}
        self._serial = 0
        self._spelled: dict[str | None, str | None] = {}

    def take(self, commit: Commit) -> None:
        """Fold a commit."""
        name = commit.cause.thread
        if name is None:
            return
        rows = self.threads.setdefault(name, [])
        boards = [board for (thread, _), board in self.boards.items() if thread in (None, name)]
        for event in commit.events:
            if isinstance(event, TurnRecorded):
                row = self._row(name, event.turn, commit.at)
                rows += [None] * (event.turn.n - 1 - len(rows))
                rows.append(row)
                for board in boards:
                    board.add(row)
            elif isinstance(event, TurnSuperseded):
                gone = rows[event.n - 1] if event.n <= len(rows) else None
                if gone is not None and gone.stands:
                    gone.stands = False
                    rows[event.n - 1] = None
                    for board in boards:
                        board.drop(gone)

    def _row(self, thread: str, turn: Turn, at: str) -> Row:
        self._serial += 1
        # Of what turns have in common one text is kept; times are often that of the commit.
        spelled = self._spelled.setdefault
        said = TurnView(
            turn.id,
            spelled(turn.role, turn.role) or "",
            turn.content,
            at if turn.at == at else turn.at,
            turn.n,
            spelled(turn.name, turn.name),
            spelled(turn.cause_by, turn.cause_by),
            spelled(turn.sent_from, turn.sent_from),
            turn.send_to,
            turn.metadata,
            thread,
        )
        return Row(self._serial, said)

    def board(self, thread: str | None, *, ignore_id: bool) -> Board:
        """Return the board of a thread, or of all; it is made when it is asked for first, and followed from then on."""
        board = self.boards.get((thread, ignore_id))
        if board is None:
            board = self.boards[thread, ignore_id] = Board(self.standing(thread), ignore_id=ignore_id)
        return board

    def standing(self, thread: str | None) -> list[Row]:
        """Return the rows of a thread, or of all, in the order they were recorded."""
        if thread is not None:
            return [row for row in self.threads.get(thread, ()) if row is not None]
        rows = [row for rows in self.threads.values() for row in rows if row is not None]
        return sorted(rows, key=lambda row: row.serial)


class TurnLog:
    """A scope's turns that stand, in memory; safe for threads, and begun anew in a child of this process."""

    def __init__(self, store: EventStore, scope: Scope) -> None:
        self._store = store
        self._stream = scope.stream(TRANSCRIPT)
        self._held = _Held("")
        self.renew()
        _logs.add(self)

    def renew(self) -> None:
        """Begin anew in a child of this process."""
        self._mutex = threading.Lock()
        self.adding = threading.Lock()
        """For whoever looks first whether something is there, and then adds it."""
        self.start_over()

    def start_over(self) -> None:
        """Let go of all that is held, whatever anybody is doing with it; the next look reads from the first line."""
        self._held = _Held("")

    @contextmanager
    def look(self, lens: Lens) -> Iterator[Look]:
        """Fold what this or another process has appended, and lend out what stands; nothing changes meanwhile.

        Raises:
            CorruptLogError: the transcript is damaged.
            StoreError: it cannot be read.
        """
        with self._mutex:
            held = self._caught_up()
            yield Look(held.board(lens.thread, ignore_id=lens.ignore_id), lens)

    def standing(self, thread: str | None) -> list[TurnView]:
        """Return the turns of a thread, or of all, that stand, in the order they were recorded; raises as `look`."""
        with self._mutex:
            return _said(self._caught_up().standing(thread))

    def _caught_up(self) -> _Held:
        held = self._held
        # The edition first: what is read after it may be newer, never older, and then the next look tells.
        edition, size = self._store.edition(self._stream), self._store.size(self._stream)
        now = self._store.head(self._stream)
        if held.edition == edition and held.head == now and (held.size == size or self._is_where_it_was(held)):
            held.size = size
            return held
        try:
            until = self._store.settled_head(self._stream)
        except (StoreError, LockTimeoutError):
            # A home that cannot be written can be read all the same, and so can one that is being rewritten.
            until = now
        if held.edition != edition or held.head.seq >= until.seq or not self._reads_on(held, until.seq):
            held = self._held = _Held(edition)
            self._read(held, until.seq)
        held.size = size
        return held

    def _is_where_it_was(self, held: _Held) -> bool:
        """Whether the last line that was read is still at its place: half a line may have come behind it."""
        record = next(self._store.read(self._stream, held.head.seq - 1, byte=held.begin), None)
        return record is not None and record.byte == held.begin and head_of(record.line) == held.head

    def _reads_on(self, held: _Held, until: int) -> bool:
        """Read on from where it stands; False where the transcript is not the one that was read."""
        try:
            return self._read(held, until)
        except CorruptLogError:
            # If it is damage, whoever reads from the first line meets it again.
            return False

    def _read(self, held: _Held, until: int) -> bool:
        for record in self._store.read(self._stream, held.head.seq, byte=held.byte):
            if held.head.seq >= until:
                break
            if record.byte and record.byte != held.byte:
                # The lines before it are of another length than they were: something was erased.
                return False
            commit = unseal(record.line, held.head, stream=self._stream, byte=record.byte)
            held.take(commit)
            held.head, held.begin, held.byte = commit.head, record.byte, record.byte + len(record.line) + 1
        return True


class TurnLogs:
    """The turns of every scope that somebody looks at, each kept as long as anybody does, and of a few for longer."""

    def __init__(self, store: EventStore) -> None:
        logs: weakref.WeakValueDictionary[Scope, TurnLog] = weakref.WeakValueDictionary()

        # A host asks for the same memory again and again, and holds none of them.
        @lru_cache(maxsize=_RECENT)
        def opened(scope: Scope) -> TurnLog:
            return logs.setdefault(scope, TurnLog(store, scope))

        self._logs = logs
        self._opened = opened

    def __call__(self, scope: Scope) -> TurnLog:
        """Return the turns of a scope."""
        return self._opened(scope)

    def purge(self, scope: Scope) -> None:
        """Let go of a scope's turns."""
        log = self._logs.get(scope)
        if log is not None:
            log.start_over()


_logs: weakref.WeakSet[TurnLog] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for log in list(_logs):
        log.renew()


os.register_at_fork(after_in_child=_after_fork_in_child)
