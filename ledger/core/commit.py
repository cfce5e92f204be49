"""Commit: one line of a log, which holds all events of one update and is part of a hash chain.

    {"v":1,"seq":7,"at":"…","cause":{…},"events":[{…},…],"salts":["…",…],"prev":"…","hash":"…"}

`hash` covers v, seq, at, prev and the salted digests of the cause and of each event, but not their content. So an event
can be erased: its digest stays and the chain still verifies. Digests cover the bytes of the line, never decoded values.
docs/reference/log-format.md states the format, and a test checks it against this module.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TypedDict, TypeVar, assert_never

import msgspec
import orjson

from backstory.ledger.core.errors import CorruptLogError, StoreError
from backstory.ledger.core.events import (
    Access,
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    IdsReserved,
    PolicyChanged,
    Redacted,
    SectionEvent,
    TurnRange,
    TurnRecorded,
    TurnRestored,
    TurnSuperseded,
    UpdateEvent,
)
from backstory.ledger.core.kinds import CauseAction, CauseKind
from backstory.ledger.core.sanitize import Json

FORMAT = 4
"""The newest version; a line has the lowest one that says all of it, so older programs read what they understand."""
_AS_THEY_ARE = (1, 2, 3, 4)
"""The versions whose contents need no upcast."""

_NO_HASH = "0" * 64

_E = TypeVar("_E", bound=Event)
_Read = TypeVar("_Read")


class Head(msgspec.Struct, frozen=True):
    """The last seq and hash of a stream; seq 0 and 64 zeros if it is empty."""

    seq: int
    hash: str


EMPTY = Head(0, _NO_HASH)


class Cause(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True, rename="camel", kw_only=True):
    """Why a commit exists.

    `turns` are the turns of `thread` that this commit covers; a clear
    covers all up to `transcript`, the transcript's head when the update was made. `summarized` are turns that need no
    summary of this `level` any more (1: made from turns; higher: from summaries of the level below); that does not
    cover them. `signals` are the signals seen in the conversation. `target`, `force`, `replace`, `insist`, `by_model`,
    `action`, `fact` and `heat` (by fact id) are the fields of the command that the events do not hold, so that it can
    be decided again. `agent` is also the agent that shared what a `share` received. `origin` is where an import was
    read from. `key` is the digest of the key of a request, which is carried out once however often it is repeated. A
    cause never holds content.
    """

    kind: CauseKind
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
    action: CauseAction | None = None
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
    insist: bool = False
    by_model: bool = False
    key: str | None = None

    def __str__(self) -> str:
        """Name the kind of the commit and its object, such as `revert of 7`."""
        match self.kind:
            case "manual":
                return f"by {'a tool' if self.by_model else 'hand'}: {self.action or 'change'}"
            case "import" if self.action == "save":
                return "saved document"
            case "import" if self.action == "home":
                return f"imported from {self.origin}" if self.origin else "imported"
            case "revert":
                return f"revert of {self.target}"
            case "rollback":
                return f"rollback to {self.target}"
            case "summary" if self.summarized is not None:
                return f"summary of {self.summarized.first}-{self.summarized.last}"
            case _:
                return self.kind


class Draft(msgspec.Struct, frozen=True):
    """A commit that is not yet part of the chain."""

    at: str
    cause: Cause
    events: tuple[Event, ...]


class Commit(msgspec.Struct, frozen=True):
    """A commit that was read from a log."""

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

    def first(self, kind: type[_E]) -> _E | None:
        """Return the first event of a type; None if the commit has none."""
        return next((event for event in self.events if isinstance(event, kind)), None)


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    """A line whose cause and events are still bytes."""

    v: int
    seq: int
    at: str
    cause: msgspec.Raw
    events: list[msgspec.Raw]
    salts: list[str | None]
    prev: str
    hash: str


class _Ends(msgspec.Struct):
    seq: int
    prev: str
    hash: str


# Bound once, because a replay calls them for every line or event.
_encode = msgspec.json.Encoder().encode
_decode_sealed = msgspec.json.Decoder(_Sealed).decode
_decode_ends = msgspec.json.Decoder(_Ends).decode
_decode_cause = msgspec.json.Decoder(Cause).decode
_decode_event: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode
_sha256 = hashlib.sha256


class Contents(TypedDict):
    """The parsed cause and events of a line, which an upcast converts."""

    cause: dict[str, Json]
    events: list[dict[str, Json]]


_UPCASTS: Mapping[int, Callable[[Contents], Contents]] = MappingProxyType({})
"""For each version, the function that converts its contents to the next version; the envelope does not change."""

# The exact bytes that replace erased content. No digest would cover anything more in there.
_ERASED_EVENT = re.compile(rb'\{"type":"Erased","digest":"([0-9a-f]{64})"\}')
_ERASED_CAUSE = re.compile(rb'\{"kind":"erased","digest":"([0-9a-f]{64})"\}')
_SALT_LENGTH = 32

UNREADABLE = (msgspec.MsgspecError, orjson.JSONDecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions raised for bytes that are not a commit; RecursionError is raised for endless brackets."""


