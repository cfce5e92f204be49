"""Streams as JSONL files below a home folder: the default engine, with nothing to install.

`<stream>.jsonl` holds the lines, `<stream>.lock` is what flock is taken on (the log itself may be replaced by an
erasure). An append is: lock, check the head, one write, one fdatasync; before a process's first append to a file the
folders above it are synced. A last line without its line break was cut short by a crash: whoever holds the lock next
moves it to `<stream>.torn-<n>` and says so. Damage anywhere else is for a person to judge.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

import msgspec

from ledger.clock import Clock, SystemClock
from ledger.commit import EMPTY, UNREADABLE, Head, head_of, inspect, prev_of
from ledger.errors import CorruptLogError, LockTimeoutError, WrongExpectedVersionError
from ledger.store import Record
from ledger.store.files import count_lines, last_line, make_folder, sync_folder, translated, write_whole

__all__ = ["JsonlStore"]

_log = logging.getLogger(__name__)

_LOCK_POLL_SECONDS = (0.0005, 0.02)
_FOLLOW_POLL_SECONDS = 0.2


class _Known(msgspec.Struct, frozen=True):
    """What was seen of a file: as long as inode, size and time of change are still these, the head is."""

    inode: int
    size: int
    changed: int
    head: Head


class _Cursor(msgspec.Struct, frozen=True):
    """Where in a file the line after `seq` begins."""

    inode: int
    seq: int
    byte: int


class _Hold:
    """A stream's lock among the threads of this process; the one that has it may take it again."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0


