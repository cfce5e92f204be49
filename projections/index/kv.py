"""Ordered key-value tables in one SQLite file, under checksums, so that damage is always noticed.

SQLite does not check what it reads: after a flipped bit it may find another row, or none. So nothing is kept by the
row. A *leaf* holds all keys of one stretch, from `lo` to below `hi`, under a checksum, and the leaves of a space follow
each other without a gap, from the empty key to the end. Wherever a lookup lands, the leaf itself proves that it is the
one in which the key would be; so what is not there is known not to be there.

Keys are bytes in the order in which they are asked for. A name is followed by an end that sorts before all that could
go on with it, so that whole names and their beginnings can both be found; numbers are eight bytes, the highest first.
"""

from __future__ import annotations

import os
import weakref
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.projections.derived_files import DamagedError, connect

if TYPE_CHECKING:
    import sqlite3

Changes = Mapping[int, Mapping[bytes, bytes | None]]
"""By space: what each key is to hold; None takes it away."""

_LEAF_BYTES = 8 * 1024
_ENTRY_BYTES = 4
"""What an entry takes beside its key and value, about."""

_CACHE_KIB = 4096
_BUSY_SECONDS = 1.0
_FASTEST = 1

_TABLES = (
    "CREATE TABLE leaf(space INTEGER NOT NULL, lo BLOB NOT NULL, hi BLOB, sum INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE UNIQUE INDEX leaf_by_lo ON leaf(space, lo)",
)
_COLUMNS = "SELECT rowid, space, lo, hi, sum, data FROM leaf"
_AT = f"{_COLUMNS} WHERE space = ? AND lo <= ? ORDER BY lo DESC LIMIT 1"
_BEFORE = f"{_COLUMNS} WHERE space = ? AND lo < ? ORDER BY lo DESC LIMIT 1"


LAST = b"\xff" * 24
"""Behind every number that can follow a name."""

_encoder = msgspec.msgpack.Encoder()


class _Leaf(msgspec.Struct):
    """All keys of one stretch, in order, and what they hold; `hi` is None in the last leaf of a space."""

    row: int
    space: int
    lo: bytes
    hi: bytes | None
    keys: list[bytes]
    values: list[bytes]


class LeafCursor:
    """Reads a space for one question; the leaf that it read last is not read again."""

    def __init__(self, read: Callable[[bytes], _Leaf]) -> None:
        self._read = read
        self._leaf: _Leaf | None = None

    def ascending(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and what they hold, from a key on."""
        at: bytes | None = start
        while at is not None:
            leaf = self._leaf
            if leaf is None or at < leaf.lo or (leaf.hi is not None and at >= leaf.hi):
                leaf = self._leaf = self._read(at)
            first = bisect_left(leaf.keys, start)
            yield from zip(leaf.keys[first:], leaf.values[first:], strict=True)
            at = leaf.hi

    def between(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and what they hold, from a key to below another."""
        for key, value in self.ascending(start):
            if key >= stop:
                return
            yield key, value


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes]])


