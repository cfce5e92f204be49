"""Vector file: `vectors.sqlite` beside memory.json, each row under a checksum, with its lock file `vectors.lock`.

The lock file is also where an erasure leaves its mark, the *epoch*: a text that stays the same until something is
erased. Vectors are only written under the lock, and only if the epoch is still that from before their texts were read:
so what is erased while it is being embedded is not written any more. A file of another epoch is not looked at. An
erasure marks a new epoch first, and then puts a new file in the place of the old one, or none: of what is erased not a
byte is left in it.

Connections are opened for one use each: no process inherits one, and none is left on a file that is gone.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.concurrency.clock import SystemClock
from backstory.ledger.core.errors import LockTimeoutError, StoreError
from backstory.ledger.disk.files import sync, sync_folder, translated, write_whole
from backstory.ledger.disk.locks import FileLocks, Lease, lease
from backstory.projections.derived_files import DamagedError, UnusableError, classified, connect, remove, replacing

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)

_VERSION = 1
_BUSY_SECONDS = 5.0
_LOCK_SECONDS = 10.0
_EPOCH_BYTES = 64
_PORTION = 4096
"""Rows that are read at once: beside the vectors themselves a reader holds no more than these."""

_TABLES = (
    "CREATE TABLE made(version INTEGER, model TEXT, dimensions INTEGER, epoch TEXT, dropped INTEGER)",
    # Numbers are never used again: what was added since a number is what has a higher one.
    """CREATE TABLE vector(
        id INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT, key BLOB, digest BLOB, data BLOB, sum INTEGER
    )""",
)

_Stored = tuple[int, str, bytes, bytes, bytes, int]

Stamp = tuple[int, int, int]
"""Inode, size and time of change: one state of the file."""


class VectorRow(msgspec.Struct, frozen=True):
    """The vector of a text, as half-precision floats; `digest` is the text's."""

    space: str
    key: str
    digest: bytes
    data: bytes


class Made(msgspec.Struct, frozen=True):
    """Who made a file, how many numbers a vector has, in which epoch, and how often something was dropped from it.

    `stored` stands for the logs as they were stored when the texts were read; 0 where that is not known of all.
    """

    model: str
    dimensions: int
    epoch: str
    dropped: int = 0
    stored: int = 0


class KeptRows(msgspec.Struct, frozen=True):
    """What a file holds behind a number: rows by their numbers, when it was looked at.

    Where it holds more rows than these, the stamp is that of no state of the file, but for the inode.
    """

    made: Made
    rows: dict[int, VectorRow]
    stamp: Stamp


