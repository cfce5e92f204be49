"""Looks at the folder that memories are kept in: is it there, private and roomy, does its disk do what a log needs?

It writes nothing but one probe, which it removes again, and stops at nothing: a home that is read-only or not there is
what it is for.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from backstory.projections.integrity.remedies import Check, some

__all__ = ["examine_disk"]

_FREE_BYTES = 100 << 20
_LOOKED_AT = 10_000


def examine_disk(home: Path) -> list[Check]:
    """Look at the home folder and at what its file system can do, by one probe that is removed again."""
    if not home.exists():
        above = next((folder for folder in home.parents if folder.exists()), Path("/"))
        may = above.is_dir() and os.access(above, os.W_OK | os.X_OK)
        hint = "nothing is there yet; the first write makes it"
        refused = f"nothing is there, and {above} cannot be written to: make the folder, or choose another --home"
        return [Check("home", may, f"{home}: {hint if may else refused}"), _space(above)]
    if not home.is_dir():
        return [Check("home", False, f"{home}: a file stands where a folder should be; choose another --home")]
    return [Check("home", True, str(home)), _private(home), _space(home), *_probe(home)]


def _space(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("free space", False, f"{folder}: {error.strerror}; check the disk")
    megabytes = f"{free >> 20:,} MiB are free"
    return Check("free space", free >= _FREE_BYTES, megabytes if free >= _FREE_BYTES else f"{megabytes}: free some")


def _private(home: Path) -> Check:
    """Memories are nobody else's: folders 0700, files 0600, all of them ours."""
    open_to_others, foreign, looked = [], [], 0
    for path in islice(_everything(home), _LOOKED_AT):
        looked += 1
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
    return Check("private", True, f"nobody else can read what is there ({looked:,} files and folders looked at)")


def _everything(home: Path) -> Iterator[Path]:
    yield home
    for folder, folders, files in os.walk(home):
        yield from (Path(folder, name) for name in (*folders, *files))


def _probe(home: Path) -> Iterator[Check]:
    """Write, sync and lock a file, as the log does."""
    path = home / f".doctor-{os.getpid()}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        hint = f"{home} cannot be written to ({error.strerror}): check its owner and mode, or choose another --home"
        yield Check("writing", False, hint)
        return
    try:
        yield _tried("writing", lambda: os.write(descriptor, b"probe"), f"{home} cannot be written to")
        yield _tried(
            "syncing", lambda: os.fdatasync(descriptor), "this file system cannot sync: a crash may lose commits"
        )
        yield _tried(
            "locking", lambda: _lock_twice(path, descriptor), "this file system has no flock: never write twice"
        )
    finally:
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()


def _tried(name: str, act: Callable[[], object], otherwise: str) -> Check:
    try:
        act()
    except OSError as error:
        return Check(name, False, f"{otherwise} ({error.strerror or error}); choose a --home on a local disk")
    return Check(name, True, "works")


def _lock_twice(path: Path, descriptor: int) -> None:
    """A lock that two can have is none, and some network file systems give those out."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    other = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        os.close(other)
    raise OSError("two could lock the same file")
