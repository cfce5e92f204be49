"""Notes in lock files: which head of a stream is durable, for processes that do not have the lock."""

from __future__ import annotations

import zlib

from backstory.ledger.core.commit import Head

_NOTE_BYTES = 128


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