class VectorFile:
    """The file of one scope; safe for processes, and for threads as far as they hold the lock.

    `model` is the embedder's name. What another one has made is not read, as if there were no file, and stands until
    there is something of this one's to write.
    """

    def __init__(self, path: Path, model: str, *, lock_timeout: float = _LOCK_SECONDS) -> None:
        self.path = path
        self.model = model
        self._lock_path = path.with_suffix(".lock")
        self._locks = FileLocks(lock_timeout, SystemClock())
        self._foreign: tuple[str, Stamp] | None = None
        """Whose file was met last, and in which state."""
        self._leases: list[Lease] = []
        self._closed = False

    # The epoch.

    def epoch(self) -> str:
        """Return the mark of the last erasure; empty before the first."""
        try:
            with self._lock_path.open("rb") as file:
                return file.read(_EPOCH_BYTES).decode("ascii", "replace")
        except OSError:
            return ""

    def open_to_erasures(self) -> bool:
        """See that an erasure finds where to leave its mark; False where nothing can be written."""
        if not self.path.parent.is_dir():
            return False
        try:
            with self.locked():
                return True
        except (StoreError, LockTimeoutError):
            return self._lock_path.exists() and os.access(self._lock_path, os.W_OK)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, which every writer does.

        Raises:
            LockTimeoutError: Another process keeps it.
            StoreError: The lock file cannot be made, or this is closed.
        """
        self._must_be_open()
        with self._locks.held(str(self._lock_path)):
            self._must_be_open()
            yield

    def close(self) -> None:
        """Let nothing be written any more, and let go of the lease in all threads; a write under way ends first."""
        self._closed = True
        for held in list(self._leases):
            held.end()

    def is_closed(self) -> bool:
        """Whether nothing is written any more."""
        return self._closed

    def _must_be_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path} is not written any more, for its home was closed: open it again")

    # Reading.

    def stamp(self) -> Stamp | None:
        """Say which state the file is in; None where there is none, or only another model's."""
        try:
            stat = self.path.stat()
        except OSError:
            return None
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return None if self._foreign is not None and stamp == self._foreign[1] else stamp

    def read(self, behind: int = 0) -> KeptRows | None:
        """Return the first rows that the file holds behind a number; None: there is no file, or only another model's.

        Where it is damaged or old it is taken away.

        Raises:
            UnusableError: It cannot be read here.
        """
        stamp = self.stamp()
        if stamp is None:
            return None
        try:
            with classified():
                return self._read(behind, stamp)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            self._begin_anew(str(error), stamp)
            return None

    def stored(self) -> int | None:
        """Return `Made.stored` of the file, also of another model's; None where there is none that can be read."""
        if not self.path.exists():
            return None
        try:
            with classified(), closing(connect(self.path, busy_seconds=_BUSY_SECONDS)) as db:
                return _made(db).stored
        except (FileNotFoundError, DamagedError, UnusableError):
            return None

    def _read(self, behind: int, stamp: Stamp) -> KeptRows | None:
        with closing(connect(self.path, busy_seconds=_BUSY_SECONDS)) as db:
            db.execute("BEGIN")
            made = _made(db)
            if made.epoch != self.epoch():
                raise DamagedError("it is from before an erasure")
            if made.model != self.model:
                self._leave(made.model, stamp)
                return None
            found = db.execute(
                "SELECT id, space, key, digest, data, sum FROM vector WHERE id > ? ORDER BY id LIMIT ?",
                (behind, _PORTION),
            )
            rows = _rows(found.fetchall(), 2 * made.dimensions)
            return KeptRows(made, rows, stamp if len(rows) < _PORTION else (stamp[0], 0, 0))

    def _leave(self, maker: str, stamp: Stamp) -> None:
        """Leave another model's file alone: its server may be the one that answers, or the name a slip of the pen."""
        if self._foreign is None or self._foreign[0] != maker:
            _log.warning(
                "%s was made by %s, not by %s: search goes by words until %s reads everything and it is begun anew; "
                "run `backstory embed`, or set embedding_model as it was",
                self.path,
                maker,
                self.model,
                self.model,
            )
        self._foreign = (maker, stamp)

    def _begin_anew(self, reason: str, stamp: Stamp) -> None:
        try:
            with self.locked():
                # Another process may have been faster.
                if self.stamp() == stamp:
                    _log.warning("%s is begun anew: %s", self.path, reason)
                    remove(self.path)
        except (StoreError, LockTimeoutError) as error:
            raise UnusableError(f"{reason}, and it cannot be taken away: {error}") from error

    # Writing; the caller holds the lock.

    def write(self, made: Made, put: Sequence[VectorRow], drop: Iterable[int] = ()) -> dict[int, VectorRow]:
        """Add rows to the file, and take away what has these numbers; return what was added by its new numbers.

        Where there is no file, or only another model's, it is begun. The caller holds the lock, and has seen that
        `made` is what the file says.

        Raises:
            UnusableError: It cannot be written.
        """
        try:
            with classified(), translated(self.path, "write"):
                if self.stamp() is None:
                    self._replace(made, ())
                    self._foreign = None
                return self._write(made, put, list(drop))
        except (StoreError, DamagedError, FileNotFoundError) as error:
            raise UnusableError(str(error)) from error

    def _write(self, made: Made, put: Sequence[VectorRow], drop: Sequence[int]) -> dict[int, VectorRow]:
        with closing(connect(self.path, busy_seconds=_BUSY_SECONDS)) as db:
            db.execute("BEGIN IMMEDIATE")
            if drop:
                db.executemany("DELETE FROM vector WHERE id = ?", ((number,) for number in drop))
                db.execute("UPDATE made SET dropped = ?", (made.dropped + 1,))
            db.execute(f"PRAGMA user_version = {made.stored}")
            numbers = [_insert(db, row) for row in put]
            db.execute("COMMIT")
        return dict(zip(numbers, put, strict=True))

    def _make(self, path: Path, made: Made, rows: Iterable[VectorRow]) -> None:
        """Fill an empty file."""
        with closing(connect(path, busy_seconds=_BUSY_SECONDS)) as db:
            db.execute("BEGIN")
            for statement in _TABLES:
                db.execute(statement)
            db.execute(
                "INSERT INTO made VALUES(?, ?, ?, ?, ?)",
                (_VERSION, made.model, made.dimensions, made.epoch, made.dropped),
            )
            db.execute(f"PRAGMA user_version = {made.stored}")
            for row in rows:
                _insert(db, row)
            db.execute("COMMIT")

    # Erasing.

    def erase(self, dimensions: int = 0, rows: Sequence[VectorRow] = (), stored: int = 0) -> str:
        """Begin a new epoch with nothing but these rows; return it.

        Where nothing was ever kept, and no writer has the lock file, there is nothing to do.

        Raises:
            StoreError: Something cannot be taken away.
            LockTimeoutError: Another process keeps it.
        """
        if not self._lock_path.exists() and not any(self.path.parent.glob(f"{self.path.name}*")):
            return self.epoch()
        with self.locked(), translated(self.path, "erase"):
            epoch = self._mark()
            if rows:
                try:
                    self._replace(Made(self.model, dimensions, epoch, stored=stored), rows)
                except (DamagedError, UnusableError) as error:
                    _log.warning("%s is begun anew: what stands could not be kept: %s", self.path, error)
                    remove(self.path)
            else:
                remove(self.path)
            sync_folder(self.path.parent)
        return epoch

    def _mark(self) -> str:
        """Leave the mark of an erasure, durably: an embedding that has begun must not write any more."""
        epoch = os.urandom(16).hex()
        descriptor = os.open(self._lock_path, os.O_WRONLY)
        try:
            # All of it in one write, of the same length as before: no reader sees half of it.
            write_whole(descriptor, epoch.encode())
            sync(descriptor)
        finally:
            os.close(descriptor)
        return epoch

    def _replace(self, made: Made, rows: Sequence[VectorRow]) -> None:
        with replacing(self.path) as fresh, classified():
            self._make(fresh, made, rows)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Yield whether no other thread or process is embedding this scope, and keep it so; without waiting."""
        held, first = None, True
        if self.path.parent.is_dir() and not self._closed:
            # Where that is unknown, work may be done twice, and nothing is lost.
            with suppress(StoreError):
                held = lease(self.path.with_suffix(".busy"))
                first = held is not None
        if held is not None:
            self._leases.append(held)
        try:
            if held is not None and self._closed:
                held.end()
            yield first
        finally:
            if held is not None:
                held.end()
                self._leases.remove(held)


def _insert(db: sqlite3.Connection, row: VectorRow) -> int:
    key = row.key.encode(errors="surrogatepass")
    values = (row.space, key, row.digest, row.data, _sum(row.space, key, row.digest, row.data))
    number = db.execute("INSERT INTO vector(space, key, digest, data, sum) VALUES(?, ?, ?, ?, ?)", values).lastrowid
    if number is None:
        raise DamagedError("a row was added and has no number")
    return number


def _sum(space: str, key: bytes, digest: bytes, data: bytes) -> int:
    return zlib.crc32(b"".join((space.encode(), key, digest, data)))


def _rows(found: list[object], size: int) -> dict[int, VectorRow]:
    rows: dict[int, VectorRow] = {}
    try:
        # All at once: a match of each takes as long as everything else.
        for number, space, key, digest, data, checksum in msgspec.convert(found, list[_Stored], builtin_types=(bytes,)):
            if checksum == _sum(space, key, digest, data) and len(data) == size:
                rows[number] = VectorRow(space, key.decode(errors="surrogatepass"), digest, data)
    except msgspec.ValidationError:
        rows.clear()
    if len(rows) < len(found):
        raise DamagedError("a checksum does not match")
    return rows


def _made(db: sqlite3.Connection) -> Made:
    stored = db.execute("PRAGMA user_version").fetchone()
    found = db.execute("SELECT version, model, dimensions, epoch, dropped FROM made").fetchall()
    match [*found, stored]:
        case [(int(version), str(model), int(dimensions), str(epoch), int(dropped)), (int(stored),)]:
            if version == _VERSION:
                return Made(model, dimensions, epoch, dropped, stored)
            raise DamagedError(f"it is of version {version}, not {_VERSION}")
    raise DamagedError("it does not say who made it")