def _digest(salt: str, content: bytes) -> str:
    return _sha256(salt.encode() + content).hexdigest()


def _chain(v: int, seq: int, at: str, prev: str, digests: Iterable[str]) -> str:
    return _sha256("\n".join((str(v), str(seq), at, prev, *digests)).encode()).hexdigest()


def seal(draft: Draft, after: Head, salts: Callable[[], str]) -> bytes:
    """Return the line of a draft that follows a head; see `sealed`."""
    return sealed(draft, after, salts)[0]


def sealed(draft: Draft, after: Head, salts: Callable[[], str]) -> tuple[bytes, Commit]:
    """Append a draft to the chain.

    Args:
        draft: what happened.
        after: the head that the line follows.
        salts: returns a new secret of 32 hex digits at each call.

    Returns:
        The line, without a line break, and the commit that decoding it gives.

    Raises:
        StoreError: A value in the draft cannot be written, or cannot be read back.
        ValueError: A salt has another length.
    """
    seq = after.seq + 1
    try:
        contents = [_encode(draft.cause), *map(_encode, draft.events)]
        # A line that cannot be read back (NaN is written as null) would make the whole log unreadable.
        cause = _decode_cause(contents[0])
        events = tuple(map(_decode_event, contents[1:]))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"commit {seq} cannot be written: {error}; this value should have been refused") from error
    keys: list[str | None] = []
    digests = []
    for content in contents:
        key = salts()
        if len(key) != _SALT_LENGTH:
            # With one length, no other split into salt and content gives the same digest.
            raise ValueError(f"a salt must have {_SALT_LENGTH} hex digits, got {len(key)}")
        keys.append(key)
        digests.append(_digest(key, content))
    version = _needed_version(events)
    chained = _chain(version, seq, draft.at, after.hash, digests)
    raw = list(map(msgspec.Raw, contents))
    line = _encode(_Sealed(version, seq, draft.at, raw[0], raw[1:], keys, after.hash, chained))
    return line, Commit(seq, draft.at, cause, events, after.hash, chained)


def _needed_version(events: Iterable[Event]) -> int:
    """Return the lowest version of which a reader understands what the events do to memory.

    An older program ignores fields that it does not know, so what it must not miss needs a newer version.
    """
    # Version 4: a fact or a turn has tags, or the policy asks for a user's words. Version 3: a fact states when it
    # holds, or has ended. Version 2: a text that was taken away is marked.
    return max(map(_version_of, events), default=1)


def _version_of(event: Event) -> int:
    match event:
        case TurnRecorded():
            return 4 if event.turn.tags else 1
        case FactAdded():
            return _version_for(event.fact)
        case FactRevised():
            return max(_version_for(event.before), _version_for(event.after, event.marked_after))
        case FactRemoved():
            return max(3 if event.reason in ("ended", "expired") else 1, _version_for(event.fact, event.marked_after))
        case Redacted():
            return 1 if event.marked_after is None else 2
        case PolicyChanged():
            return 4 if event.after.evidence == "user" else 1
        case SectionEvent() | UpdateEvent() | IdsReserved() | Erased() | TurnSuperseded() | TurnRestored():
            return 1
        case _:
            assert_never(event)


def _version_for(fact: Fact, marked_after: int | None = None) -> int:
    if fact.tags or fact.attributes:
        return 4
    if fact.valid_from is not None or fact.valid_until is not None or fact.expires_at is not None:
        return 3
    return 1 if marked_after is None else 2


def head_of(line: bytes) -> Head:
    """Read a line's seq and hash, without checking either.

    Raises:
        UNREADABLE: The line is no commit.
    """
    ends = _decode_ends(line)
    return Head(ends.seq, ends.hash)


def hash_of(line: bytes) -> str:
    """Read a line's hash without checking it; "" where the line is damaged, which its reader finds out."""
    try:
        return head_of(line).hash
    except UNREADABLE:
        return ""


def prev_of(line: bytes) -> str:
    """Read the hash that a line states as its predecessor's, without checking it."""
    return _decode_ends(line).prev


def head_before(line: bytes, seq: int) -> Head:
    """Return the head that the line of commit `seq` follows, as the line states it, to unseal that line alone.

    Of a damaged line it has no hash; unsealing the line reports the damage.
    """
    try:
        return Head(seq - 1, prev_of(line))
    except UNREADABLE:
        return Head(seq - 1, "")


