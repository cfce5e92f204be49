"""JSONL engine: streams as files below a home folder. It is the default and needs no server.

`<stream>.jsonl` holds the lines. flock is taken on `<stream>.lock`, because an erasure may replace the log itself. An
append takes the lock, checks the head, and makes one write and one sync; before a process's first append to a file
the folders above it are synced. A last line without a line break was cut short by a crash: the next holder of the lock
moves it to `<stream>.torn-<n>` and reports it. Any other damage is left for a person to judge. An erasure writes a new
file and puts it in the place of the old one.

After a sync, and before it releases the lock, a writer notes the head in the lock file. So a reader knows without the
lock what is durable: everything up to the note, or the whole file while no process holds the lock.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from io import BufferedReader
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.commit import EMPTY, UNREADABLE, Head, head_of, prev_of
from backstory.ledger.disk.files import (
    last_line,
    opened_to_read,
    sync,
    sync_above,
    sync_data,
    sync_folder,
    translated,
    write_whole,
)
from backstory.ledger.disk.locks import FileLocks, kept_free, leased
from backstory.ledger.engines.jsonl.folder_names import FolderNames, stream_names
from backstory.ledger.engines.jsonl.heads import (
    FilePlace,
    KnownStream,
    move_torn_tail,
    parse_head,
    read_note,
    spelled_note,
)
from backstory.ledger.engines.jsonl.keys import StreamKeys
from backstory.ledger.engines.jsonl.removal import Removals
from backstory.ledger.engines.jsonl.seal import FileSeal
from backstory.ledger.engines.port import Capabilities, Record, RemovedLog, Seal, StreamState
from backstory.ledger.engines.promises import followed, must_be_erasure, other_history, other_version

_log = logging.getLogger(__name__)

_FOLLOW_POLL_SECONDS = 0.2
_TO_WRITE = os.O_RDWR | os.O_APPEND
_REMEMBERED = 4096
_MOVED_ASIDE = ("{}.torn-*", "{}.damaged-*", ".{}.mending", ".{}.copying", ".{}.erasing")
"""What a crash, a repair, or a repair or an erasure that was killed leaves beside a log."""


class JsonlStore:
    """Keeps streams as files below `home`; safe for threads and for several processes at once.

    `lock_timeout` is how many seconds to wait for another process's lock.
    """

    def __init__(self, home: Path, *, lock_timeout: float = 10.0, clock: Clock | None = None) -> None:
        self.home = home.absolute()
        self._prefix = f"{self.home}/"
        self._clock = clock or SystemClock()
        self._streams: Recent[str, KnownStream] = Recent(_REMEMBERED)
        self._rooted: Recent[str, int] = Recent(_REMEMBERED)
        """The inodes of the files to which the folders above were synced; who only reads drops none of them."""
        self._home_rooted = False
        self._locks = FileLocks(lock_timeout, self._clock, tidy=True)
        self._seal = FileSeal(self.home, lock_timeout, self._clock)
        self._removals = Removals(self.home, self._locks, self._clock, self._seal.must_allow)
        self._folders = FolderNames(self.home)
        self._keys = StreamKeys(self.home, self._locks, self._seal.must_allow)

    def __repr__(self) -> str:
        return f"JsonlStore({str(self.home)!r})"

    def __str__(self) -> str:
        return f"jsonl:{self.home}"

    def path(self, stream: str) -> Path:
        """The file that holds a stream."""
        return self.home / f"{stream}.jsonl"

    def _file(self, stream: str) -> str:
        """The same as a plain text: every commit asks for it, and making a Path is a good part of what it costs."""
        return f"{self._prefix}{stream}.jsonl"

    def _known(self, stream: str) -> KnownStream:
        known = self._streams.get(stream)
        if known is None:
            known = KnownStream()
            self._streams.put(stream, known)
        return known

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        """Append lines with one write and one sync; see `EventStore.append`."""
        path = self._file(stream)
        with self.locked(stream), translated(path, "write"):
            self._seal.must_allow()
            try:
                descriptor = os.open(path, _TO_WRITE | (os.O_CREAT if expected == 0 else 0), 0o600)
            except FileNotFoundError:
                raise other_version(stream, 0, expected) from None
            try:
                stat = os.fstat(descriptor)
                head, size = self._head_for_writing(stream, descriptor, stat)
                if head.seq != expected:
                    raise other_version(stream, head.seq, expected)
                if prev_of(lines[0]) != head.hash:
                    raise other_history(stream, expected, "file")
                self._root(stream, stat.st_ino)
                self._write(stream, descriptor, size, b"".join([line + b"\n" for line in lines]), head_of(lines[-1]))
            finally:
                os.close(descriptor)

    def _root(self, stream: str, inode: int) -> None:
        """Sync the folders that lead to a file, before the first line that this process adds to it.

        Also for an existing file: the process that made it, or a folder above it, may have died before syncing that.
        """
        if self._rooted.get(stream) == inode:
            return
        folder = self.path(stream).parent
        sync_folder(folder)
        while folder not in (self.home, folder.parent):
            folder = folder.parent
            sync_folder(folder)
        if not self._home_rooted:
            for above in self.home.parents:
                sync_above(above)
            self._home_rooted = True
        self._rooted.put(stream, inode)

    def _write(self, stream: str, descriptor: int, size: int, data: bytes, head: Head) -> None:
        known = self._known(stream)
        try:
            write_whole(descriptor, data)
            sync_data(descriptor)
        except BaseException:
            # These lines were never reported as written, so they must not be read either.
            known.forget()
            os.ftruncate(descriptor, size)
            raise
        stat = os.fstat(descriptor)
        known.learn(stat, head)
        known.cursor = FilePlace(stat.st_ino, head.seq, stat.st_size)
        self._note(stream, head)

    def _note(self, stream: str, head: Head) -> None:
        """Note a head that is durable, for this process and, in the lock file, for others; the lock is held."""
        self._known(stream).durable = head
        # Without a note readers look whether the lock is free: no reason to say that what was synced was not.
        with suppress(OSError):
            self._locks.write_note(self._lock_file(stream), spelled_note(head))

    def _head_for_writing(self, stream: str, descriptor: int, stat: os.stat_result) -> tuple[Head, int]:
        """Find the head, and the byte behind it, while holding the lock; a torn tail is moved aside first."""
        known = self._known(stream)
        seen = known.head(stat)
        if seen is not None:
            return seen, stat.st_size
        line, end = last_line(descriptor, stat.st_size)
        head = parse_head(stream, descriptor, line, end)
        if end < stat.st_size:
            aside, torn = move_torn_tail(self.path(stream), descriptor, end, stat.st_size), stat.st_size - end
            _log.warning("%s: the last line was cut short by a crash; its %d bytes are now in %s", stream, torn, aside)
            stat = os.fstat(descriptor)
        known.learn(stat, head)
        return head, end

    def read(self, stream: str, after: int = 0, *, byte: int | None = None) -> Iterator[Record]:
        """Yield the lines after a seq; see `EventStore.read`."""
        path = self._file(stream)
        with translated(path, "read"):
            try:
                file = open(path, "rb")  # noqa: PTH123, SIM115
            except FileNotFoundError:
                return
            with file:
                inode, seq, start = self._start(stream, file, after, byte)
                try:
                    for line in file:
                        if not line.endswith(b"\n"):
                            return
                        begin = start
                        seq, start = seq + 1, start + len(line)
                        if seq > after:
                            yield Record(line[:-1], begin)
                finally:
                    known = self._known(stream)
                    cursor = known.cursor
                    # A reader that returned later lines before has to check that itself.
                    if byte is None and (cursor is None or cursor.inode != inode or cursor.seq < seq):
                        known.cursor = FilePlace(inode, seq, start)

    def _start(self, stream: str, file: BufferedReader, after: int, byte: int | None) -> tuple[int, int, int]:
        """Skip what was passed before, if it is still there: a line has to end where the next is said to begin."""
        inode = os.fstat(file.fileno()).st_ino
        if byte is not None and _is_next(file, byte, after + 1):
            return inode, after, file.seek(byte)
        known = self._known(stream)
        cursor = known.cursor
        if cursor is None or cursor.inode != inode or cursor.seq > after:
            return inode, 0, 0
        if not _begins_line(file, cursor.byte):
            known.cursor = None
            return inode, 0, 0
        return inode, cursor.seq, file.seek(cursor.byte)

    def head(self, stream: str) -> Head:
        """Return where the stream stands; see `EventStore.head`."""
        path, known = self._file(stream), self._known(stream)
        with translated(path, "read"):
            try:
                seen = known.head(os.stat(path))  # noqa: PTH116
            except FileNotFoundError:
                # Asked with every record in a memory from which nothing was learned yet.
                return EMPTY
        if seen is not None:
            return seen
        with opened_to_read(path, "read") as descriptor:
            if descriptor is None:
                return EMPTY
            stat = os.fstat(descriptor)
            line, end = last_line(descriptor, stat.st_size)
            head = parse_head(stream, descriptor, line, end)
            if end == stat.st_size:
                known.learn(stat, head)
            return head

    def durable_head(self, stream: str) -> Head:
        """See `EventStore.durable_head`."""
        now, known = self.head(stream), self._known(stream)
        if known.durable == now:
            return now
        lock = self._lock_file(stream)
        noted = read_note(lock)
        if noted != now:
            with kept_free(lock) as free:
                if free:
                    # No process is writing, so this is neither being synced nor being taken back.
                    now = self.head(stream)
            if not free:
                now = _durable_of(now, known.durable, lock)
        known.durable = now
        return now

    def head_at_once(self, stream: str) -> Head | None:
        """See `Capabilities.head_at_once`: one look at the file."""
        try:
            stat = os.stat(self._file(stream))  # noqa: PTH116
        except FileNotFoundError:
            return EMPTY
        except OSError:
            return None
        known = self._known(stream)
        head = known.head(stat)
        return head if head is not None and known.durable == head else None

    def settled_head(self, stream: str) -> Head:
        """Return the head once it can neither be lost nor taken back; see `EventStore.settled_head`."""
        with self.locked(stream), opened_to_read(self._file(stream), "sync") as descriptor:
            if descriptor is None:
                return EMPTY
            # Its writer may have died, or been interrupted, before the sync.
            sync_data(descriptor)
            self._root(stream, os.fstat(descriptor).st_ino)
            head = self.head(stream)
            self._note(stream, head)
            return head

    def state(self, stream: str) -> StreamState:
        """Return the file's inode and size; see `EventStore.state`. An erasure puts another file in its place."""
        path = self._file(stream)
        with translated(path, "read"):
            try:
                stat = os.stat(path)  # noqa: PTH116
            except FileNotFoundError:
                return StreamState("", 0)
            return StreamState(str(stat.st_ino), stat.st_size)

    def torn_tail(self, stream: str) -> Record | None:
        """Return what a crash left behind the last whole line, if anything."""
        with opened_to_read(self._file(stream), "read") as descriptor:
            if descriptor is None:
                return None
            size = os.fstat(descriptor).st_size
            _, end = last_line(descriptor, size)
            return Record(os.pread(descriptor, size - end, end), end) if end < size else None

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all streams that begin with the prefix, sorted."""
        with translated(self.home, "read"):
            names = sorted(stream_names(self._prefix, prefix))
        yield from names

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names right below a folder; see `EventStore.folders`. One without a stream may be among them."""
        with translated(self.home / folder, "read"):
            return self._folders.names(folder)

    def follow(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq and then, without end, those that are appended; see `EventStore.follow`."""
        return followed(
            self,
            stream,
            after,
            wait=lambda _: self._clock.sleep(_FOLLOW_POLL_SECONDS),
            if_lost="its tail was cut off; restore the file from a copy",
        )

    def capabilities(self) -> Capabilities:
        """See `EventStore.capabilities`."""
        return Capabilities(path=self.path, was_repaired=self.was_repaired, head_at_once=self.head_at_once)

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def locked(self, stream: str, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the stream's lock; see `EventStore.locked`."""
        return self._locks.held(self._lock_file(stream), wait=wait)

    def _lock_file(self, stream: str) -> str:
        return f"{self._prefix}{stream}.lock"

    def lease(self, stream: str, name: str) -> AbstractContextManager[bool]:
        """Try to be the only one at work on something; see `EventStore.lease`."""
        spelled = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return leased(self.home / f"{stream}.lease-{spelled}")

    def was_repaired(self, stream: str, edition: str) -> bool:
        """Whether a repair has moved the file of an edition aside, so that lines that were read may be gone."""
        path = self.path(stream)
        with translated(path, "read"):
            return any(str(aside.stat().st_ino) == edition for aside in path.parent.glob(f"{path.stem}.damaged-*"))

    def key(self, stream: str, *, create: bool = False) -> bytes | None:
        """Return the secret of a stream; see `EventStore.key`."""
        return self._keys.get(stream, create=create)

    def set_key(self, stream: str, key: bytes | None) -> None:
        """Set the secret of a stream, or destroy it; see `EventStore.set_key`."""
        self._keys.put(stream, key)

    def redact(self, stream: str, lines: Mapping[int, bytes]) -> None:
        """Put stubs in the place of what was erased, in a new file; see `EventStore.redact`."""
        path = self.path(stream)
        with self.locked(stream), translated(path, "write"):
            self._seal.must_allow()
            _remove_moved_aside(path)
            if not lines:
                return
            descriptor = os.open(path, _TO_WRITE)
            try:
                # It moves a torn tail aside.
                self._head_for_writing(stream, descriptor, os.fstat(descriptor))
            finally:
                os.close(descriptor)
            for sidecar in path.parent.glob(f"{path.stem}.torn-*"):
                sidecar.unlink()
            _write_erased(path, stream, self.read(stream), lines)
            self._known(stream).forget()
            sync_folder(path.parent)

    def remove(self, folder: str) -> bool:
        """Remove the streams below a folder, and the folder; see `EventStore.remove`."""
        done = self._removals.remove(folder)
        within = f"{folder}/"
        for known in (self._streams, self._rooted):
            for stream in list(known):
                if stream.startswith(within):
                    known.pop(stream, None)
        return done

    def is_removed(self, first: str) -> bool:
        """See `EventStore.is_removed`."""
        return self._removals.is_removed(first)

    def removed_logs(self) -> Iterator[RemovedLog]:
        """See `EventStore.removed_logs`."""
        return self._removals.marks()

    def restore_removed(self, log: RemovedLog) -> None:
        """See `EventStore.restore_removed`."""
        self._seal.must_allow()
        self._removals.restore(log)

    def seal(self) -> Seal | None:
        """See `EventStore.seal`."""
        return self._seal.read()

    def set_seal(self, seal: Seal | None) -> None:
        """See `EventStore.set_seal`."""
        self._seal.put(seal)


def _durable_of(now: Head, known: Head | None, lock: str) -> Head:
    """Return the durable head of a stream that another process may be writing; `known` is the newest one known."""
    noted = read_note(lock)
    if noted is None or noted == now:
        return now
    newest = known if known is not None and known.seq > noted.seq else noted
    # A note about more than there is, is that of another log.
    return newest if newest.seq < now.seq else now


def _is_next(file: BufferedReader, byte: int, seq: int) -> bool:
    """Whether the line of a seq begins at an offset; an erasure may have moved it."""
    if not _begins_line(file, byte):
        return False
    file.seek(byte)
    try:
        return head_of(file.readline()).seq == seq
    except UNREADABLE:
        return False
    finally:
        file.seek(0)


def _begins_line(file: BufferedReader, byte: int) -> bool:
    return byte == 0 or os.pread(file.fileno(), 1, byte - 1) == b"\n"


def _remove_moved_aside(path: Path) -> None:
    """Remove the files that were moved aside from a log: they may hold what is erased."""
    for moved in _MOVED_ASIDE:
        for sidecar in path.parent.glob(moved.format(path.stem)):
            sidecar.unlink()


def _write_erased(path: Path, stream: str, records: Iterable[Record], lines: Mapping[int, bytes]) -> None:
    """Write a log anew with lines replaced by their erasures; after an error the old one is there as it was."""
    fresh = path.with_name(f".{path.stem}.erasing")
    target = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(target, "wb") as file:
            for seq, record in enumerate(records, 1):
                line = lines.get(seq)
                if line is not None:
                    must_be_erasure(stream, seq, record.line, line)
                file.write((record.line if line is None else line) + b"\n")
            file.flush()
            sync(file.fileno())
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
