"""Heads of logs in files: read off the last whole line, and known as long as the file stays as it was.

A note in the lock file states the head that is durable, for processes that do not have the lock.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec

from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.disk.files import count_lines, free_name, sync_data, sync_folder, write_new
from backstory.ledger.engines.promises import intact_head

_NOTE_BYTES = 128


class FilePlace(msgspec.Struct, frozen=True):
    """Where in a file the line after `seq` begins."""

    inode: int
    seq: int
    byte: int


class KnownStream:
    """What this process knows of a stream and its file.

    Attributes:
        cursor: The furthest place that was read or written.
        durable: The newest head that was once known to be durable.
    """

    def __init__(self) -> None:
        self.cursor: FilePlace | None = None
        self.durable: Head | None = None
        self._seen: tuple[tuple[int, int, int], Head] | None = None

    def head(self, stat: os.stat_result) -> Head | None:
        """Return the head, if the file has not changed since it was learned."""
        seen = self._seen
        return seen[1] if seen is not None and seen[0] == (stat.st_ino, stat.st_size, stat.st_ctime_ns) else None

    def learn(self, stat: os.stat_result, head: Head) -> None:
        """Remember the head with the state of the file in which it was seen."""
        self._seen = ((stat.st_ino, stat.st_size, stat.st_ctime_ns), head)

    def forget(self) -> None:
        """Forget what is in the file, which is about to change."""
        self._seen = self.cursor = None


def parse_head(stream: str, descriptor: int, line: bytes, end: int) -> Head:
    """Read the head off the last whole line, which has to be what was written."""
    if end == 0:
        return EMPTY
    found = intact_head(line)
    if isinstance(found, Head):
        return found
    byte, number = end - len(line) - 1, count_lines(descriptor, end)
    raise CorruptLogError(
        f"{stream}: the last line, {number} at byte {byte}, {found}; nothing is written until it is mended: "
        "run `verify`",
        kind="altered",
        stream=stream,
        line=number,
        byte=byte,
    )


def spelled_note(head: Head) -> bytes:
    """Spell what a lock file says: seq and hash of a durable head, and a checksum, in as many bytes each time."""
    said = f"{head.seq} {head.hash}"
    return f"{said} {zlib.crc32(said.encode()):08x}".ljust(_NOTE_BYTES - 1).encode() + b"\n"


def read_note(path: str) -> Head | None:
    """Read what a lock file says; None where it says nothing, or was read while it was being written."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            seq, digest, checksum = file.read(_NOTE_BYTES).split()
        if int(checksum, 16) == zlib.crc32(seq + b" " + digest):
            return Head(int(seq), digest.decode())
    except (OSError, ValueError):
        pass
    return None


def move_torn_tail(path: Path, descriptor: int, end: int, size: int) -> Path:
    """Move what a crash left behind the last whole line to a file of its own, and return that."""
    aside = free_name(path.with_suffix(".torn"))
    write_new(aside, [os.pread(descriptor, size - end, end)])
    sync_folder(aside.parent)
    os.ftruncate(descriptor, end)
    sync_data(descriptor)
    return aside