class ChecksummedKV:
    """An SQLite connection to leaves; `path` None is a private temporary file.

    One thread at a time; the owner sees to locking.
    """

    def __init__(self, path: Path | None) -> None:
        """Open it.

        Raises:
            sqlite3.Error: It cannot be opened, or is no such file.
        """
        self.path = path
        self.inode = None if path is None else path.stat().st_ino
        self._db = connect(path, busy_seconds=_BUSY_SECONDS)
        self._close = weakref.finalize(self, _close, self._db, os.getpid())
        # What ends with the interpreter may still have something to ask at its end.
        self._close.atexit = False
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")

    @classmethod
    def new(cls, spaces: Iterable[int]) -> ChecksummedKV:
        """Make a private one with empty spaces."""
        kv = cls(None)
        for statement in _TABLES:
            kv._db.execute(statement)
        for space in spaces:
            kv._insert(space, b"", None, [], [])
        return kv

    def close(self) -> None:
        """Let go of the file."""
        self._close()

    def copy(self) -> ChecksummedKV:
        """Make a private copy."""
        other = ChecksummedKV(None)
        self._db.backup(other._db)
        return other

    def save(self, path: Path) -> None:
        """Write a copy to an empty file.

        Raises:
            sqlite3.Error: It cannot be written.
        """
        with closing(connect(path, busy_seconds=_BUSY_SECONDS)) as target:
            self._db.backup(target)

    # Reading.

    def get(self, space: int, key: bytes) -> bytes | None:
        """Return what a key holds.

        Raises:
            DamagedError, sqlite3.Error: As all that read.
        """
        leaf = self._leaf(space, key)
        at = bisect_left(leaf.keys, key)
        return leaf.values[at] if at < len(leaf.keys) and leaf.keys[at] == key else None

    def ascending(self, space: int, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and what they hold, from a key on."""
        return self.cursor(space).ascending(start)

    def cursor(self, space: int) -> LeafCursor:
        """Return a reader of one space for one question, during which nothing is written."""
        return LeafCursor(partial(self._leaf, space))

    def descending(self, space: int, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and what they hold, from a key back."""
        leaf = self._leaf(space, start)
        while True:
            end = bisect_right(leaf.keys, start)
            yield from zip(reversed(leaf.keys[:end]), reversed(leaf.values[:end]), strict=True)
            if not leaf.lo:
                return
            before = self._read(_BEFORE, space, leaf.lo)
            if before.hi != leaf.lo:
                raise DamagedError("a leaf is missing")
            leaf = before

    def _leaf(self, space: int, key: bytes) -> _Leaf:
        leaf = self._read(_AT, space, key)
        if key < leaf.lo or (leaf.hi is not None and key >= leaf.hi):
            raise DamagedError("a leaf is missing")
        return leaf

    def _read(self, statement: str, space: int, key: bytes) -> _Leaf:
        found = self._db.execute(statement, (space, key)).fetchone()
        match found:
            case (int(row), int(stated), bytes(lo), bytes() | None as hi, int(checksum), bytes(data)):
                if stated != space or checksum != _sum(space, lo, hi, data):
                    raise DamagedError("a checksum does not match")
                keys, values = _decoder.decode(zlib.decompress(data))
                return _Leaf(row, space, lo, hi, keys, values)
            case _:
                raise DamagedError("a leaf is missing")

    # Writing.

    def write(self, changes: Changes) -> None:
        """Make changes, all of them or none.

        Raises:
            DamagedError: What was there is not what was written.
            sqlite3.Error: It cannot be written.
        """
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for space, changed in changes.items():
                self._write(space, sorted(changed.items()))
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(Exception):
                self._db.execute("ROLLBACK")
            raise

    def _write(self, space: int, changed: Sequence[tuple[bytes, bytes | None]]) -> None:
        keys = [key for key, _ in changed]
        start = 0
        while start < len(changed):
            leaf = self._leaf(space, keys[start])
            end = len(keys) if leaf.hi is None else bisect_left(keys, leaf.hi, start)
            entries: dict[bytes, bytes | None] = dict(zip(leaf.keys, leaf.values, strict=True))
            entries |= dict(changed[start:end])
            kept = sorted((key, value) for key, value in entries.items() if value is not None)
            self._replace(leaf, [key for key, _ in kept], [value for _, value in kept])
            start = end

    def _replace(self, leaf: _Leaf, keys: list[bytes], values: list[bytes]) -> None:
        cuts = _cuts(keys, values, even=leaf.hi is not None)
        fences = [leaf.lo, *(keys[cut] for cut in cuts), leaf.hi]
        starts = [0, *cuts, len(keys)]
        for number, start in enumerate(starts[:-1]):
            end = starts[number + 1]
            lo, hi = fences[number] or b"", fences[number + 1]
            if number == 0:
                data = _packed(keys[start:end], values[start:end])
                changed = (hi, _sum(leaf.space, lo, hi, data), data, leaf.row)
                self._db.execute("UPDATE leaf SET hi = ?, sum = ?, data = ? WHERE rowid = ?", changed)
            else:
                self._insert(leaf.space, lo, hi, keys[start:end], values[start:end])

    def _insert(self, space: int, lo: bytes, hi: bytes | None, keys: list[bytes], values: list[bytes]) -> None:
        data = _packed(keys, values)
        row = (space, lo, hi, _sum(space, lo, hi, data), data)
        self._db.execute("INSERT INTO leaf(space, lo, hi, sum, data) VALUES(?, ?, ?, ?, ?)", row)


def _close(db: sqlite3.Connection, owner: int) -> None:
    # A connection that came along through a fork is the parent's: to close it here could undo what the parent writes.
    if os.getpid() == owner:
        db.close()


def _packed(keys: list[bytes], values: list[bytes]) -> bytes:
    return zlib.compress(_encoder.encode((keys, values)), _FASTEST)


def _sum(space: int, lo: bytes, hi: bytes | None, data: bytes) -> int:
    bounds = _encoder.encode((space, lo, hi))
    return zlib.crc32(data, zlib.crc32(bounds))


def _cuts(keys: Sequence[bytes], values: Sequence[bytes], *, even: bool) -> list[int]:
    """Say where to split what is too much for one leaf; where keys only ever grow, all leaves but the last are full."""
    sizes = [len(key) + len(value) + _ENTRY_BYTES for key, value in zip(keys, values, strict=True)]
    total = sum(sizes)
    if total <= 2 * _LEAF_BYTES:
        return []
    most = total / (total // _LEAF_BYTES) if even else _LEAF_BYTES
    cuts, size = [], 0.0
    for number, one in enumerate(sizes):
        if number and size + one > most:
            cuts.append(number)
            size = 0
        size += one
    return cuts


def pack(value: msgspec.Struct) -> bytes:
    """Spell a value."""
    return _encoder.encode(value)


def number(value: int) -> bytes:
    """Spell a number so that it sorts."""
    return value.to_bytes(8, "big")


def number_in(key: bytes) -> int:
    """Read the number at the end of a key."""
    return int.from_bytes(key[-8:], "big")


def beginning(text: str) -> bytes:
    """Spell the beginning of a name; what no log can hold is spelled too, and never found."""
    return text.encode(errors="surrogatepass").replace(b"\0", b"\0\xff")


def named(text: str) -> bytes:
    """Spell a whole name."""
    return beginning(text) + b"\0\0"


def name_in(key: bytes) -> tuple[str, int]:
    """Read the name that a key begins with; returns it and where it ends."""
    name = name_of(key)
    return name[:-2].replace(b"\0\xff", b"\0").decode(errors="surrogatepass"), len(name)


def name_of(key: bytes) -> bytes:
    """Cut a key down to the name it begins with."""
    end = key.index(b"\0\0")
    # A name that ends in a zero byte is spelled 00 ff 00 00: the end is never found too early.
    return key[: end + 2]
