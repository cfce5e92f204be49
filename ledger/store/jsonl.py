"""Streams as JSONL files below a home folder: the default engine, with nothing to install.

`<stream>.jsonl` holds the lines, `<stream>.lock` is what flock is taken on (the log itself may be replaced by an
erasure). An append is: lock, check the head, one write, one fdatasync; the folder is synced when a file is born. A last
line without its line break was cut short by a crash: whoever holds the lock next moves it to `<stream>.torn-<n>` and
says so. Damage anywhere else is for a person to judge.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ledger.clock import Clock, SystemClock
from ledger.commit import EMPTY, Head, head_of, prev_of
from ledger.errors import CorruptLogError, LockTimeoutError, StoreError, WrongExpectedVersionError
from ledger.store import Record

__all__ = ["JsonlStore"]

_log = logging.getLogger(__name__)

_CHUNK = 1 << 16
_LOCK_POLL_SECONDS = (0.0005, 0.02)
_FOLLOW_POLL_SECONDS = 0.2


class _Known(msgspec.Struct, frozen=True):
    """What was seen of a file: if inode and size are still these, the head is."""

    inode: int
    size: int
    head: Head


class _Cursor(msgspec.Struct, frozen=True):
    """Where in a file the line after `seq` begins."""

    inode: int
    seq: int
    byte: int


class JsonlStore:
    """Keeps streams as files below `home`; safe for threads and for several processes at once.

    `lock_timeout` is how many seconds to wait for another process's lock.
    """

    def __init__(self, home: Path, *, lock_timeout: float = 10.0, clock: Clock | None = None) -> None:
        self.home = home
        self._lock_timeout = lock_timeout
        self._clock = clock or SystemClock()
        self._known: dict[str, _Known] = {}
        self._cursors: dict[str, _Cursor] = {}
        self._guard = threading.Lock()
        self._threads: dict[str, threading.Lock] = {}

    def __repr__(self) -> str:
        return f"JsonlStore({str(self.home)!r})"

    def path(self, stream: str) -> Path:
        """The file that holds a stream."""
        return self.home / f"{stream}.jsonl"

    def append(self, stream: str, line: bytes, expected: int) -> None:
        """Append one line durably; see `EventStore.append`."""
        path = self.path(stream)
        with self.locked(stream), _translated(path, "write"):
            born = not path.exists()
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
                self._write(stream, descriptor, line + b"\n", head_of(line))
            finally:
                os.close(descriptor)
            if born:
                self._sync_birth(path.parent)

    def _sync_birth(self, folder: Path) -> None:
        """Sync the folder of a new file, and those above it up to the home: any of them may be new too."""
        _sync_folder(folder)
        while folder not in (self.home, folder.parent):
            folder = folder.parent
            _sync_folder(folder)

    def _write(self, stream: str, descriptor: int, data: bytes, head: Head) -> None:
        before = os.fstat(descriptor)
        try:
            _write_whole(descriptor, data)
            os.fdatasync(descriptor)
        except OSError:
            # Nobody was told that this line exists, so it must not be read either.
            self._known.pop(stream, None)
            os.ftruncate(descriptor, before.st_size)
            raise
        self._known[stream] = _Known(before.st_ino, before.st_size + len(data), head)
        self._cursors[stream] = _Cursor(before.st_ino, head.seq, before.st_size + len(data))

    def _head_for_writing(self, stream: str, descriptor: int) -> Head:
        """Find the head while holding the lock; a torn tail is moved aside first."""
        stat = os.fstat(descriptor)
        known = self._known.get(stream)
        if known is not None and (known.inode, known.size) == (stat.st_ino, stat.st_size):
            return known.head
        line, end = _last_line(descriptor, stat.st_size)
        if end < stat.st_size:
            self._move_torn_tail(stream, descriptor, end, stat.st_size)
        return self._learn(stream, _Known(stat.st_ino, end, self._parse_head(stream, line, end)))

    def _learn(self, stream: str, known: _Known) -> Head:
        self._known[stream] = known
        return known.head

    def _parse_head(self, stream: str, line: bytes, end: int) -> Head:
        if not line:
            return EMPTY
        try:
            return head_of(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            byte = end - len(line) - 1
            raise CorruptLogError(
                f"{stream}: the last line, at byte {byte}, is no commit; nothing is written until it is mended: "
                "run `verify`",
                kind="altered",
                stream=stream,
                line=0,
                byte=byte,
            ) from error

    def _move_torn_tail(self, stream: str, descriptor: int, end: int, size: int) -> None:
        tail = os.pread(descriptor, size - end, end)
        number = 1
        while (aside := self.home / f"{stream}.torn-{number}").exists():
            number += 1
        sidecar = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(sidecar, tail)
            os.fsync(sidecar)
        finally:
            os.close(sidecar)
        _sync_folder(aside.parent)
        os.ftruncate(descriptor, end)
        os.fdatasync(descriptor)
        _log.warning("%s: the last line was cut short by a crash; its %d bytes are now in %s", stream, len(tail), aside)

    def read(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq; see `EventStore.read`."""
        path = self.path(stream)
        with _translated(path, "read"):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                return
            with file:
                inode = os.fstat(file.fileno()).st_ino
                cursor = self._cursors.get(stream)
                seq, byte = 0, 0
                if cursor is not None and cursor.inode == inode and cursor.seq <= after:
                    seq, byte = cursor.seq, cursor.byte
                    file.seek(byte)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    seq += 1
                    if seq > after:
                        yield Record(line[:-1], byte)
                    byte += len(line)
                    self._cursors[stream] = _Cursor(inode, seq, byte)

    def head(self, stream: str) -> Head:
        """Return where the stream stands."""
        path = self.path(stream)
        with _translated(path, "read"):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return EMPTY
            try:
                stat = os.fstat(descriptor)
                known = self._known.get(stream)
                if known is not None and (known.inode, known.size) == (stat.st_ino, stat.st_size):
                    return known.head
                line, end = _last_line(descriptor, stat.st_size)
                return self._parse_head(stream, line, end)
            finally:
                os.close(descriptor)

    def size(self, stream: str) -> int:
        """Return how many bytes a stream takes."""
        path = self.path(stream)
        with _translated(path, "read"):
            return path.stat().st_size if path.exists() else 0

    def torn_tail(self, stream: str) -> Record | None:
        """Return what a crash left behind the last whole line, if anything."""
        path = self.path(stream)
        with _translated(path, "read"):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                size = os.fstat(descriptor).st_size
                _, end = _last_line(descriptor, size)
                return Record(os.pread(descriptor, size - end, end), end) if end < size else None
            finally:
                os.close(descriptor)

    def streams(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all streams that begin with the prefix, sorted."""
        names = []
        with _translated(self.home, "read"):
            if not self.home.exists():
                return
            for folder, _, files in os.walk(self.home, onerror=_raise):
                below = Path(folder).relative_to(self.home).as_posix()
                for file in files:
                    if file.endswith(".jsonl"):
                        name = file.removesuffix(".jsonl") if below == "." else f"{below}/{file.removesuffix('.jsonl')}"
                        if name.startswith(prefix):
                            names.append(name)
        yield from sorted(names)

    def follow(self, stream: str, after: int = 0) -> Iterator[Record]:
        """Yield the lines after a seq and then, without end, those that are appended."""
        seq = after
        while True:
            for record in self.read(stream, seq):
                seq += 1
                yield record
            self._clock.sleep(_FOLLOW_POLL_SECONDS)

    @contextmanager
    def locked(self, stream: str) -> Iterator[None]:
        """Hold the stream's lock; see `EventStore.locked`."""
        path = self.home / f"{stream}.lock"
        with self._guard:
            thread = self._threads.setdefault(stream, threading.Lock())
        if not thread.acquire(timeout=self._lock_timeout):
            raise LockTimeoutError(
                f"{path} is still locked by another thread after {self._lock_timeout:g} s: try again"
            )
        try:
            with _translated(path, "lock"):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._flock(descriptor, path)
                yield
            finally:
                os.close(descriptor)
        finally:
            thread.release()

    def _flock(self, descriptor: int, path: Path) -> None:
        waited, pause = 0.0, _LOCK_POLL_SECONDS[0]
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waited >= self._lock_timeout:
                    raise LockTimeoutError(
                        f"{path} is held by another process after {self._lock_timeout:g} s: "
                        "end that process, or raise file_lock_timeout_seconds"
                    ) from None
                self._clock.sleep(pause)
                waited += pause
                pause = min(pause * 2, _LOCK_POLL_SECONDS[1])
            else:
                return


@contextmanager
def _translated(path: Path, what: str) -> Iterator[None]:
    """Turn the operating system's refusals into ours, each with the place and a way out."""
    try:
        yield
    except OSError as error:
        hint = {
            errno.ENOSPC: "free some space",
            errno.EDQUOT: "free some space, or raise the quota",
            errno.EACCES: "check the folder's owner and mode, or choose another --home",
            errno.EPERM: "check the folder's owner and mode, or choose another --home",
            errno.EROFS: "the file system is read-only: choose another --home",
            errno.ENOTDIR: "a file stands where a folder should be: choose another --home",
        }.get(error.errno or 0, "check the disk")
        raise StoreError(f"cannot {what} {path}: {error.strerror or error}; {hint}") from error


def _write_whole(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")


def _last_line(descriptor: int, size: int) -> tuple[bytes, int]:
    """Return the last whole line without its break, and the offset behind that break."""
    tail, start = b"", size
    while start > 0:
        step = min(_CHUNK, start)
        start -= step
        tail = os.pread(descriptor, step, start) + tail
        end = tail.rfind(b"\n")
        if end < 0:
            continue
        begin = tail.rfind(b"\n", 0, end)
        if begin >= 0 or start == 0:
            return tail[begin + 1 : end], start + end + 1
    return b"", 0


def _raise(error: OSError) -> None:
    raise error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
