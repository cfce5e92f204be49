"""Disk check of `doctor`: whether the home exists, is private, has space, and can be written, synced and locked.

It writes one probe file and removes it. A missing or read-only home is a finding, not an error.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from backstory.ledger.disk.files import sync_data
from backstory.projections.integrity.remedies import Check, some

_FREE_BYTES = 100 << 20
_MOST_FILES = 10_000


def examine_disk(home: Path) -> list[Check]:
    """Check the home folder, and its file system by a probe file, which is removed."""
    if not home.exists():
        return [_missing(home), _space(_nearest(home))]
    if not home.is_dir():
        return [Check("home", False, f"{home} is a file, not a folder; choose another --home")]
    return [Check("home", True, str(home)), _private(home), _space(home), *_probe(home)]


def examine_writing(home: Path) -> list[Check]:
    """Check that the home folder can be written, synced and locked now, by a probe file, which is removed."""
    return list(_probe(home)) if home.exists() else [_missing(home)]


def _missing(home: Path) -> Check:
    parent = _nearest(home)
    writable = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    hint = "does not exist yet; the first write creates it"
    refused = f"does not exist, and {parent} is not writable: create the folder, or choose another --home"
    return Check("home", writable, f"{home}: {hint if writable else refused}")


def _nearest(home: Path) -> Path:
    return next((folder for folder in home.parents if folder.exists()), Path("/"))


def _space(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("free space", False, f"{folder}: {error.strerror}; check the disk")
    megabytes = f"{free >> 20:,} MiB are free"
    return Check("free space", free >= _FREE_BYTES, megabytes if free >= _FREE_BYTES else f"{megabytes}: free some")


def _private(home: Path) -> Check:
    """Check that all files belong to this user, and that others have no permissions on them."""
    open_to_others, foreign, checked = [], [], 0
    for path in islice(_everything(home), _MOST_FILES):
        checked += 1
        with suppress(OSError):
            status = path.lstat()
            if status.st_mode & 0o077 and not stat.S_ISLNK(status.st_mode):
                open_to_others.append(str(path))
            if status.st_uid != os.geteuid():
                foreign.append(str(path))
    if foreign:
        return Check("private", False, f"{some(foreign)} belongs to another user; chown it, or run as that user")
    if open_to_others:
        return Check("private", False, f"{some(open_to_others)} can be read by others; run chmod -R go-rwx {home}")
    return Check("private", True, f"no other user can read it ({checked:,} files and folders checked)")


def _everything(home: Path) -> Iterator[Path]:
    yield home
    for folder, folders, files in os.walk(home):
        yield from (Path(folder, name) for name in (*folders, *files))


def _probe(home: Path) -> Iterator[Check]:
    """Write, sync and lock a file, as the log does."""
    path = home / f".doctor-{os.getpid()}-{threading.get_ident()}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        hint = f"{home} is not writable ({error.strerror}): check its owner and mode, or choose another --home"
        yield Check("writing", False, hint)
        return
    try:
        yield _tried("writing", lambda: os.write(descriptor, b"probe"), f"{home} is not writable")
        yield _tried("syncing", lambda: sync_data(descriptor), "this file system cannot sync: a crash may lose commits")
        yield _tried(
            "locking", lambda: _lock_twice(path, descriptor), "this file system has no flock: run one process only"
        )
    finally:
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()


def _tried(name: str, act: Callable[[], object], failure: str) -> Check:
    try:
        act()
    except OSError as error:
        return Check(name, False, f"{failure} ({error.strerror or error}); choose a --home on a local disk")
    return Check(name, True, "works")


def _lock_twice(path: Path, descriptor: int) -> None:
    # Some network file systems grant the same lock twice.
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    other = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        os.close(other)
    raise OSError("the same file can be locked twice")
