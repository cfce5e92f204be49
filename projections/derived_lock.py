"""Lock of the files that are derived from the logs of one memory, between threads and processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backstory.ledger.concurrency.clock import Clock, SystemClock
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.disk.files import make_folder, translated
from backstory.ledger.disk.locks import polled, try_lock
from backstory.projections.sqlite_file import UnusableError, remove

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
    if not path.parent.is_dir():
        return
    try:
        with derived_lock(path.with_name(LOCK), fcntl.LOCK_EX, timeout, SystemClock()), translated(path, "delete"):
            remove(path)
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
