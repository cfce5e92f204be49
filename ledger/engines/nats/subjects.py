"""Subject names of the NATS engine: a reversible spelling of stream names that no user id can break.

    <prefix>.<shard>.<kind>.<segment>.<segment>…

A stream's name is split at "/". ASCII letters, digits, "-" and "_" of a segment stand for themselves, every other byte
of its UTF-8 is "=" and two hex digits, and an empty segment is a single "=". A segment that would be longer than 200
characters is "~" and the SHA-256 of its bytes; the messages of such a stream carry the name in a header.
"""

from __future__ import annotations

import hashlib
import re

from backstory.ledger.core.errors import StoreError

COMMITS = "c"
"""Commits of a stream, and markers that state where it stands."""
STUBS = "r"
"""Lines that replace erased ones."""
DELETIONS = "d"
"""Which messages an erasure has still to delete."""
KEYS = "k"
EMPTY = "e"
"""Which streams may have nothing but a lock yet."""
LEASES = "l"
REMOVED = "x"
"""Marks of removed streams, by the hash of their first commit."""
ENTRANCE = "a"
"""Where the store that fills an incomplete copy sends its messages."""
REMOVALS = "g"
"""Folders whose removal is not complete."""

_SEAL = "s"
_PLAIN = re.compile(rb"[^A-Za-z0-9_-]")
_SPELLED = re.compile(r"=([0-9A-F]{2})")
_LONGEST_SEGMENT = 200
_LONGEST_SUBJECT = 2000
"""A server reads at most 4096 bytes of a protocol line, which also holds an inbox and two sizes."""


class Subjects:
    """Names of the subjects and JetStream streams below a prefix, in a number of shards."""

    def __init__(self, prefix: str, shards: int) -> None:
        self.prefix = prefix
        self.shards = range(shards)

    def shard(self, stream: str) -> int:
        """Return the shard of a stream: all streams of one user, or all that are no user's, share one."""
        parts = stream.split("/")
        owner = "/".join(parts[:2]) if parts[0] == "users" else ""
        return int.from_bytes(hashlib.sha256(_bytes(owner)).digest()[:8], "big") % len(self.shards)

    def jetstream(self, shard: int) -> str:
        """Return the name of a shard's JetStream stream."""
        return f"{self.prefix}-{shard}"

    def everything(self, shard: int) -> str:
        """Return the pattern of all subjects of a shard."""
        return f"{self.prefix}.{shard}.>"

    def jetstream_of(self, stream: str) -> str:
        """Return the name of the JetStream stream that one of our streams is in."""
        return self.jetstream(self.shard(stream))

    def of(self, kind: str, stream: str) -> str:
        """Return a stream's subject of a kind.

        Raises:
            StoreError: The name is too long.
        """
        return self.within(kind, self.shard(stream), spell(stream))

    def within(self, kind: str, shard: int, rest: str) -> str:
        """Return a subject of a kind in a shard."""
        return f"{self.prefix}.{shard}.{kind}.{rest}"

    def seal(self, shard: int) -> str:
        """Return the subject that says why a shard takes no changes."""
        return f"{self.prefix}.{shard}.{_SEAL}"

    def removals(self, shard: int) -> str:
        """Return the pattern of the removals that are not complete."""
        return self.within(REMOVALS, shard, ">")

    def kind(self, subject: str) -> str:
        """Return the kind of a subject."""
        return subject.split(".", 3)[2]

    def rest(self, subject: str) -> str:
        """Return what follows the kind in a subject."""
        return subject.removeprefix(self.prefix).split(".", 3)[3]


def seal_beside(subject: str) -> str:
    """Return the subject of the seal of the shard that a subject is in."""
    prefix, shard, _ = subject.split(".", 2)
    return f"{prefix}.{shard}.{_SEAL}"


def through(subject: str, entrance: str) -> str:
    """Return a subject as it is named behind an entrance."""
    prefix, shard, rest = subject.split(".", 2)
    return f"{prefix}.{shard}.{ENTRANCE}.{entrance}.{rest}"


def jetstream_of(subject: str) -> str:
    """Return the name of the JetStream stream that a subject is in."""
    prefix, shard, _ = subject.split(".", 2)
    return f"{prefix}-{shard}"


def spell(stream: str) -> str:
    """Spell a stream's name as tokens of a subject.

    Raises:
        StoreError: The name is too long.
    """
    spelled = ".".join(map(_spell, stream.split("/")))
    if len(spelled) > _LONGEST_SUBJECT:
        raise StoreError(
            f"a stream's name of {len(stream)} characters is too long for a subject of NATS: shorten the user or agent"
        )
    return spelled


def name_of(rest: str) -> str | None:
    """Return the stream's name that was spelled; None if a segment is a digest."""
    segments = rest.split(".")
    if any(segment.startswith("~") for segment in segments):
        return None
    return "/".join("" if segment == "=" else _read(segment) for segment in segments)


def _spell(segment: str) -> str:
    raw = _bytes(segment)
    spelled = _PLAIN.sub(lambda found: b"=%02X" % found[0][0], raw).decode() or "="
    return spelled if len(spelled) <= _LONGEST_SEGMENT else f"~{hashlib.sha256(raw).hexdigest()}"


def _read(segment: str) -> str:
    raw = _SPELLED.sub(lambda found: chr(int(found[1], 16)), segment).encode("latin-1")
    return raw.decode("utf-8", "surrogatepass")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
