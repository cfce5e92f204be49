"""File locks between the threads of a process and between processes; they are released when their holder ends.

A lock file stays open between two uses, because opening it costs more than locking it. A lock on a file that is no
longer at its path would protect nothing, so this is checked at each use.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.errors import LockTimeoutError
from backstory.ledger.disk.files import open_in_folder, take_back, translated

_T = TypeVar("_T")

_POLL_SECONDS = (0.0005, 0.02)
_KEPT_OPEN = 128
_ATTEMPTS = 3
"""How often a lock file that goes meanwhile is made again at once, before the next try."""


class _Hold:
    """One lock among the threads of this process; the one that has it may take it again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.users = 0
        """How many threads have it or wait for it."""
        self.depth = 0
        self.descriptor: int | None = None
        self.file = (0, 0)
        """Which file the descriptor is of: device and inode."""
        self.made: Sequence[Path] | None = None
        """The folders that were made for the lock file, until it is released for the first time since it was opened."""


class FileLocks:
    """Exclusive locks by path, re-entrant in a thread; `timeout` is how many seconds to wait for another holder.

    With `tidy` a lock file goes when it is released the first time, with the folders that were made for it, if only
    locks and leases lie beside it: what is locked just after its removal leaves nothing that shows its name.

    Paths are plain texts: of what every commit pays for, making a Path was a good part.
    """

    def __init__(self, timeout: float, clock: Clock, *, tidy: bool = False) -> None:
        self._timeout = timeout
        self._clock = clock
        self._tidy = tidy
        self._guard = threading.RLock()
        self._holds: dict[str, _Hold] = {}
        self._open = 0
        register(self)

    def renew(self) -> None:
        """Close the lock files in a forked child, which would share the locks with its parent."""
        self._guard = threading.RLock()
        for hold in self._holds.values():
            self._close(hold)
        self._holds = {}

    def held(self, path: str, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold the lock; without `wait` it is had at once or not at all.

        Raises:
            LockTimeoutError: Another thread or process holds it.
            StoreError: The lock file cannot be made.
        """
        return _Held(self, path, self._timeout if wait else 0.0)

    @contextmanager
    def among_threads(self, path: str) -> Iterator[None]:
        """Keep the other threads of this process off, and only these: the file is neither made nor locked.

        Raises:
            LockTimeoutError: Another thread holds it.
        """
        hold = self._acquired(path, self._timeout)
        try:
            yield
        finally:
            hold.lock.release()
            self._left(hold)

    def take(self, path: str, timeout: float) -> _Hold:
        """Take the lock, or take it again; see `held`."""
        hold = self._acquired(path, timeout)
        try:
            if hold.depth == 0:
                self._lock(path, hold, timeout)
        except BaseException:
            hold.lock.release()
            self._left(hold)
            raise
        hold.depth += 1
        return hold

    def give_back(self, hold: _Hold) -> None:
        """Release the lock as often as it was taken."""
        try:
            hold.depth -= 1
            if hold.depth == 0:
                self._unlock(hold)
        finally:
            hold.lock.release()
            self._left(hold)

    def write_note(self, path: str, note: bytes) -> None:
        """Write a note at the beginning of a lock file that this thread holds; readers need no lock to read it.

        Raises:
            OSError: It cannot be written.
        """
        hold = self._holds.get(path)
        if hold is not None and hold.descriptor is not None:
            os.pwrite(hold.descriptor, note, 0)

    def close(self) -> None:
        """Close the lock files that are not held; they are opened again on demand."""
        with self._guard:
            holds = list(self._holds.values())
            for hold in holds:
                hold.users += 1
        for hold in holds:
            if hold.lock.acquire(blocking=False):
                try:
                    if hold.depth == 0:
                        self._close(hold)
                finally:
                    hold.lock.release()
            self._left(hold)

    def __del__(self) -> None:
        for hold in self._holds.values():
            self._close(hold)

    def _acquired(self, path: str, timeout: float) -> _Hold:
        with self._guard:
            hold = self._holds.get(path)
            if hold is None:
                hold = self._holds[path] = _Hold(path)
            hold.users += 1
        try:
            if hold.lock.acquire(timeout=timeout):
                return hold
        except BaseException:
            self._left(hold)
            raise
        self._left(hold)
        raise LockTimeoutError(f"{path} is still locked by another thread after {timeout:g} s: try again")

    def _left(self, hold: _Hold) -> None:
        """Count one user less, and drop a path without users whose file is not open."""
        with self._guard:
            hold.users -= 1
            if not hold.users and hold.descriptor is None and self._holds.get(hold.path) is hold:
                del self._holds[hold.path]

    def _lock(self, path: str, hold: _Hold, timeout: float) -> None:
        with translated(path, "lock"):
            if polled(lambda: self._try(path, hold), timeout, self._clock):
                return
        if not timeout:
            raise LockTimeoutError(f"{path} is held by another process just now: try again")
        raise LockTimeoutError(
            f"{path} is held by another process after {timeout:g} s: "
            "end that process, or raise file_lock_timeout_seconds"
        )

    def _try(self, path: str, hold: _Hold) -> bool | None:
        for _ in range(_ATTEMPTS):
            if hold.descriptor is None:
                hold.descriptor, hold.made = open_in_folder(Path(path), os.O_RDWR)
                self._open += 1
                opened = os.fstat(hold.descriptor)
                hold.file = (opened.st_dev, opened.st_ino)
            try:
                fcntl.flock(hold.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                now = os.stat(path)  # noqa: PTH116
                if (now.st_dev, now.st_ino) == hold.file:
                    return True
            except BlockingIOError:
                return None
            except FileNotFoundError:
                pass
            except BaseException:
                self._close(hold)
                raise
            # Its last holder took it away.
            self._close(hold)
        return None

    def _unlock(self, hold: _Hold) -> None:
        if hold.descriptor is None:
            # In a forked child it stays the parent's.
            return
        made, hold.made = hold.made, None
        taken_back = self._tidy and made is not None and _took_back(hold, made)
        if taken_back or self._open > _KEPT_OPEN:
            self._close(hold)
        else:
            fcntl.flock(hold.descriptor, fcntl.LOCK_UN)

    def _close(self, hold: _Hold) -> None:
        if hold.descriptor is not None:
            os.close(hold.descriptor)
            hold.descriptor = None
            self._open -= 1


class _Held:
    """A lock for the length of a block; plain, since every commit takes one."""

    __slots__ = ("_hold", "_locks", "_path", "_timeout")

    def __init__(self, locks: FileLocks, path: str, timeout: float) -> None:
        self._locks = locks
        self._path = path
        self._timeout = timeout

    def __enter__(self) -> None:
        self._hold = self._locks.take(self._path, self._timeout)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._locks.give_back(self._hold)


def _took_back(hold: _Hold, made: Sequence[Path]) -> bool:
    """Remove a held lock file where only locks and leases are beside it."""
    path = Path(hold.path)
    with suppress(OSError):
        now = path.stat()
        if (now.st_dev, now.st_ino) != hold.file:
            # The folder was removed meanwhile, and another process has made a lock file of its own there.
            return False
        if all(name.endswith(".lock") or ".lease-" in name for name in os.listdir(path.parent)):  # noqa: PTH208
            path.unlink()
            take_back(made)
            return True
    return False


def polled(attempt: Callable[[], _T | None], timeout: float, clock: Clock) -> _T | None:
    """Return what an attempt returns, made again and again for `timeout` seconds as long as that is None."""
    waited, pause = 0.0, _POLL_SECONDS[0]
    while (found := attempt()) is None and waited < timeout:
        clock.sleep(pause)
        waited += pause
        pause = min(pause * 2, _POLL_SECONDS[1])
    return found


@contextmanager
def kept_free(path: str) -> Iterator[bool]:
    """Yield whether a lock is free, and keep it free for the length of the block; it never waits.

    A lock file that is missing, or that this process may not open, counts as free.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            # Said, not left to closing: a forked process may have the descriptor too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


class Lease:
    """A lease that is held. Its file is removed when it ends, and harmless if left. Any thread may end it."""

    def __init__(self, path: Path, descriptor: int, made: Sequence[Path]) -> None:
        self._path = path
        self._made = made
        self._descriptors = [descriptor]
        self._process = os.getpid()

    def end(self) -> None:
        """Give it back; a second time does nothing, and in a forked child it stays the parent's."""
        # One thread only gets it out of a list; a lock would be one more thing that a fork may find taken.
        with suppress(IndexError):
            descriptor = self._descriptors.pop()
            if self._process == os.getpid():
                with suppress(FileNotFoundError):
                    # Where the folder was removed meanwhile, another process may have its own lease there.
                    if os.path.samestat(self._path.stat(), os.fstat(descriptor)):
                        self._path.unlink()
                take_back(self._made)
            os.close(descriptor)


def lease(path: Path) -> Lease | None:
    """Try to take a lease, once, without waiting; None if it is held.

    Raises:
        StoreError: Its file cannot be made.
    """
    made: list[Path] = []

    def opened() -> int:
        descriptor, folders = open_in_folder(path, os.O_RDWR)
        made.extend(folders)
        return descriptor

    with translated(path, "lock"):
        descriptor = try_lock(path, opened)
    return None if descriptor is None else Lease(path, descriptor, made)


@contextmanager
def leased(path: Path) -> Iterator[bool]:
    """Try to hold a lease for the length of a block; see `lease`."""
    held = lease(path)
    try:
        yield held is not None
    finally:
        if held is not None:
            held.end()


def try_lock(path: Path, opened: Callable[[], int], how: int = fcntl.LOCK_EX) -> int | None:
    """Lock the file at a path as it is `opened`, without waiting; return its descriptor, None where it is held."""
    while True:
        descriptor = opened()
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
