"""Follower of a scope's transcript: keeps the turns that stand, reads on as it grows, and anew where it was exchanged.

Views and indexes of turns ask here what has changed since they asked last. So one place decides how far a transcript
is read and which turns may still be shown, and holds the one copy of them.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple, Protocol

import msgspec

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Head, head_before, head_of, unseal
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import Redacted, Turn, TurnRecorded, TurnRestored, TurnSuperseded
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore, Record
from backstory.ledger.log.commits import must_belong
from backstory.projections.read_model import ReadModel
from backstory.projections.turns.rows import TurnView

_REMEMBERED = 10_000
"""Turns that ceased to stand and are remembered; a reader that is further behind begins anew."""

_REDACTED = b'"Redacted"'
"""Part of every ledger line that states an erasure, and of few others."""

_numbers = count(1)


class Seen(msgspec.Struct, frozen=True):
    """How much of a transcript a reader knows; returned with new turns, and passed back to ask for more."""

    reading: int
    turns: int
    gone: int


class Gone(NamedTuple):
    """A turn that ceased to stand, without its words; `serial` counts the turns as they were read, from 1."""

    thread: str
    n: int
    serial: int


class NewTurns(msgspec.Struct, frozen=True):
    """What to drop, and then to add, in the order it was recorded; where `anew`, begin with nothing."""

    seen: Seen
    put: Sequence[TurnView] = ()
    drop: Sequence[Gone] = ()
    anew: bool = False


class StreamPlace(msgspec.Struct, frozen=True, array_like=True):
    """How far a stream was read: its head there, where the last line begins that was read, and the byte behind it."""

    head: Head = EMPTY
    begin: int = 0
    end: int = 0


class FollowerOrigin(msgspec.Struct, frozen=True, array_like=True):
    """Where a follower stood: what it had read of both streams, and the transcript's edition and size before."""

    edition: str
    size: int
    said: StreamPlace
    learned: StreamPlace


class KnownTurns(Protocol):
    """The turns that stood at an origin, which a follower goes on from. Their serials are 1 to `count`."""

    @property
    def origin(self) -> FollowerOrigin: ...  # noqa: D102

    @property
    def count(self) -> int: ...  # noqa: D102

    def serials(self, thread: str) -> array[int]:
        """Return the serials of a thread's turns by their ordinals; 0 where none stands."""


class _AnewError(Exception):
    """What has happened is about turns that another follower has read, and only reading all of them can tell."""