class JsonlStore:
    """Keeps streams as files below `home`; safe for threads and for several processes at once.

    `lock_timeout` is how many seconds to wait for another process's lock.
    """

    def __init__(self, home: Path, *, lock_timeout: float = 10.0, clock: Clock | None = None) -> None:
        self.home = home.absolute()
        self._lock_timeout = lock_timeout
        self._clock = clock or SystemClock()
        self._known: dict[str, _Known] = {}
        self._cursors: dict[str, _Cursor] = {}
        self._rooted: dict[str, int] = {}
        self._home_rooted = False
        self._guard = threading.Lock()
        self._holds: dict[str, _Hold] = {}

    def __repr__(self) -> str:
        return f"JsonlStore({str(self.home)!r})"

    def __str__(self) -> str:
        return f"jsonl:{self.home}"

    def path(self, stream: str) -> Path:
        """The file that holds a stream."""
        return self.home / f"{stream}.jsonl"

    def append(self, stream: str, line: bytes, expected: int) -> None:
        """Append one line durably; see `EventStore.append`."""
        path = self.path(stream)
        with self.locked(stream), translated(path, "write"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                head = self._head_for_writing(stream, descriptor)
                if head.seq != expected:
                    raise WrongExpectedVersionError(
                        f"{stream} is at {head.seq}, not at {expected}: read on and decide again", actual=head.seq
                    )
                if prev_of(line) != head.hash:
                    raise CorruptLogError(
                        f"{stream}: commit {head.seq} is not the one that was read: was the file exchanged?",
                        kind="broken_prev",
                        stream=stream,
                        line=head.seq,
                        byte=0,
                    )
                self._root(stream, descriptor)
                self._write(stream, descriptor, line + b"\n", head_of(line))
            finally:
                os.close(descriptor)

    def _root(self, stream: str, descriptor: int) -> None:
        """Sync the folders that lead to a file, before the first line that this process adds to it.

        Not only at the file's birth: whoever made it, or a folder above it, may have died before syncing that.
        """
        inode = os.fstat(descriptor).st_ino
        if self._rooted.get(stream) == inode:
            return
        folder = self.path(stream).parent
        sync_folder(folder)
        while folder not in (self.home, folder.parent):
            folder = folder.parent
            sync_folder(folder)
        if not self._home_rooted:
            for above in self.home.parents:
                _sync_above_home(above)
            self._home_rooted = True
        self._rooted[stream] = inode

    def _write(self, stream: str, descriptor: int, data: bytes, head: Head) -> None:
        before = os.fstat(descriptor)
        try:
            write_whole(descriptor, data)
            os.fdatasync(descriptor)
        except OSError:
            # Nobody was told that this line exists, so it must not be read either.
            self._known.pop(stream, None)
            self._cursors.pop(stream, None)
            os.ftruncate(descriptor, before.st_size)
            raise
        self._learn(stream, os.fstat(descriptor), head)
        self._cursors[stream] = _Cursor(before.st_ino, head.seq, before.st_size + len(data))

    def _head_for_writing(self, stream: str, descriptor: int) -> Head:
        """Find the head while holding the lock; a torn tail is moved aside first."""
        stat = os.fstat(descriptor)
        known = self._recall(stream, stat)
        if known is not None:
            return known
        line, end = last_line(descriptor, stat.st_size)
        head = self._parse_head(stream, descriptor, line, end)
        if end < stat.st_size:
            self._move_torn_tail(stream, descriptor, end, stat.st_size)
            stat = os.fstat(descriptor)
        self._learn(stream, stat, head)
        return head

    def _recall(self, stream: str, stat: os.stat_result) -> Head | None:
        known = self._known.get(stream)
        if known is None or (known.inode, known.size, known.changed) != (stat.st_ino, stat.st_size, stat.st_ctime_ns):
            return None
        return known.head

    def _learn(self, stream: str, stat: os.stat_result, head: Head) -> None:
        self._known[stream] = _Known(stat.st_ino, stat.st_size, stat.st_ctime_ns, head)

    def _parse_head(self, stream: str, descriptor: int, line: bytes, end: int) -> Head:
        """Read the head off the last whole line, which has to be what was written."""
        if end == 0:
            return EMPTY
        try:
            found = inspect(line)
            problem = None if found.intact else "is not what was written"
        except UNREADABLE:
            problem = "is no commit"
        if problem is None:
            return Head(found.seq, found.hash)
        byte, number = end - len(line) - 1, count_lines(descriptor, end)
        raise CorruptLogError(
            f"{stream}: the last line, {number} at byte {byte}, {problem}; nothing is written until it is mended: "
            "run `verify`",
            kind="altered",
            stream=stream,
            line=number,
            byte=byte,
        )

    def _move_torn_tail(self, stream: str, descriptor: int, end: int, size: int) -> None:
        tail = os.pread(descriptor, size - end, end)
        number = 1
        while (aside := self.home / f"{stream}.torn-{number}").exists():
            number += 1
        sidecar = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_whole(sidecar, tail)
            os.fsync(sidecar)
        except OSError:
            aside.unlink()
            raise
        finally:
            os.close(sidecar)
        sync_folder(aside.parent)
        os.ftruncate(descriptor, end)
        os.fdatasync(descriptor)
        _log.warning("%s: the last line was cut short by a crash; its %d bytes are now in %s", stream, len(tail), aside)

    def read(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq; see `EventStore.read`."""
        path = self.path(stream)
        with translated(path, "read"):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                return
            with file:
                inode, seq, byte = self._start(stream, file, after)
                try:
                    for line in file:
                        if not line.endswith(b"\n"):
                            return
                        start = byte
                        seq, byte = seq + 1, byte + len(line)
                        if seq > after:
                            yield Record(line[:-1], start)
                finally:
                    known = self._cursors.get(stream)
                    if known is None or known.inode != inode or known.seq < seq:
                        self._cursors[stream] = _Cursor(inode, seq, byte)

    def _start(self, stream: str, file: BufferedReader, after: int) -> tuple[int, int, int]:
        """Skip what was passed before, if it is still there: a line has to end where the cursor says."""
        inode = os.fstat(file.fileno()).st_ino
        cursor = self._cursors.get(stream)
        if cursor is None or cursor.inode != inode or cursor.seq > after:
            return inode, 0, 0
        if cursor.byte and os.pread(file.fileno(), 1, cursor.byte - 1) != b"\n":
            del self._cursors[stream]
            return inode, 0, 0
        file.seek(cursor.byte)
        return inode, cursor.seq, cursor.byte

    def head(self, stream: str) -> Head:
        """Return where the stream stands; see `EventStore.head`."""
        path = self.path(stream)
        with translated(path, "read"):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return EMPTY
            try:
                stat = os.fstat(descriptor)
                known = self._recall(stream, stat)
                if known is not None:
                    return known
                line, end = last_line(descriptor, stat.st_size)
                head = self._parse_head(stream, descriptor, line, end)
                if end == stat.st_size:
                    self._learn(stream, stat, head)
                return head
            finally:
                os.close(descriptor)

    def size(self, stream: str) -> int:
        """Return how many bytes a stream takes."""
        path = self.path(stream)
        with translated(path, "read"):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                return 0

    def torn_tail(self, stream: str) -> Record | None:
        """Return what a crash left behind the last whole line, if anything."""
        path = self.path(stream)
        with translated(path, "read"):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                size = os.fstat(descriptor).st_size
                _, end = last_line(descriptor, size)
                return Record(os.pread(descriptor, size - end, end), end) if end < size else None
            finally:
                os.close(descriptor)

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all streams that begin with the prefix, sorted."""
        names = []
        with translated(self.home, "read"):
            for folder, _, files in os.walk(self.home, onerror=_unless_gone):
                below = Path(folder).relative_to(self.home).as_posix()
                for file in files:
                    if file.endswith(".jsonl"):
                        name = file.removesuffix(".jsonl") if below == "." else f"{below}/{file.removesuffix('.jsonl')}"
                        if name.startswith(prefix):
                            names.append(name)
        yield from sorted(names)

    def follow(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq and then, without end, those that are appended; see `EventStore.follow`."""
        seq = after
        while True:
            for record in self.read(stream, seq):
                seq += 1
                yield record
            now = self.head(stream).seq
            if now < seq:
                raise CorruptLogError(
                    f"{stream} was read up to {seq} and now ends at {now}: its tail was cut off; "
                    "restore the file from a copy",
                    kind="missing",
                    stream=stream,
                    line=now + 1,
                    byte=self.size(stream),
                )
            self._clock.sleep(_FOLLOW_POLL_SECONDS)

    @contextmanager
    def locked(self, stream: str) -> Iterator[None]:
        """Hold the stream's lock; see `EventStore.locked`."""
        path = self.home / f"{stream}.lock"
        with self._guard:
            hold = self._holds.setdefault(stream, _Hold())
        if not hold.lock.acquire(timeout=self._lock_timeout):
            raise LockTimeoutError(
                f"{path} is still locked by another thread after {self._lock_timeout:g} s: try again"
            )
        try:
            descriptor = self._flock(path) if hold.depth == 0 else None
            hold.depth += 1
            try:
                yield
            finally:
                hold.depth -= 1
                if descriptor is not None:
                    os.close(descriptor)
        finally:
            hold.lock.release()

    def _flock(self, path: Path) -> int:
        """Open and lock the lock file; a lock on a file that is no longer the one at `path` would be nobody's."""
        waited, pause = 0.0, _LOCK_POLL_SECONDS[0]
        while True:
            with translated(path, "lock"):
                descriptor = _lock_now(path)
            if descriptor is not None:
                return descriptor
            if waited >= self._lock_timeout:
                raise LockTimeoutError(
                    f"{path} is held by another process after {self._lock_timeout:g} s: "
                    "end that process, or raise file_lock_timeout_seconds"
                )
            self._clock.sleep(pause)
            waited += pause
            pause = min(pause * 2, _LOCK_POLL_SECONDS[1])


def _lock_now(path: Path) -> int | None:
    """Return the locked lock file's descriptor; None while somebody else has it."""
    make_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(path.stat(), os.fstat(descriptor)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _sync_above_home(folder: Path) -> None:
    """Sync a folder that the home lies in; one that we may not even open is none that was made for it."""
    try:
        with suppress(PermissionError):
            sync_folder(folder)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
