"""Column file: the numbers and texts of an index in one file, which is read in parts.

The file begins with `_MAGIC`, the CRC-32 of all that follows it, and the length of the header, four bytes each, little
endian. Then come the header (msgpack) and the columns, as they lie in memory. It is written once and replaced whole.
It is not mapped into memory: a process ends when another program shortens a file that it has mapped.
"""

from __future__ import annotations

import os
import weakref
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from backstory.projections.derived_files import DamagedError, UnusableError

_MAGIC = b"bswords1"
_FIXED = len(_MAGIC) + 8
_CHUNK = 1 << 20
_LONGEST_HEADER = 1 << 20

Numbers: TypeAlias = NDArray[Any]
Columns: TypeAlias = dict[str, Numbers | Sequence[str] | bytes]


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """By name each column's type, first byte behind the header, and length."""

    columns: dict[str, tuple[str, int, int]]


class ColumnFile:
    """A file that is open for reading, after its checksum was compared; safe for threads and forks."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            FileNotFoundError: There is none.
            DamagedError: It is not what was written.
            UnusableError: It cannot be read.
        """
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnusableError(error.strerror or str(error)) from error
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)
        try:
            self._stamp = _stamp(os.fstat(descriptor))
            self._begin, self._columns = self._checked()
        except BaseException:
            self.close()
            raise

    def _checked(self) -> tuple[int, Mapping[str, tuple[str, int, int]]]:
        fixed = self._read(0, _FIXED)
        length = int.from_bytes(fixed[-4:], "little")
        if fixed[: len(_MAGIC)] != _MAGIC or length > _LONGEST_HEADER:
            raise DamagedError("it is not of this version")
        at, checksum = len(_MAGIC) + 4, 0
        size = self._stamp[2]
        while at < size:
            part = self._read(at, min(_CHUNK, size - at))
            at, checksum = at + len(part), zlib.crc32(part, checksum)
        if checksum != int.from_bytes(fixed[len(_MAGIC) : -4], "little"):
            raise DamagedError("its checksum does not match")
        header = msgspec.msgpack.decode(self._read(_FIXED, length), type=_Header)
        return _FIXED + length, header.columns

    def _read(self, at: int, size: int) -> bytes:
        try:
            found = os.pread(self._descriptor, size, at)
        except OSError as error:
            raise DamagedError(error.strerror or str(error)) from error
        if len(found) < size:
            raise DamagedError("it was cut short")
        return found

    def is_untouched(self) -> bool:
        """Whether it was not written to since it was opened. Another file may have come in its place."""
        return _stamp(os.fstat(self._descriptor)) == self._stamp

    def part(self, name: str, start: int, stop: int) -> Numbers:
        """Read some numbers of a column."""
        kind, begin, _ = self._columns[name]
        dtype = np.dtype(kind)
        found = self._read(self._begin + begin + start * dtype.itemsize, (stop - start) * dtype.itemsize)
        return np.frombuffer(found, dtype)

    def column(self, name: str) -> Numbers:
        """Read a column."""
        return self.part(name, 0, self._columns[name][2])

    def length(self, name: str) -> int:
        """Return how many numbers a column has."""
        return self._columns[name][2]

    def packed(self, name: str) -> bytes:
        """Read a column of bytes."""
        return self.column(name).tobytes()

    def texts(self, name: str) -> list[str]:
        """Read a column of texts."""
        return msgspec.msgpack.decode(self.packed(name), type=list[str])


def write_columns(path: Path, columns: Columns) -> None:
    """Write columns to an empty file.

    Raises:
        OSError: It cannot be written.
    """
    arrays = {name: _array(column) for name, column in columns.items()}
    places: dict[str, tuple[str, int, int]] = {}
    at = 0
    for name, array in arrays.items():
        places[name] = (array.dtype.str, at, len(array))
        at += array.nbytes
    header = msgspec.msgpack.encode(_Header(places))
    parts = [len(header).to_bytes(4, "little"), header, *(array.tobytes() for array in arrays.values())]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    with path.open("r+b") as file:
        file.writelines((_MAGIC, checksum.to_bytes(4, "little"), *parts))


def _array(column: Numbers | Sequence[str] | bytes) -> Numbers:
    if isinstance(column, np.ndarray):
        small = column.dtype.kind in "iu" and column.min(initial=0) >= 0
        return column.astype(np.min_scalar_type(column.max(initial=0))) if small else np.ascontiguousarray(column)
    packed = column if isinstance(column, bytes) else msgspec.msgpack.encode(column)
    return np.frombuffer(packed, np.uint8)


def _stamp(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
