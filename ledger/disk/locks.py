"""Locks by name among the threads of a process, each of which stands for a lock among processes; and file locks.

A file lock is released when its holder ends. A lock on a file that is no longer at its path would protect nothing, so
this is checked at each use.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.forks import register
from backstory.ledger.core.errors import LockTimeoutError
from backstory.ledger.disk.files import open_in_folder, take_back, translated

_T = TypeVar("_T")

_ATTEMPTS = 3
"""How often a lock file that goes meanwhile is made again at once, before the next try."""

_POLL_SECONDS = (0.0005, 0.02)


class Hold:
    """One lock among the threads of this process; the one that has it may take it again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.users = 0
        """How many threads have it or wait for it."""
        self.depth = 0


_H = TypeVar("_H", bound=Hold)


class NamedLocks(Generic[_H]):
    """Locks by name, re-entrant in a thread; the first thread that takes one takes it from other processes as well.

    Args:
        make: Makes the hold of a name.
    """

    def __init__(self, make: Callable[[str], _H]) -> None:
        self._make = make
        self._forget()

    def _forget(self) -> None:
        """Hold nothing, as in a forked child: what is held is the parent's."""
        self._guard = threading.RLock()
        self._holds: dict[str, _H] = {}

    def _lock(self, hold: _H, timeout: float) -> None:
        """Take a lock from other processes, or raise LockTimeoutError; 0 seconds are no wait at all."""
        raise NotImplementedError

    def _unlock(self, hold: _H) -> None:
        """Give a lock back to other processes."""
        raise NotImplementedError

    def _take(self, name: str, timeout: float) -> _H:
        """Take a lock, or take it again; the caller gives it back.

        Raises:
            LockTimeoutError: Another thread or process keeps it.
        """
        hold = self._acquired(name, timeout)
        try:
            if hold.depth == 0:
                self._lock(hold, timeout)
        except BaseException:
            self._release(hold)
            raise
        hold.depth += 1
        return hold

    def _give_back(self, hold: _H) -> None:
        """Give a lock back as often as it was taken."""
        try:
            hold.depth -= 1
            if hold.depth == 0:
                self._unlock(hold)
        finally:
            self._release(hold)

    @contextmanager
    def among_threads(self, name: str, timeout: float) -> Iterator[_H]:
        """Keep the other threads of this process off, and only these.

        Raises:
            LockTimeoutError: Another thread keeps it.
        """
        hold = self._acquired(name, timeout)
        try:
            yield hold
        finally:
            self._release(hold)

    def _acquired(self, name: str, timeout: float) -> _H:
        with self._guard:
            hold = self._holds.get(name)
            if hold is None:
                hold = self._holds[name] = self._make(name)
            hold.users += 1
        try:
            if hold.lock.acquire(timeout=timeout):
                return hold
        except BaseException:
            self._left(hold)
            raise
        self._left(hold)
        raise LockTimeoutError(f"{name} is still locked by another thread after {timeout:g} s: try again")

    def _release(self, hold: _H) -> None:
        hold.lock.release()
        self._left(hold)

    def _left(self, hold: _H) -> None:
        """Count one user less, and drop a lock without users."""
        with self._guard:
            hold.users -= 1
            if not hold.users and self._holds.get(hold.name) is hold:
                del self._holds[hold.name]


def held_elsewhere(name: str, timeout: float) -> LockTimeoutError:
    """Return the error for a lock that another process has kept for `timeout` seconds; 0 if it was not waited for."""
    if not timeout:
        return LockTimeoutError(f"{name} is held by another process just now: try again")
    return LockTimeoutError(
        f"{name} is held by another process after {timeout:g} s: end that process, or raise file_lock_timeout_seconds"
    )


def polled(attempt: Callable[[], _T | None], timeout: float, clock: Clock) -> _T | None:
    """Return what an attempt returns, made again while that is None, for `timeout` seconds including the attempts."""
    waited, pause, end = 0.0, _POLL_SECONDS[0], time.monotonic() + timeout
    while (found := attempt()) is None and waited < timeout and time.monotonic() < end:
        clock.sleep(pause)
        waited += pause
        pause = min(pause * 2, _POLL_SECONDS[1])
    return found