class _Held:
    """What was read of a transcript so far; `edition` and `size` are those it had before it was read.

    With `known` it goes on from what another follower has read.
    """

    def __init__(self, known: KnownTurns | None = None) -> None:
        self._known: KnownTurns | None = None
        self.begin("")
        if known is not None:
            origin = known.origin
            self.edition, self.size, self.said, self.learned = (
                origin.edition, origin.size, origin.said, origin.learned
            )  # fmt: skip
            self._first = known.count
            self._known = known

    def begin(self, edition: str) -> None:
        """Let go of everything, and have all who ask begin anew."""
        self._reading = next(_numbers)
        self.edition = edition
        self.size = 0
        self.said = self.learned = StreamPlace()
        self._known = None
        self._first = 0
        """How many turns were read by another follower, which are not held here."""
        self._turns: list[TurnView | None] = []
        self._serials: dict[str, array[int]] = {}
        """By thread and ordinal; 0 where nothing stands."""
        self._superseded: dict[tuple[str, int], tuple[int, TurnView]] = {}
        """Turns that may be restored, by thread and ordinal: where they stood, and what they said."""
        self._gone: list[Gone] = []
        self._forgotten = 0
        self._awaited: dict[tuple[str, int], int] = {}
        """The turns that are erased and were not met yet, and in which commits they will be."""
        self._spelled: dict[str | None, str | None] = {}

    def _serials_of(self, thread: str) -> array[int]:
        serials = self._serials.get(thread)
        if serials is None:
            serials = self._serials[thread] = array("Q") if self._known is None else self._known.serials(thread)
        return serials

    def origin(self, seen: Seen) -> FollowerOrigin | None:
        """Where this stands; None if more was read than a reader has seen, or a turn that is erased is still there."""
        if seen != self._now() or self._awaited:
            return None
        return FollowerOrigin(self.edition, self.size, self.said, self.learned)

    def take(self, commit: Commit) -> None:
        """Take a commit of the transcript in."""
        thread = commit.cause.thread
        if thread is None:
            return
        serials = self._serials_of(thread)
        for event in commit.events:
            if isinstance(event, TurnRecorded):
                n = event.turn.n
                if n <= len(serials):
                    self._drop(thread, n)
                serials.extend([0] * (n - len(serials)))
                if (thread, n) not in self._awaited:
                    self._turns.append(self._view(thread, event.turn, commit.at))
                    serials[n - 1] = self._first + len(self._turns)
            elif isinstance(event, TurnSuperseded):
                self._supersede(thread, event.n)
            elif isinstance(event, TurnRestored):
                self._restore(thread, event.n)

    def redact(self, event: Redacted) -> None:
        """Let go of a turn, or never take it in, whatever its line says."""
        if event.thread is None or event.n is None:
            return
        if self._known is not None:
            raise _AnewError
        self._superseded.pop((event.thread, event.n), None)
        if event.seq > self.said.head.seq:
            self._awaited[event.thread, event.n] = event.seq
        else:
            self._drop(event.thread, event.n)

    def met(self) -> None:
        """Note that the transcript was read as far as `said`."""
        if self._awaited:
            self._awaited = {turn: seq for turn, seq in self._awaited.items() if seq > self.said.head.seq}

    def _supersede(self, thread: str, n: int) -> None:
        serials = self._serials_of(thread)
        serial = serials[n - 1] if 0 < n <= len(serials) else 0
        if not serial:
            return
        view = self._turns[serial - self._first - 1] if serial > self._first else None
        if view is not None:
            self._superseded[thread, n] = serial, view
        self._drop(thread, n)

    def _restore(self, thread: str, n: int) -> None:
        """Put a turn back in its place; every reader begins anew, since it comes before what they know."""
        if self._known is not None:
            raise _AnewError
        serial, view = self._superseded.pop((thread, n), (0, None))
        if view is not None:
            self._turns[serial - 1] = view
            self._serials[thread][n - 1] = serial
            self._reading = next(_numbers)

    def _drop(self, thread: str, n: int) -> None:
        serials = self._serials_of(thread)
        serial = serials[n - 1] if 0 < n <= len(serials) else 0
        if serial:
            serials[n - 1] = 0
            if serial > self._first:
                self._turns[serial - self._first - 1] = None
            self._gone.append(Gone(thread, n, serial))
            if len(self._gone) > 2 * _REMEMBERED:
                self._forgotten += _REMEMBERED
                del self._gone[:_REMEMBERED]

    def _view(self, thread: str, turn: Turn, at: str) -> TurnView:
        # Of what turns have in common one text is kept; times are often that of the commit.
        spelled = self._spelled.setdefault
        return TurnView(
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
            turn.tags,
        )

    def _now(self) -> Seen:
        return Seen(self._reading, self._first + len(self._turns), self._forgotten + len(self._gone))

    def at_first(self) -> Seen:
        """What is seen by a reader that has the known turns."""
        return Seen(self._reading, self._first, 0)

    def must_begin(self, seen: Seen | None) -> bool:
        """Whether a reader needs the turns that another follower has read."""
        return self._known is not None and not self._goes_on(seen)

    def _goes_on(self, seen: Seen | None) -> bool:
        return seen is not None and seen.reading == self._reading and seen.gone >= self._forgotten

    def since(self, seen: Seen | None) -> NewTurns:
        """Return what is new to a reader."""
        now = self._now()
        if seen == now:
            return NewTurns(now)
        if seen is None or not self._goes_on(seen):
            return NewTurns(now, [said for said in self._turns if said is not None], anew=True)
        put = [said for said in self._turns[seen.turns - self._first :] if said is not None]
        # What came and went between two reads is left out.
        drop = [gone for gone in self._gone[seen.gone - self._forgotten :] if gone.serial <= seen.turns]
        return NewTurns(now, put, drop)


