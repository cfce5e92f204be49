"""Index file of one scope: its lock, when it is trusted, and when it is rebuilt.

`index.sqlite` beside memory.json, under an flock on `index.lock`: shared to read, exclusive to write or to take it
away. Who holds a stream's lock may take this one, never the other way round. A small scope, one whose folder cannot be
written, and one with an erasure that is not complete are indexed for this process alone, in a file that SQLite takes
away again. So is a question that comes while another process keeps the file for longer than a moment: only who deletes
the file waits for it. An index stands on durable commits only.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.commit import Commit, Head, head_before, unseal
from backstory.ledger.core.errors import CorruptLogError, StoreError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore, Record, StreamLook, looks_at
from backstory.projections.derived_files import (
    LOCK,
    DamagedError,
    KeptError,
    UnusableError,
    classified,
    deleting,
    derived_lock,
    remove,
    replacing,
)
from backstory.projections.index.builder import IndexBuilder, IndexProgress, StaleError
from backstory.projections.index.kv import ChecksummedKV, named, number, number_in
from backstory.projections.index.schema import NOTHING, IndexPosition, ReadingMark, StreamPosition, Table, ThreadState
from backstory.projections.read_model import ReadModel

_log = logging.getLogger(__name__)

SMALL_BYTES = 64 * 1024
"""Logs of less need no index in a file: they are read faster than it is opened."""

_AT_ONCE_BYTES = 8 * 1024 * 1024
_TRIES = 5
_PATIENCE_SECONDS = 0.05
"""How long a question waits for the file: longer than it takes to write some commits into it."""

T = TypeVar("T")

_tip = msgspec.msgpack.Decoder(IndexPosition)
_memory = msgspec.msgpack.Decoder(Memory)
_mark = msgspec.msgpack.Decoder(ReadingMark)
_thread_state = msgspec.msgpack.Decoder(ThreadState)


class IndexSnapshot(msgspec.Struct):
    """An index at the heads of both streams, on loan for one question; `streams` has their names by kind."""

    store: EventStore
    streams: Mapping[str, str]
    kv: ChecksummedKV
    tip: IndexPosition
    known: Memory | None = None
    """The memory at the ledger's head, once it was read."""

    def memory(self) -> Memory:
        """The memory at the ledger's head."""
        if self.known is None:
            kept = self.kv.get(Table.MEMORY, b"")
            if kept is None:
                raise DamagedError("it holds no memory")
            self.known = _memory.decode(kept)
        return self.known

    def thread(self, name: str) -> ThreadState:
        """What is known of a thread at the heads of both streams."""
        kept = self.kv.get(Table.THREADS, named(name))
        return ThreadState() if kept is None else _thread_state.decode(kept)

    def read(self, kind: str, after: Head, byte: int) -> Iterator[Commit]:
        """Yield a stream's commits after a head, as far as the index stands; the first begins at a byte.

        Where the first is not what should be there the index is at fault; if it is the log, building finds it.

        Raises:
            DamagedError: The first is not what should be there.
            CorruptLogError: Another is not.
        """
        stream = self.streams[kind]
        first = after.seq + 1
        last = (self.tip.ledger if kind == LEDGER else self.tip.transcript).head.seq
        for record in self._records(stream, after.seq, byte):
            if after.seq >= last:
                return
            try:
                commit = unseal(record.line, after, stream=stream, byte=record.byte)
            except CorruptLogError as error:
                if after.seq + 1 > first:
                    raise
                raise DamagedError(f"commit {first} of {stream} is not where it should be") from error
            after = commit.head
            yield commit

    def _records(self, stream: str, after: int, byte: int) -> Iterator[Record]:
        records = self.store.read(stream, after, byte=byte)
        first = next(records, None)
        if first is not None:
            # A store that finds another line there looks for the right one, from the start: that must not last.
            if first.byte != byte:
                raise DamagedError(f"commit {after + 1} of {stream} is not where it should be")
            yield first
            yield from records

    def line(self, kind: str, seq: int, byte: int, *, skip: int = 0) -> Commit:
        """Read the commit of a seq, whose line begins at a byte, or `skip` lines behind it; whatever it follows."""
        stream = self.streams[kind]
        records = self._records(stream, seq - skip - 1, byte)
        record = next(islice(records, skip, None), None)
        if record is not None:
            with suppress(CorruptLogError):
                return unseal(record.line, head_before(record.line, seq), stream=stream, byte=record.byte)
        raise DamagedError(f"commit {seq} of {stream} is not where it should be")

    def mark_before(self, seq: int) -> tuple[int, ReadingMark]:
        """The last line to start reading at that is not behind a commit of the ledger: its seq and where it is."""
        found = next(self.kv.descending(Table.LEDGER_MARKS, number(seq)), None)
        if found is None:
            raise DamagedError("a mark is missing")
        return number_in(found[0]), _mark.decode(found[1])

    def commit(self, seq: int) -> Commit:
        """Read one commit of the ledger."""
        start, mark = self.mark_before(seq)
        return self.line(LEDGER, seq, mark.byte, skip=seq - start)


