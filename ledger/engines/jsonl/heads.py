"""Heads of logs in files: read off the last whole line, and known as long as the file stays as it was.

A note in the lock file states the head that is durable, for processes that do not have the lock.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Head, inspect
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.disk.files import count_lines, free_name, sync_data, sync_folder, write_new

_REMEMBERED = 4096
_NOTE_BYTES = 128

_T = TypeVar("_T")


def remember(known: dict[str, _T], stream: str, what: _T) -> None:
    """Keep a note about a stream, and drop the oldest of too many."""
    if len(known) >= _REMEMBERED and stream not in known:
        with suppress(RuntimeError):
            # Another thread may be noting something, too; then it is that one's turn.
            known.pop(next(iter(known)), None)
    known[stream] = what


class _Known(msgspec.Struct, frozen=True):
    """What was seen of a file: as long as inode, size and time of change are still these, the head is."""

    inode: int
    size: int
    changed: int
    head: Head


class KnownHeads(dict[str, _Known]):
    """The heads of streams, each with the state of the file in which it was seen."""

    def recall(self, stream: str, stat: os.stat_result) -> Head | None:
        """Return the head of a stream, if its file has not changed since it was learned."""
        known = self.get(stream)
        if known is None or (known.inode, known.size, known.changed) != (stat.st_ino, stat.st_size, stat.st_ctime_ns):
            return None
        return known.head

    def learn(self, stream: str, stat: os.stat_result, head: Head) -> None:
        """Remember the head of a stream with the state of its file."""
        remember(self, stream, _Known(stat.st_ino, stat.st_size, stat.st_ctime_ns, head))


def parse_head(stream: str, descriptor: int, line: bytes, end: int) -> Head:
    """Read the head off the last whole line, which has to be what was written."""
    if end == 0:
        return EMPTY
    try:
        found = inspect(line)
        problem = None if found.intact else "is not what was written"
    except UNREADABLE:
        problem = "is no commit"
    if problem is None:
        return Head(found.seq, found.hash)
    byte, number = end - len(line) - 1, count_lines(descriptor, end)
    raise CorruptLogError(
        f"{stream}: the last line, {number} at byte {byte}, {problem}; nothing is written until it is mended: "
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
