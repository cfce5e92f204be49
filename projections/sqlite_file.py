"""SQLite files that can be rebuilt: how they are opened, replaced and removed, and what their errors mean.

The index and the vectors each keep one. Both put checksums over what they store, since SQLite does not check what it
reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import sqlite3


class DamagedError(Exception):
    """The file does not hold what was written, or another program wrote it; the message says how."""


class UnusableError(Exception):
    """The file cannot be used here, whatever it holds; the message says why."""


def connect(path: Path | None, *, busy_seconds: float) -> sqlite3.Connection:
    """Open a file that exists, read-only where it cannot be written; None opens a private temporary one.

    Raises:
        sqlite3.Error: it cannot be opened, or is not a database.
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
        OSError: it cannot be made, or cannot take the place.
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
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise (UnusableError if code in unusable else DamagedError)(str(error)) from error
    except UnicodeDecodeError as error:
        # What SQLite says about a damaged schema may quote it.
        raise DamagedError("it holds a text that is not UTF-8") from error