class Inspection(msgspec.Struct, frozen=True):
    """The fields of a line; `intact` if its recomputed hash is the one it states.

    `erased` lists the indexes of the events whose content was erased (-1: the cause).
    """

    seq: int
    at: str
    prev: str
    hash: str
    intact: bool
    erased: tuple[int, ...]


def _digests(sealed: _Sealed) -> list[str] | None:
    """Return the digests of cause and events, or None if a salt or a stub is invalid; an erased one states its own."""
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


def _intact(sealed: _Sealed, digests: Iterable[str] | None, line: bytes) -> bool:
    return (
        digests is not None
        # Line breaks separate the parts of the hashed text, so no part may hold one.
        and "\n" not in sealed.at
        and len(sealed.prev) == len(_NO_HASH)
        and sealed.hash == _chain(sealed.v, sealed.seq, sealed.at, sealed.prev, digests)
        # The hash does not cover bytes between the fields, so a line has only one valid encoding.
        and line == _encode(sealed)
    )


def inspect(line: bytes) -> Inspection:
    """Recompute a line's hash from its bytes.

    Raises:
        UNREADABLE: The line is not a commit.
    """
    sealed = _decode_sealed(line)
    digests = _digests(sealed)
    intact = _intact(sealed, digests, line)
    erased = () if digests is None else tuple(index for index, salt in enumerate(sealed.salts, -1) if salt is None)
    return Inspection(sealed.seq, sealed.at, sealed.prev, sealed.hash, intact, erased)


def erase(line: bytes, indexes: Collection[int]) -> bytes:
    """Return a line in which digests replace the contents of some events; its hash stays valid.

    Args:
        line: the line of a commit.
        indexes: the indexes of the events to erase; erased ones are skipped.

    Raises:
        UNREADABLE: The line is not a commit.
    """
    sealed = _decode_sealed(line)
    for index in indexes:
        salt = sealed.salts[index + 1]
        if salt is not None:
            digest = _digest(salt, bytes(sealed.events[index]))
            sealed.events[index] = msgspec.Raw(b'{"type":"Erased","digest":"%s"}' % digest.encode())
            sealed.salts[index + 1] = None
    return _encode(sealed)


def decode(line: bytes) -> Commit:
    """Read a line without checking its hash.

    Raises:
        UNREADABLE: The line is not a commit that this program knows.
        StoreError: The line has a newer format.
    """
    return _decode(_decode_sealed(line))


def _decode(sealed: _Sealed) -> Commit:
    if sealed.v in _AS_THEY_ARE:
        cause, events = _decode_cause(sealed.cause), tuple(map(_decode_event, sealed.events))
    else:
        cause, events = _upcast(sealed)
    return Commit(sealed.seq, sealed.at, cause, events, sealed.prev, sealed.hash)


def _upcast(sealed: _Sealed) -> tuple[Cause, tuple[Event, ...]]:
    if sealed.v > FORMAT:
        raise StoreError(
            f"the log has format {sealed.v} and this program reads formats up to {FORMAT}: use a newer backstory"
        )
    contents: Contents = {
        "cause": orjson.loads(bytes(sealed.cause)),
        "events": [orjson.loads(bytes(raw)) for raw in sealed.events],
    }
    for version in range(sealed.v, FORMAT):
        if version in _AS_THEY_ARE:
            continue
        if version not in _UPCASTS:
            raise msgspec.ValidationError(f"format {version} was never written")
        contents = _UPCASTS[version](contents)
    return (
        msgspec.convert(contents["cause"], Cause),
        msgspec.convert(contents["events"], tuple[Event, ...]),
    )


def unseal(line: bytes, after: Head, *, stream: str, byte: int) -> Commit:
    """Read a line and check its hash and its place in the chain.

    Args:
        line: the line, without a line break.
        after: the head that it must follow.
        stream: the name of the stream, for the error.
        byte: the line's offset in the stream, for the error.

    Raises:
        CorruptLogError: The line is not a commit, was altered, or does not follow `after`.
    """
    return _checked(line, after, _decode, stream=stream, byte=byte)


def check(line: bytes, after: Head, *, stream: str, byte: int) -> Head:
    """Check a line as `unseal` does, without reading its contents, and return its head.

    Raises:
        CorruptLogError: The line is not a commit, was altered, or does not follow `after`.
    """
    return _checked(line, after, _head, stream=stream, byte=byte)


def _head(sealed: _Sealed) -> Head:
    return Head(sealed.seq, sealed.hash)


def _checked(line: bytes, after: Head, read: Callable[[_Sealed], _Read], *, stream: str, byte: int) -> _Read:
    try:
        sealed = _decode_sealed(line)
        intact = _intact(sealed, _digests(sealed), line)
        problem = _misplaced(sealed.seq, sealed.prev, after) if intact else _ALTERED
        if problem is None:
            return read(sealed)
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
    """Return the problem of a line that should follow a head, as its kind and in words; None if there is none."""
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
