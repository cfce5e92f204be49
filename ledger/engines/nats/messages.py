"""Messages of the NATS engine: how a commit, a marker and a stub are stored, and what they say about a stream.

The header `Backstory` says what a message is:

    commit <byte> <origin> <lock>   a line; the bytes of the lines before it as they were appended, the sequence that
                                    all messages of this stream come after, and the marker of the lock it was
                                    appended under, or 0
    marker                          no line, but where the stream stands, in JSON; see `Marker`
    stubs                           lines that replace erased ones, each after its seq, byte, length and sequence
    …                               a secret, a lease, a mark of a removal: a word that only people read

A marker is the last message on the subject of the commits for as long as a lock is held. So an append that does not
know of the lock has the wrong expectation, and an append without contention needs no message more.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.engines.nats.jetstream import Stored
from backstory.ledger.engines.promises import intact_head

LOCK = "lock"
PIN = "pin"
"""A marker that stays, because the last commit was deleted for an erasure."""
GONE = "gone"
"""A marker of a stream that is being removed."""

MARKER_NOTE = "marker"
STUBS_NOTE = "stubs"
_COMMIT = "commit"


class Marker(msgspec.Struct, frozen=True):
    """Where a stream stands, stated by a message that is no commit.

    `owner` and `nonce` are those of a lock; `lock` is the marker of the lock under which a pin was stored.
    """

    kind: str
    seq: int
    hash: str
    end: int
    origin: int
    owner: str = ""
    nonce: str = ""
    lock: int = 0

    def data(self) -> bytes:
        """Return the payload."""
        return msgspec.json.encode(self)


class Tip(msgspec.Struct, frozen=True):
    """Where a stream stands: `at` is the sequence of the last message on its subject, 0 for none.

    `end` are the bytes of its lines as they were appended, line breaks included. `lock` is the sequence of the marker
    of a lock that may be held, 0 for none; `owner` and `nonce` are known if that marker is the last message.
    """

    at: int
    head: Head
    end: int
    origin: int
    lock: int = 0
    owner: str = ""
    nonce: str = ""


NOTHING = Tip(0, EMPTY, 0, 0)


class Stub(msgspec.Struct, frozen=True):
    """A line that replaces an erased one: `byte` and `length` are those of the original, `at` its sequence."""

    seq: int
    byte: int
    length: int
    at: int
    line: bytes

    @property
    def shrunk(self) -> int:
        """How many bytes less than the original it takes."""
        return self.length - len(self.line)


def commit_note(byte: int, origin: int, lock: int) -> str:
    """Spell the header of a commit."""
    return f"{_COMMIT} {byte} {origin} {lock}"


def is_commit(message: Stored) -> bool:
    """Whether a message is a line, and not a marker."""
    return message.note.startswith(_COMMIT)


def byte_of(message: Stored) -> int:
    """Return the offset that a commit was appended at."""
    return int(message.note.split()[1])


def read_marker(message: Stored) -> Marker:
    """Read a marker.

    Raises:
        CorruptLogError: It is none.
    """
    try:
        return msgspec.json.decode(message.data, type=Marker)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(
            f"message {message.seq} on {message.subject} is not from Backstory: delete it with `nats stream rmm`, and "
            "let no other program publish there",
            kind="altered",
            stream=message.subject,
            line=0,
            byte=0,
        ) from error


def tip_of(stream: str, message: Stored | None) -> Tip:
    """Return what the last message on a subject says.

    Raises:
        CorruptLogError: It is not what was written.
    """
    if message is None:
        return NOTHING
    if not is_commit(message):
        marker = read_marker(message)
        if marker.kind == GONE:
            return Tip(message.seq, EMPTY, 0, 0)
        lock = message.seq if marker.kind == LOCK else marker.lock
        return Tip(
            message.seq, Head(marker.seq, marker.hash), marker.end, marker.origin, lock, marker.owner, marker.nonce
        )
    _, byte, origin, lock_at = message.note.split()
    found = intact_head(message.data)
    if isinstance(found, Head):
        return Tip(message.seq, found, int(byte) + len(message.data) + 1, int(origin), int(lock_at))
    raise CorruptLogError(
        f"{stream}: the last line, message {message.seq}, {found}; nothing is written until it is mended: run `verify`",
        kind="altered",
        stream=stream,
        line=0,
        byte=int(byte),
    )


def write_stubs(stubs: Iterable[Stub]) -> bytes:
    """Spell stubs as one payload."""
    return b"\n".join(b"%d %d %d %d %s" % (stub.seq, stub.byte, stub.length, stub.at, stub.line) for stub in stubs)


def read_stubs(message: Stored) -> list[Stub]:
    """Read the stubs of a message."""
    found = []
    for text in message.data.split(b"\n"):
        seq, byte, length, at, line = text.split(b" ", 4)
        found.append(Stub(int(seq), int(byte), int(length), int(at), line))
    return found
