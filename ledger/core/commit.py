"""One line of a log: all events of one update, sealed into a hash chain.

    {"v":1,"seq":7,"at":"…","cause":{…},"events":[{…},…],"salts":["…",…],"prev":"…","hash":"…"}

`hash` covers v, seq, at, prev and the salted digest of the cause and of each event, never their content: so one event
can be erased, leaving its digest, and the chain still verifies. A digest is taken over the bytes as they stand in the
line, never over a decoded value. docs/log-format.md states the bytes, and a test holds it to this module.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypedDict

import msgspec
import orjson

from backstory.ledger.core.errors import CorruptLogError, StoreError
from backstory.ledger.core.events import Access, Event, TurnRange
from backstory.ledger.core.sanitize import Json

__all__ = [
    "EMPTY",
    "FORMAT",
    "UNREADABLE",
    "Cause",
    "Commit",
    "Draft",
    "Head",
    "Inspection",
    "decode",
    "erase",
    "follows",
    "head_of",
    "inspect",
    "prev_of",
    "replay_line",
    "seal",
    "sealed",
    "unseal",
]

FORMAT = 1
"""The version written; `_UPCASTS` reads the ones before it."""

_NO_HASH = "0" * 64


class Head(msgspec.Struct, frozen=True):
    """Where a stream stands: its last seq and hash; seq 0 and sixty-four zeros when nothing was ever written."""

    seq: int
    hash: str


EMPTY = Head(0, _NO_HASH)


class Cause(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """Why a commit exists.

    `kind`: genesis, extraction, summary, manual, import, revert, rollback, clear, policy, redaction; in a transcript,
    record, withdrawal or restore. `turns` are those of `thread` that this commit covers; a clear covers all up to
    `transcript`, the transcript's head when the update was made. `summarized` are those that nobody is to be asked to
    sum up again, at `level` 1 from the turns, at each further one from summaries of the level before; to cover them
    is another matter. `signals` are those that were seen in the conversation. `target`, `force`, `replace`, `action`,
    `fact` and `heat` (by fact id) are what of the command is not said in the events, so that it can be decided again.
    `origin` is the place that an import was read from. No cause ever holds content.
    """

    kind: str
    user: str | None = None
    agent: str | None = None
    thread: str | None = None
    turns: TurnRange | None = None
    transcript: Head | None = None
    model: str | None = None
    prompt: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    actor: str | None = None
    action: str | None = None
    fact: str | None = None
    target: int | None = None
    force: bool = False
    replace: bool = False
    digest: str | None = None
    signals: tuple[str, ...] = ()
    heat: dict[str, Access] = {}
    level: int = 0
    summarized: TurnRange | None = None
    origin: str | None = None


class Draft(msgspec.Struct, frozen=True):
    """A commit before it has a place in the chain."""

    at: str
    cause: Cause
    events: tuple[Event, ...]


class Commit(msgspec.Struct, frozen=True):
    """A commit as it is read."""

    seq: int
    at: str
    cause: Cause
    events: tuple[Event, ...]
    prev: str
    hash: str

    @property
    def head(self) -> Head:
        """Where the stream stands after this commit."""
        return Head(self.seq, self.hash)


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    """A line with its contents still as bytes."""

    v: int
    seq: int
    at: str
    cause: msgspec.Raw
    events: list[msgspec.Raw]
    salts: list[str | None]
    prev: str
    hash: str


class _Replayed(msgspec.Struct):
    """What folding needs of a line; the rest is passed over without being built."""

    v: int
    seq: int
    at: str
    cause: Cause
    events: tuple[Event, ...]


class _Ends(msgspec.Struct):
    seq: int
    prev: str
    hash: str


_encoder = msgspec.json.Encoder()
_sealed = msgspec.json.Decoder(_Sealed)
_replayed = msgspec.json.Decoder(_Replayed)
_ends = msgspec.json.Decoder(_Ends)
_event: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_cause = msgspec.json.Decoder(Cause)

# Looked up once: replay calls each of them for every line, some for every event of it.
_encode = _encoder.encode
_decode_sealed = _sealed.decode
_decode_event = _event.decode
_sha256 = hashlib.sha256


class Contents(TypedDict):
    """A line's cause and events, parsed: what an upcast turns into the next version's."""

    cause: dict[str, Json]
    events: list[dict[str, Json]]


_UPCASTS: Mapping[int, Callable[[Contents], Contents]] = MappingProxyType({})
"""From a version to what brings its contents to the next; the envelope stays as it is."""

# What may stand where content was erased, to the byte: anything more in there would be covered by no digest.
_ERASED_EVENT = re.compile(rb'\{"type":"Erased","digest":"([0-9a-f]{64})"\}')
_ERASED_CAUSE = re.compile(rb'\{"kind":"erased","digest":"([0-9a-f]{64})"\}')
_SALT_LENGTH = 32

UNREADABLE = (msgspec.MsgspecError, orjson.JSONDecodeError, UnicodeDecodeError, RecursionError)
"""What is raised over bytes that are no commit at all; the last of them over brackets without end."""


def _digest(salt: str, content: bytes) -> str:
    return _sha256(salt.encode() + content).hexdigest()


def _chain(v: int, seq: int, at: str, prev: str, digests: Iterable[str]) -> str:
    return _sha256("\n".join((str(v), str(seq), at, prev, *digests)).encode()).hexdigest()


def seal(draft: Draft, after: Head, salts: Callable[[], str]) -> bytes:
    """Give a draft its place after a head; returns the line, without a line break: see `sealed`."""
    return sealed(draft, after, salts)[0]


def sealed(draft: Draft, after: Head, salts: Callable[[], str]) -> tuple[bytes, Commit]:
    """Give a draft its place after a head; returns the line, without a line break, and the commit as it will be read.

    `salts` yields a new secret of 32 hex digits at each call.

    Raises:
        StoreError: a value in the draft cannot be written, or not so that it can be read again.
        ValueError: a salt of another length.
    """
    seq = after.seq + 1
    try:
        contents = [_encode(draft.cause), *map(_encode, draft.events)]
        # A line that nobody can read again (NaN is written as null) would close the log for good.
        cause = _cause.decode(contents[0])
        events = tuple(map(_decode_event, contents[1:]))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"commit {seq} cannot be written: {error}; this value should have been refused") from error
    keys: list[str | None] = []
    digests = []
    for content in contents:
        key = salts()
        if len(key) != _SALT_LENGTH:
            raise ValueError(f"a salt is {_SALT_LENGTH} hex digits: of another length it would not say where it ends")
        keys.append(key)
        digests.append(_digest(key, content))
    chained = _chain(FORMAT, seq, draft.at, after.hash, digests)
    raw = list(map(msgspec.Raw, contents))
    line = _encode(_Sealed(FORMAT, seq, draft.at, raw[0], raw[1:], keys, after.hash, chained))
    return line, Commit(seq, draft.at, cause, events, after.hash, chained)


def head_of(line: bytes) -> Head:
    """Read a line's seq and hash, without checking either.

    Raises:
        UNREADABLE: the line is no commit.
    """
    ends = _ends.decode(line)
    return Head(ends.seq, ends.hash)


def prev_of(line: bytes) -> str:
    """Read the hash that a line says it follows, without checking it."""
    return _ends.decode(line).prev


class Inspection(msgspec.Struct, frozen=True):
    """What a line claims and what its bytes prove: `intact` where the recomputed hash is the one it states.

    `erased` lists the events, by index, whose content is gone (-1: the cause).
    """

    seq: int
    at: str
    prev: str
    hash: str
    intact: bool
    erased: tuple[int, ...]


def _digests(sealed: _Sealed) -> list[str] | None:
    """Digest cause and events; None where salts and contents do not pair up; an erased slot states its own digest."""
    if len(sealed.salts) != 1 + len(sealed.events):
        return None
    digests: list[str] = []
    for salt, content in zip(sealed.salts, (sealed.cause, *sealed.events), strict=True):
        if salt is None:
            stub = (_ERASED_EVENT if digests else _ERASED_CAUSE).fullmatch(content)
            if stub is None:
                return None
            digests.append(stub[1].decode())
        elif len(salt) == _SALT_LENGTH:
            digests.append(_sha256(salt.encode() + content).hexdigest())
        else:
            return None
    return digests


def _intact(sealed: _Sealed, digests: Iterable[str], line: bytes) -> bool:
    return (
        # The parts of the hashed text are told apart by line breaks, so none may hold one.
        "\n" not in sealed.at
        and len(sealed.prev) == len(_NO_HASH)
        and sealed.hash == _chain(sealed.v, sealed.seq, sealed.at, sealed.prev, digests)
        # Between what the hash covers nothing else may stand, not even a space: a line has one spelling.
        and line == _encode(sealed)
    )


def _inspect(sealed: _Sealed, line: bytes) -> Inspection:
    digests = _digests(sealed)
    if digests is None:
        return Inspection(sealed.seq, sealed.at, sealed.prev, sealed.hash, intact=False, erased=())
    erased = tuple(index for index, salt in enumerate(sealed.salts, -1) if salt is None)
    intact = _intact(sealed, digests, line)
    return Inspection(sealed.seq, sealed.at, sealed.prev, sealed.hash, intact, erased)


def inspect(line: bytes) -> Inspection:
    """Recompute a line's hash from its bytes.

    Raises:
        UNREADABLE: the line is no commit at all.
    """
    return _inspect(_sealed.decode(line), line)


def erase(line: bytes, indexes: Collection[int]) -> bytes:
    """Return a line with the contents of some events gone, their digests in their place; its hash still holds.

    Raises:
        UNREADABLE: the line is no commit.
    """
    sealed = _sealed.decode(line)
    for index in indexes:
        salt = sealed.salts[index + 1]
        if salt is not None:
            digest = _digest(salt, bytes(sealed.events[index]))
            sealed.events[index] = msgspec.Raw(b'{"type":"Erased","digest":"%s"}' % digest.encode())
            sealed.salts[index + 1] = None
    return _encoder.encode(sealed)


def decode(line: bytes) -> Commit:
    """Read a line whose bytes were inspected.

    Raises:
        UNREADABLE: it holds what this program does not know.
        StoreError: it is in a newer format.
    """
    return _decode(_sealed.decode(line))


def _decode(sealed: _Sealed) -> Commit:
    if sealed.v == FORMAT:
        cause, events = _cause.decode(sealed.cause), tuple(map(_decode_event, sealed.events))
    else:
        cause, events = _upcast(sealed)
    return Commit(sealed.seq, sealed.at, cause, events, sealed.prev, sealed.hash)


def _upcast(sealed: _Sealed) -> tuple[Cause, tuple[Event, ...]]:
    if sealed.v > FORMAT:
        raise StoreError(
            f"the log is in format {sealed.v} and this program reads up to {FORMAT}: use a newer backstory"
        )
    contents: Contents = {
        "cause": orjson.loads(bytes(sealed.cause)),
        "events": [orjson.loads(bytes(raw)) for raw in sealed.events],
    }
    for version in range(sealed.v, FORMAT):
        if version not in _UPCASTS:
            raise msgspec.ValidationError(f"format {version} was never written")
        contents = _UPCASTS[version](contents)
    return (
        msgspec.convert(contents["cause"], Cause),
        msgspec.convert(contents["events"], tuple[Event, ...]),
    )


def replay_line(line: bytes) -> tuple[int, str, str, Sequence[Event]]:
    """Return seq, time, kind of cause and events of a line whose chain was checked elsewhere."""
    try:
        read = _replayed.decode(line)
        if read.v == FORMAT:
            return read.seq, read.at, read.cause.kind, read.events
    except msgspec.ValidationError:
        pass  # an older version's words, most likely
    old = decode(line)
    return old.seq, old.at, old.cause.kind, old.events


def unseal(line: bytes, after: Head, *, stream: str, byte: int) -> Commit:
    """Read a line that has to follow `after`, its hash recomputed; `byte` is its offset, for the error.

    Raises:
        CorruptLogError: it is no commit, its bytes are not what was sealed, or it does not follow.
    """
    try:
        sealed = _decode_sealed(line)
        digests = _digests(sealed)
        intact = digests is not None and _intact(sealed, digests, line)
        problem = _misplaced(sealed.seq, sealed.prev, after) if intact else _ALTERED
        if problem is None:
            return _decode(sealed)
    except UNREADABLE as error:
        problem = ("altered", f"cannot be read ({error})")
    kind, what = problem
    number = after.seq + 1
    raise CorruptLogError(
        f"{stream}: line {number} at byte {byte} {what}; run `verify`, then restore the file from a copy",
        kind=kind,
        stream=stream,
        line=number,
        byte=byte,
    )


def follows(found: Inspection, after: Head) -> tuple[str, str] | None:
    """Say what is wrong with a line that should follow a head: the kind of problem and words for it; None: nothing."""
    return _misplaced(found.seq, found.prev, after) if found.intact else _ALTERED


_ALTERED = ("altered", "is not what was written: its hash does not match its content")


def _misplaced(seq: int, prev: str, after: Head) -> tuple[str, str] | None:
    if seq == after.seq + 1:
        return None if prev == after.hash else ("broken_prev", "does not continue the line before it")
    if seq == after.seq:
        return "duplicate_seq", f"repeats seq {seq}"
    if seq < after.seq:
        return "reordered", f"has seq {seq} after {after.seq}"
    return "missing", f"has seq {seq}: what came after {after.seq} is missing"
