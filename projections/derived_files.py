"""Files that are derived from the logs of one memory: their lock, and how SQLite's are opened, replaced and removed.

The index and the vectors each keep an SQLite file. Both put checksums over what they store, since SQLite does not check
what it reads. The lock holds between threads and processes.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.disk.files import make_folder, translated
from backstory.ledger.disk.locks import polled, try_lock

if TYPE_CHECKING:
    import sqlite3


class DamagedError(Exception):
    """The file does not hold what was written, or another program wrote it; the message says how."""


class UnusableError(Exception):
    """The file cannot be used here, whatever it holds; the message says why."""


def connect(path: Path | None, *, busy_seconds: float) -> sqlite3.Connection:
    """Open a file that exists, read-only where it cannot be written; None opens a private temporary one.

    Raises:
        sqlite3.Error: It cannot be opened, or is not a database.
    """
    import sqlite3

    mode = "ro" if path is not None and not os.access(path, os.W_OK) else "rw"
    name = "" if path is None else f"file:{quote(str(path))}?mode={mode}"
    db = sqlite3.connect(
        name, uri=path is not None, isolation_level=None, check_same_thread=False, timeout=busy_seconds
    )
    db.execute("PRAGMA synchronous = NORMAL")
    # Freed pages are wiped: erased content must not stay in them.
    db.execute("PRAGMA secure_delete = ON")
    return db


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield an empty file, readable by its owner only, that takes the place of `path` when the block succeeds.

    Raises:
        OSError: It cannot be made, or cannot take the place.
    """
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        yield fresh
        remove(path, but=fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def remove(path: Path, but: Path | None = None) -> None:
    """Remove the file, and what SQLite or a killed process left beside it."""
    for left in path.parent.glob(f"{path.name}*"):
        if left != but:
            left.unlink(missing_ok=True)


_FORK_SECONDS = 1.0


class _SqliteUse:
    """Threads that use SQLite; a fork waits for them: what one has locked within SQLite stays locked in a child."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child, where none of the parent's threads is."""
        self._changed = threading.Condition()
        self._count = self._depth
        """How many blocks threads are in."""
        self._forking: int | None = None
        """The thread that forks."""

    def pause(self) -> bool:
        """Keep other threads out of SQLite; return False, and do not, if they stay in it for too long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._forking is None, _FORK_SECONDS):
                return False
            # First, or those that come all the time would never leave a gap.
            self._forking = threading.get_ident()
            paused = self._changed.wait_for(lambda: self._count == self._depth, _FORK_SECONDS)
        if not paused:
            self.resume()
        return paused

    def resume(self) -> None:
        """Let them go on after `pause`."""
        with self._changed:
            self._forking = None
            self._changed.notify_all()

    @property
    def _depth(self) -> int:
        """How many blocks this thread is in: then it may enter another one, for a fork waits until it leaves all."""
        depth: int = getattr(self._mine, "depth", 0)
        return depth

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._depth or self._forking in (None, threading.get_ident()))
            self._count += 1
        self._mine.depth = self._depth + 1

    def __exit__(self, *_: object) -> None:
        self._mine.depth = self._depth - 1
        with self._changed:
            self._count -= 1
            self._changed.notify_all()


SQLITE = _SqliteUse()
"""Of this process; every home pauses it for a fork."""


@contextmanager
def classified(*, io_is_damage: bool = False) -> Iterator[None]:
    """Turn SQLite's errors into `UnusableError`, where the file's place is at fault, or else `DamagedError`.

    `io_is_damage` says whether a failed read or write counts as damage, because the file is quickly rebuilt.
    """
    import sqlite3

    unusable = {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
    if not io_is_damage:
        unusable.add(sqlite3.SQLITE_IOERR)
    try:
        with SQLITE:
            yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise (UnusableError if code in unusable else DamagedError)(str(error)) from error
    except UnicodeDecodeError as error:
        # What SQLite says about a damaged schema may quote it.
        raise DamagedError("it holds a text that is not UTF-8") from error


LOCK = "index.lock"
"""What the file is called, beside memory.json."""


class KeptError(Exception):
    """Another process keeps the lock."""


@contextmanager
def derived_lock(path: Path, how: int, timeout: float, clock: Clock) -> Iterator[None]:
    """Hold the lock file, shared or exclusive as for `flock`, after `timeout` seconds at most.

    Raises:
        KeptError: Another process keeps it.
        UnusableError: It cannot be made.
    """
    descriptor = polled(lambda: try_lock(path, lambda: _opened(path, how), how), timeout, clock)
    if descriptor is None:
        raise KeptError
    try:
        yield
    finally:
        # Said, not left to closing: a forked process may have the descriptor too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def delete_derived(path: Path, timeout: float = 120.0) -> None:
    """Delete a derived file and what is beside it, under the lock; no process writes it any more when this returns.

    Raises:
        StoreError: It cannot be deleted.
        LockTimeoutError: Another process keeps the lock.
    """
    if path.parent.is_dir():
        with deleting(path, timeout, SystemClock()):
            remove(path)


@contextmanager
def deleting(path: Path, timeout: float, clock: Clock) -> Iterator[None]:
    """Hold the lock of a derived file while it is deleted; raises as `delete_derived`."""
    try:
        with derived_lock(path.with_name(LOCK), fcntl.LOCK_EX, timeout, clock), translated(path, "delete"):
            yield
    except KeptError as error:
        raise LockTimeoutError(
            f"{path.with_name(LOCK)} is held by another process after {timeout:g} s: wait for it, or end it"
        ) from error
    except UnusableError as error:
        raise StoreError(f"cannot delete {path}: {error}; check the folder's mode") from error


def _opened(path: Path, how: int) -> int:
    """Open the lock file; one that cannot be written is enough to read under."""
    try:
        make_folder(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as refused:
        with suppress(OSError):
            if how == fcntl.LOCK_SH:
                return os.open(path, os.O_RDONLY)
        raise UnusableError(refused.strerror or str(refused)) from refused
