"""File locks between the threads of a process and between processes; they are released when their holder ends.

A lock file stays open between two uses, because opening it costs more than locking it. A lock on a file that is no
longer at its path would protect nothing, so this is checked at each use.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.forks import register
from backstory.ledger.disk.files import open_in_folder, take_back, translated
from backstory.ledger.disk.named_locks import Hold, NamedLocks, held_elsewhere, polled

_KEPT_OPEN = 128
_ATTEMPTS = 3
"""How often a lock file that goes meanwhile is made again at once, before the next try."""


class _FileHold(Hold):
    """The lock on a file among the threads of this process; the file may stay open between two uses."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.descriptor: int | None = None
        self.file = (0, 0)
        """Which file the descriptor is of: device and inode."""
        self.made: Sequence[Path] | None = None
        """The folders that were made for the lock file, until it is released for the first time since it was opened."""

    def is_spare(self) -> bool:
        """See `Hold.is_spare`."""
        return self.descriptor is None


class FileLocks(NamedLocks[_FileHold]):
    """Exclusive locks by path, re-entrant in a thread; `timeout` is how many seconds to wait for another holder.

    With `tidy` a lock file goes when it is released the first time, with the folders that were made for it, if only
    locks and leases lie beside it: what is locked just after its removal leaves nothing that shows its name.

    Paths are plain texts: of what every commit pays for, making a Path was a good part.
    """

    def __init__(self, timeout: float, clock: Clock, *, tidy: bool = False) -> None:
        self._timeout = timeout
        self._clock = clock
        self._tidy = tidy
        self._open = 0
        super().__init__(_FileHold)
        register(self)

    def renew(self) -> None:
        """Close the lock files in a forked child, which would share the locks with its parent."""
        for hold in self._holds.values():
            self._close(hold)
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

    def among_threads(self, path: str) -> AbstractContextManager[object]:
        """Keep the other threads of this process off, and only these: the file is neither made nor locked.

        Raises:
            LockTimeoutError: Another thread holds it.
        """
        return self._among_threads(path, self._timeout)

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

    def _lock(self, hold: _FileHold, timeout: float) -> None:
        with translated(hold.name, "lock"):
            if not polled(lambda: self._try(hold), timeout, self._clock):
                raise held_elsewhere(hold.name, timeout)

    def _try(self, hold: _FileHold) -> bool | None:
        path = hold.name
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

    def _unlock(self, hold: _FileHold) -> None:
        if hold.descriptor is None:
            # In a forked child it stays the parent's.
            return
        made, hold.made = hold.made, None
        taken_back = self._tidy and made is not None and _took_back(hold, made)
        if taken_back or self._open > _KEPT_OPEN:
            self._close(hold)
        else:
            fcntl.flock(hold.descriptor, fcntl.LOCK_UN)

    def _close(self, hold: _FileHold) -> None:
        if hold.descriptor is not None:
            os.close(hold.descriptor)
            hold.descriptor = None
            self._open -= 1


def _took_back(hold: _FileHold, made: Sequence[Path]) -> bool:
    """Remove a held lock file where only locks and leases are beside it."""
    path = Path(hold.name)
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