class _Look(msgspec.Struct, frozen=True):
    """How an index compares with the streams: why it cannot be gone on from, if so, and how many bytes it is behind."""

    stale: str | None
    behind: bool
    bytes: int


class IndexFile(ReadModel):
    """The index of one scope, wherever it is; safe for threads and processes.

    Logs of less than `small` bytes need no file. `lock_timeout` is how many seconds to wait for the file to delete it;
    `progress` is called when the index is built or catches up.
    """

    def __init__(
        self,
        store: EventStore,
        scope: Scope,
        path: Path,
        *,
        progress: IndexProgress | None = None,
        small: int = SMALL_BYTES,
        lock_timeout: float = 120.0,
        clock: Clock | None = None,
    ) -> None:
        self.store = store
        self.scope = scope
        self.path = path
        self._progress = progress
        self._small_bytes = small
        self._lock_timeout = lock_timeout
        self._clock = clock or SystemClock()
        self._streams = {kind: scope.stream(kind) for kind in (LEDGER, TRANSCRIPT)}
        self.renew()

    def renew(self) -> None:
        """Begin as if nothing had been opened: in a forked child what is open is the parent's."""
        self._mutex = threading.RLock()
        self._file: ChecksummedKV | None = None
        self._own: IndexSnapshot | None = None
        self._distrusted: str | None = None
        self._alone = False

    def ask(self, question: Callable[[IndexSnapshot], T], *, until: tuple[Head, Head] | None = None) -> T:
        """Bring the index to the heads of both streams, or as far as `until` asks for, and answer from it.

        A question may be asked twice: where the index turns out to be damaged it is built anew. Another
        process that holds the file is not waited for: meanwhile this one indexes for itself.

        Raises:
            CorruptLogError: A log is damaged.
            StoreError: A log cannot be read, or changes faster than it can be.
        """
        with self._mutex:
            for _ in range(_TRIES):
                try:
                    with classified(io_is_damage=True):
                        answer = self._once(question, until)
                except (DamagedError, StaleError) as error:
                    self._distrusted = str(error)
                except UnusableError as error:
                    _log.warning("%s cannot be used (%s): this process indexes for itself", self.path, error)
                    self._alone = True
                else:
                    self._distrusted = None
                    return answer
        raise StoreError(f"{self.path} cannot be built: {self._distrusted}; run `verify`, and try again")

    def follow(self) -> None:
        """Bring the file to the heads of both streams, so that the next question need not; a small scope has none.

        Where another process keeps it that is left for another time.
        """
        with self._mutex:
            if not self.in_file():
                return
            # To index for this process alone would be work for nothing.
            try:
                with self._locked(fcntl.LOCK_EX, _PATIENCE_SECONDS):
                    pass
            except (KeptError, UnusableError):
                return
        self.ask(lambda _: None)

    def in_file(self) -> bool:
        """Whether the index is, or is to be, in a file that outlives this process."""
        return not (self._alone or self._small() or self._own_will_do())

    def _once(self, question: Callable[[IndexSnapshot], T], until: tuple[Head, Head] | None) -> T:
        if not self.in_file():
            return question(self._private())
        try:
            if self._distrusted is None:
                with self._locked(fcntl.LOCK_SH, _PATIENCE_SECONDS):
                    standing = self._from_file()
                    if standing is not None:
                        look = self._look(standing.tip)
                        if look.stale is None and (not look.behind or _reaches(standing.tip, until)):
                            self._own = None
                            return question(standing)
            with self._locked(fcntl.LOCK_EX, _PATIENCE_SECONDS):
                return question(self._renewed())
        except KeptError:
            if self._own is None:
                self._own = self._copied()
            return question(self._private())

    def _small(self) -> bool:
        # The file first: an engine may be far away.
        return (
            not self.path.exists()
            and sum(self.store.state(stream).size for stream in self._streams.values()) < self._small_bytes
        )

    def _own_will_do(self) -> bool:
        """Whether an erasure is still not complete, so that nothing may be written."""
        return self._own is not None and not self._own.tip.settled and self._look(self._own.tip).stale is None

    def _look(self, tip: IndexPosition) -> _Look:
        if tip.version != IndexPosition().version:
            return _Look("it is of another version", behind=True, bytes=0)
        if tip.scope != self.scope:
            return _Look(f"it is that of {tip.scope}", behind=True, bytes=0)
        behind, size = False, 0
        streams, stands = list(self._streams.values()), (tip.ledger, tip.transcript)
        for stream, stand, now in zip(streams, stands, looks_at(self.store, streams), strict=True):
            reason = self._stale(stream, stand, now)
            if reason is not None:
                return _Look(reason, behind=True, bytes=0)
            behind = behind or now.durable.seq > stand.head.seq
            size += max(0, now.state.size - stand.end)
        return _Look(None, behind, size)

    def _stale(self, stream: str, stand: StreamPosition, now: StreamLook) -> str | None:
        if stand.head.seq == 0:
            return None
        head = now.head
        if head.seq < stand.head.seq:
            return f"{stream} ends at {head.seq}, and there was a commit {stand.head.seq}: was its tail cut off?"
        if head.seq == stand.head.seq and head.hash != stand.head.hash:
            return f"{stream} has another commit {head.seq} than it had"
        return None if now.state.edition == stand.edition else f"{stream} was stored anew"

    # The file.

    def _from_file(self) -> IndexSnapshot | None:
        """Open the file as it is now; None where there is none."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            stat = None
        if self._file is not None and (stat is None or stat.st_ino != self._file.inode):
            self._drop_file()
        if stat is None:
            return None
        if self._file is None:
            try:
                self._file = ChecksummedKV(self.path)
            except FileNotFoundError:
                # It may be deleted at any time, without the lock.
                return None
        return IndexSnapshot(self.store, self._streams, self._file, tip_of(self._file))

    def _drop_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _renewed(self) -> IndexSnapshot:
        """Bring the file to the heads; the lock is held for writing."""
        reason = self._distrusted
        if reason is None:
            try:
                with classified(io_is_damage=True):
                    standing = self._from_file()
                    if standing is not None:
                        return self._caught_up(standing)
            except (DamagedError, StaleError) as error:
                reason = str(error)
        if reason is not None:
            _log.warning("%s is built anew: %s", self.path, reason)
        self._drop_file()
        self._distrusted = None
        standing = self._own = self._built()
        if standing.tip.settled:
            return self._saved(standing)
        self._remove()
        return standing

    def _caught_up(self, standing: IndexSnapshot) -> IndexSnapshot:
        look = self._look(standing.tip)
        if look.stale is not None:
            raise StaleError(look.stale)
        if not look.behind:
            return standing
        if look.bytes <= _AT_ONCE_BYTES:
            # All of it is read before any of it is written: of what was to be erased nothing gets into the file.
            return self._taken_in(standing, by_parts=False)
        copy = IndexSnapshot(self.store, self._streams, standing.kv.copy(), standing.tip)
        return self._saved(self._taken_in(copy, by_parts=True))

    def _taken_in(self, standing: IndexSnapshot, *, by_parts: bool) -> IndexSnapshot:
        intake = IndexBuilder(
            self.store, self._streams, standing.kv, standing.tip, standing.memory(), by_parts=by_parts
        )
        tip = intake.run(self.scope, self._progress)
        return IndexSnapshot(self.store, self._streams, standing.kv, tip, intake.finish(tip))

    def _built(self) -> IndexSnapshot:
        empty = IndexSnapshot(self.store, self._streams, ChecksummedKV.new(Table), IndexPosition(), NOTHING)
        return self._taken_in(empty, by_parts=True)

    def _saved(self, standing: IndexSnapshot) -> IndexSnapshot:
        """Put a private index in the file's place, whole or not at all."""
        try:
            # First, so that no erased content stays where the new file cannot be written.
            self._remove()
            with replacing(self.path) as fresh:
                standing.kv.save(fresh)
        except OSError as error:
            raise UnusableError(error.strerror or str(error)) from error
        self._own = None
        return self._from_file() or standing

    def _remove(self) -> None:
        self._drop_file()
        remove(self.path)

    def purge(self) -> None:
        """Take the file away, and whatever SQLite left beside it; it is not in use when this returns.

        Raises:
            LockTimeoutError: Another process keeps it.
            StoreError: It cannot be taken away.
        """
        if not self.path.parent.is_dir():
            with self._mutex:
                self._own = None
            return
        # The file first: who has a question meanwhile must not wait until another process lets go of it.
        with deleting(self.path, self._lock_timeout, self._clock), self._mutex:
            self._own = None
            self._remove()

    def close(self) -> None:
        """Let go of what is open; the next question opens it again."""
        with self._mutex:
            self._own = None
            self._drop_file()

    def as_it_is(self, question: Callable[[ChecksummedKV, IndexPosition], T]) -> T | None:
        """Let the file be looked at as it stands, without bringing it up or mending it; None where there is none.

        Raises:
            DamagedError: It is not what was written.
        """
        with self._mutex:
            if not self.path.exists():
                return None
            try:
                with classified(io_is_damage=True), self._locked(fcntl.LOCK_SH, _PATIENCE_SECONDS):
                    standing = self._from_file()
                    return None if standing is None else question(standing.kv, standing.tip)
            except KeptError:
                _log.warning("%s was not looked at: another process is writing it", self.path)
                return None
            except UnusableError as error:
                _log.warning("%s cannot be looked at: %s", self.path, error)
                return None

    # For this process alone.

    def _private(self) -> IndexSnapshot:
        own = self._own
        if self._distrusted is None and own is not None:
            try:
                look = self._look(own.tip)
                if look.stale is None:
                    self._own = None
                    self._own = self._taken_in(own, by_parts=True) if look.behind else own
                    return self._own
            except StaleError:
                pass
        self._own = None
        self._own = self._built()
        self._distrusted = None
        return self._own

    def _copied(self) -> IndexSnapshot | None:
        """Copy what the file holds, if it may be read just now: less is left to take in."""
        if self._distrusted is not None:
            return None
        try:
            with self._locked(fcntl.LOCK_SH, 0.0):
                standing = self._from_file()
                if standing is None:
                    return None
                return IndexSnapshot(self.store, self._streams, standing.kv.copy(), standing.tip)
        except KeptError:
            return None

    # The lock.

    def _locked(self, how: int, timeout: float) -> AbstractContextManager[None]:
        return derived_lock(self.path.with_name(LOCK), how, timeout, self._clock)


def tip_of(kv: ChecksummedKV) -> IndexPosition:
    """Read where an index stands.

    Raises:
        DamagedError: It does not say.
    """
    kept = kv.get(Table.TIP, b"")
    try:
        if kept is not None:
            return _tip.decode(kept)
    except msgspec.ValidationError as error:
        raise DamagedError("it is of another version") from error
    raise DamagedError("it was never finished")


def _reaches(tip: IndexPosition, until: tuple[Head, Head] | None) -> bool:
    return until is not None and tip.ledger.head.seq >= until[0].seq and tip.transcript.head.seq >= until[1].seq
