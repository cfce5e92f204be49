"""File locks between the threads of a process and between processes; they are released when their holder ends.

A lock on a file that is no longer at its path would protect nothing, so this is checked at each use.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.concurrency.forks import register
from backstory.ledger.disk.files import open_in_folder, take_back, translated
from backstory.ledger.disk.named_locks import Hold, NamedLocks, held_elsewhere, polled

_ATTEMPTS = 3
"""How often a lock file that goes meanwhile is made again at once, before the next try."""


class _FileHold(Hold):
    """The lock on a file among the threads of this process."""

    descriptor: int | None = None
    made: Sequence[Path] = ()
    """The folders that were made for the lock file."""


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

    def _lock(self, hold: _FileHold, timeout: float) -> None:
        def opened() -> int:
            with suppress(FileNotFoundError):
                return os.open(hold.name, os.O_RDWR)
            descriptor, folders = open_in_folder(Path(hold.name), os.O_RDWR)
            hold.made = (*hold.made, *folders)
            return descriptor

        hold.made = ()
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
            if self._tidy:
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