class _FileHold(Hold):
    """The lock on a file among the threads of this process."""

    descriptor: int | None = None
    made: Sequence[Path] = ()
    """The folders that were made for the lock file."""
    noted = False
    """Whether the file holds a note since it was locked."""


class FileLocks(NamedLocks[_FileHold]):
    """Exclusive locks by path, re-entrant in a thread; `timeout` is how many seconds to wait for another holder.

    With `tidy` an empty lock file goes when it is released, with the folders that were made for it, if only locks and
    leases lie beside it: what is locked just after its removal leaves nothing that shows its name.

    Paths are plain texts: of what every commit pays for, making a Path was a good part.
    """

    def __init__(self, timeout: float, clock: Clock, *, tidy: bool = False) -> None:
        self._timeout = timeout
        self._clock = clock
        self._tidy = tidy
        super().__init__(_FileHold)
        register(self)

    def renew(self) -> None:
        """Close the lock files that are held in a forked child, which would share the locks with its parent."""
        for hold in self._holds.values():
            if hold.descriptor is not None:
                os.close(hold.descriptor)
                hold.descriptor = None
        self._forget()

    @contextmanager
    def held(self, path: str, *, wait: bool = True) -> Iterator[None]:
        """Hold the lock; without `wait` it is had at once or not at all.

        Raises:
            LockTimeoutError: Another thread or process holds it.
            StoreError: The lock file cannot be made.
        """
        hold = self._take(path, self._timeout if wait else 0.0)
        try:
            yield
        finally:
            self._give_back(hold)

    def write_note(self, path: str, note: bytes) -> None:
        """Write a note at the beginning of a lock file that this thread holds; readers need no lock to read it.

        Raises:
            OSError: It cannot be written.
        """
        hold = self._holds.get(path)
        if hold is not None and hold.descriptor is not None:
            os.pwrite(hold.descriptor, note, 0)
            hold.noted = True

    def _lock(self, hold: _FileHold, timeout: float) -> None:
        def opened() -> int:
            try:
                return os.open(hold.name, os.O_RDWR)
            except FileNotFoundError:
                descriptor, folders = open_in_folder(Path(hold.name), os.O_RDWR)
                hold.made = (*hold.made, *folders)
                return descriptor

        hold.made, hold.noted = (), False
        with translated(hold.name, "lock"):
            hold.descriptor = polled(lambda: try_lock(hold.name, opened), timeout, self._clock)
        if hold.descriptor is None:
            raise held_elsewhere(hold.name, timeout)

    def _unlock(self, hold: _FileHold) -> None:
        descriptor, hold.descriptor = hold.descriptor, None
        if descriptor is None:
            # In a forked child it stays the parent's.
            return
        try:
            if self._tidy and not hold.noted:
                _take_back(hold, descriptor)
            # Said, not left to closing: a forked process may have the descriptor too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _take_back(hold: _FileHold, descriptor: int) -> None:
    """Remove a held lock file that is empty, where only locks and leases are beside it."""
    ours = os.fstat(descriptor)
    if ours.st_size:
        return
    path = Path(hold.name)
    with suppress(OSError):
        # If the folder was removed meanwhile, another process may have made a lock file of its own there.
        if not os.path.samestat(path.stat(), ours):
            return
        if all(name.endswith(".lock") or ".lease-" in name for name in os.listdir(path.parent)):  # noqa: PTH208
            path.unlink()
            take_back(hold.made)


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


def try_lock(path: str | Path, opened: Callable[[], int], how: int = fcntl.LOCK_EX) -> int | None:
    """Lock the file at a path as it is `opened`, without waiting; return its descriptor, None where it is held."""
    for _ in range(_ATTEMPTS):
        descriptor = opened()
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):  # noqa: PTH116
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        # Its last holder took it away.
        os.close(descriptor)
    return None
