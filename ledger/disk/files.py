"""File operations of the JSONL engine: atomic writes, private folders, and errors of our own tree."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType

from backstory.ledger.core.errors import InputError, StoreError

BOM = b"\xef\xbb\xbf"
"""The byte order mark that some editors write before UTF-8."""

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""What macOS needs: there `fsync` leaves the bytes in the drive's own cache, and `fdatasync` does not exist."""

_CHUNK = 1 << 16
_ATTEMPTS = 3

_HINTS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EACCES: "check the folder's owner and mode, or choose another --home",
    errno.EPERM: "check the folder's owner and mode, or choose another --home",
    errno.EROFS: "the file system is read-only: choose another --home",
    errno.ENOTDIR: "a file stands where a folder should be: choose another --home",
    errno.EEXIST: "a file stands where a folder should be: choose another --home",
}


class translated:  # noqa: N801 it is used as a function is
    """Turn the operating system's refusals into ours, each with the place and a way out; a context manager."""

    __slots__ = ("_path", "_what")

    def __init__(self, path: Path | str, what: str) -> None:
        self._path = path
        self._what = what

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise refused(self._path, self._what, error) from error


def refused(path: Path | str, what: str, error: OSError) -> StoreError:
    """Spell a refusal in our own words."""
    hint = _HINTS.get(error.errno or 0, "check the disk")
    return StoreError(f"cannot {what} {path}: {error.strerror or error}; {hint}")


def read_given(path: Path, hint: str) -> bytes:
    """Read a file that a person names, without its byte order mark.

    Raises:
        InputError: It cannot be read; the message ends with the hint.
    """
    try:
        return path.read_bytes().removeprefix(BOM)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; {hint}") from error


def write_given(path: Path, data: bytes) -> None:
    """Write a file that a person names.

    Raises:
        StoreError: It cannot be written.
    """
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}; check the folder") from error


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of the data; what the system takes only in part is offered again until it says why."""
    rest = memoryview(data)
    while rest:
        written = os.write(descriptor, rest)
        if written == 0:
            raise OSError(errno.EIO, f"only {len(data) - len(rest)} of {len(data)} bytes were written")
        rest = rest[written:]


def write_new(path: Path, pieces: Iterable[bytes], *, durable: bool = True) -> None:
    """Write a private file that was not there, and sync it if it is to be durable; after a failure it is not there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for piece in pieces:
            write_whole(descriptor, piece)
        if durable:
            sync(descriptor)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def free_name(path: Path) -> Path:
    """Return the first name that is free of a path with -1, -2 and so on behind it."""
    names = (path.with_name(f"{path.name}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def unfinished(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}.new")


def lock_beside(path: Path) -> str:
    """Where the lock of a small file lies."""
    return str(path.with_suffix(".lock"))


@contextmanager
def opened_to_read(path: Path | str, what: str) -> Iterator[int | None]:
    """Yield a descriptor of a file, closed afterwards; None where there is no such file. Errors are `translated`."""
    descriptor: int | None = None
    with translated(path, what):
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)


def put_in_place(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace a small private file, whole or not at all; only a `durable` one is synced, and its folder never."""
    fresh = unfinished(path)
    # A killed process may have left it, or it may be a link.
    fresh.unlink(missing_ok=True)
    write_new(fresh, [data], durable=durable)
    fresh.replace(path)


def last_line(descriptor: int, size: int) -> tuple[bytes, int]:
    """Return the last whole line without its break, and the offset behind that break; 0 where there is no line."""
    step = _CHUNK
    while True:
        start = max(0, size - step)
        tail = os.pread(descriptor, size - start, start)
        end = tail.rfind(b"\n")
        begin = tail.rfind(b"\n", 0, end) if end >= 0 else -1
        if begin >= 0 or start == 0:
            return tail[begin + 1 : max(end, 0)], start + end + 1
        step *= 4


def count_lines(descriptor: int, end: int) -> int:
    """Count the line breaks before an offset."""
    return sum(os.pread(descriptor, min(_CHUNK, end - start), start).count(b"\n") for start in range(0, end, _CHUNK))


def make_folder(folder: Path) -> Sequence[Path]:
    """Make a private folder and its parents; `mkdir` gives the mode to the last one only.

    Returns:
        Those that were missing, the outermost first.
    """
    if folder.is_dir():
        return ()
    made = make_folder(folder.parent) if folder.parent != folder else ()
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError as error:
        if folder.is_dir():
            return made
        if os.path.lexists(folder):
            raise
        # It was there for a moment.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder)) from error
    return (*made, folder)


def open_in_folder(path: Path, flags: int) -> tuple[int, Sequence[Path]]:
    """Open a private file, and make it and its folder where they are missing.

    Returns:
        The descriptor, and the folders that were missing.
    """
    made: Sequence[Path] = ()
    for left in reversed(range(_ATTEMPTS)):
        try:
            made = (*made, *make_folder(path.parent))
            return os.open(path, flags | os.O_CREAT, 0o600), made
        except FileNotFoundError:
            # A removal, or `take_back`, may take the folder away in between.
            if not left:
                raise
    raise AssertionError("there is at least one attempt")


def take_back(made: Sequence[Path]) -> None:
    """Remove folders that were made for a file that is gone, unless something else has come into them."""
    with suppress(OSError):
        for folder in reversed(dict.fromkeys(made)):
            folder.rmdir()


def sync_data(descriptor: int) -> None:
    """Make what was written to a file durable, with what it takes to read it again."""
    if _FULL_SYNC is None:
        os.fdatasync(descriptor)
    else:
        sync(descriptor)


def sync(descriptor: int) -> None:
    """Make a file durable, with all that is known of it."""
    if _FULL_SYNC is None:
        os.fsync(descriptor)
        return
    try:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    except OSError as error:
        # A share of another machine does not know it.
        if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
            raise
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make durable which files a folder holds; a file system that knows no such thing is taken at its word."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def sync_above(folder: Path) -> None:
    """Sync a folder above a home; one that we may not even open is none that was made for it."""
    try:
        with suppress(PermissionError):
            sync_folder(folder)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