class TurnFollower(ReadModel):
    """Follows the transcript of a scope; safe for threads. A forked child makes another.

    Each line is checked against the chain. A turn that the ledger says is erased is gone, also where a crash came
    before its words were taken out, or the home cannot be written.
    """

    def __init__(self, store: EventStore, scope: Scope, known: KnownTurns | None = None) -> None:
        """Follow a transcript from its first line, or from where another follower stood."""
        self._store = store
        self._scope = scope
        self._ledger = scope.stream(LEDGER)
        self._transcript = scope.stream(TRANSCRIPT)
        self._mutex = threading.Lock()
        self._held = _Held(known)

    def start_over(self) -> None:
        """Drop all that is held, without waiting; the next read starts at the first line."""
        self._held = _Held()

    def since(self, seen: Seen | None, until: Head | None = None) -> NewTurns:
        """Read on, and return what is new since `seen`.

        It is read up to `until`, which a writer has vouched for, or as far as it is durable; not less than
        what any reader has seen. No writer is waited for.

        Raises:
            CorruptLogError: A log is damaged.
            StoreError: It cannot be read.
        """
        with self._mutex:
            # What is dropped meanwhile stays dropped: this read goes on with its own copy.
            held = self._held
            self._catch_up(held, until)
            if held.must_begin(seen):
                held.begin("")
                self._catch_up(held, until)
            return held.since(seen)

    def at_first(self) -> Seen:
        """Return what a reader has seen that has the turns this follower goes on from."""
        return self._held.at_first()

    def origin(self, seen: Seen) -> FollowerOrigin | None:
        """Return where another follower can go on from; None if that is further than a reader has seen."""
        return self._held.origin(seen)

    def _catch_up(self, held: _Held, until: Head | None) -> None:
        # The edition first: what is read after it may be newer, never older, and then the next read finds it.
        edition, size = self._store.state(self._transcript)
        learned, now = self._store.durable_head(self._ledger), self._store.durable_head(self._transcript)
        same = held.edition == edition and held.said.head == now
        same = same and (held.size == size or self._is_where_it_was(held))
        if not same or held.learned.head != learned:
            until = now if until is None else until
            try:
                if held.edition != edition or not self._reads_on(held, until, learned, same=same):
                    held.begin(edition)
                    self._learn(held, learned)
                    self._read(held, until)
            except BaseException:
                # A part of it was taken in.
                held.begin("")
                raise
        held.size = size

    def _is_where_it_was(self, held: _Held) -> bool:
        """Whether the last line that was read is still at its place: others may have come behind it, or a part."""
        said = held.said
        if not said.head.seq:
            return True
        record = next(self._store.read(self._transcript, said.head.seq - 1, byte=said.begin), None)
        try:
            return record is not None and record.byte == said.begin and head_of(record.line) == said.head
        except UNREADABLE:
            return False

    def _reads_on(self, held: _Held, until: Head, learned: Head, *, same: bool) -> bool:
        """Read both streams on from where they stand; False where one of them is not the one that was read.

        `same`: there is nothing new in the transcript.
        """
        try:
            if learned != held.learned.head:
                if learned.seq <= held.learned.head.seq:
                    return False
                self._learn(held, learned)
            if held.said.head.seq >= until.seq:
                return same or self._is_where_it_was(held)
            return self._read(held, until)
        except (CorruptLogError, _AnewError):
            # If it is damage, reading from the first line meets it again.
            return False

    def _read(self, held: _Held, until: Head) -> bool:
        """Read the transcript on; False where it is not the one that was read."""
        said = held.said
        for record in self._store.read(self._transcript, said.head.seq, byte=said.end):
            if said.head.seq >= until.seq:
                break
            if record.byte and record.byte != said.end:
                # The lines before it are of another length than they were: something was erased.
                return False
            commit = unseal(record.line, said.head, stream=self._transcript, byte=record.byte)
            if commit.seq == 1:
                must_belong(self._transcript, commit, self._scope)
            held.take(commit)
            held.said = said = _behind(commit.head, record)
        held.met()
        return True

    def _learn(self, held: _Held, until: Head) -> None:
        """Read the ledger on, up to a head, for what it says is erased.

        Reading turns does not decode all that was ever learned: only the line after the last read, lines that state
        an erasure, and the last line are checked.
        """
        before, last = held.learned.head, None
        for seq, record in enumerate(self._store.read(self._ledger, before.seq, byte=held.learned.end), before.seq):
            if seq >= until.seq:
                break
            if last is None or _REDACTED in record.line:
                after = before if last is None else head_before(record.line, seq + 1)
                for event in unseal(record.line, after, stream=self._ledger, byte=record.byte).events:
                    if isinstance(event, Redacted):
                        held.redact(event)
            last = seq, record
        if last is not None:
            seq, record = last
            commit = unseal(record.line, head_before(record.line, seq + 1), stream=self._ledger, byte=record.byte)
            held.learned = _behind(commit.head, record)


def _behind(head: Head, record: Record) -> StreamPlace:
    return StreamPlace(head, record.byte, record.byte + len(record.line) + 1)
