"""Lines for tests of an engine: sealed as a writer does, or made by hand as docs/reference/log-format.md says."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, head_of, seal
from backstory.ledger.core.events import Event, Turn, TurnRange, TurnRecorded
from backstory.ledger.engines.port import EventStore

__all__ = ["as_file", "chain", "endless_chain", "erase", "fill", "offsets", "sealed", "turn"]

AT = "2026-03-01T12:00:00.000000Z"
"""When every line was written."""


def _counting_salts() -> Callable[[], str]:
    """Return salts that count: 32 hexadecimal digits, the same in every run."""
    count = itertools.count(1)
    return lambda: f"{next(count):032x}"


def turn(text: str, n: int = 1) -> TurnRecorded:
    """Return an event: a user said a text."""
    return TurnRecorded(Turn(n=n, id=f"t{n}", role="user", content=text, at=AT))


def sealed(*events: Event, after: Head = EMPTY, cause: Cause | None = None, at: str = AT) -> bytes:
    """Return one line that follows a head."""
    return seal(Draft(at, cause or Cause(kind="record", thread="t"), events), after, _counting_salts())


def chain(count: int, *, after: Head = EMPTY, text: str = "said") -> list[bytes]:
    """Return this number of lines, each after the one before."""
    return list(itertools.islice(endless_chain(after, text), count))


def endless_chain(after: Head = EMPTY, text: str = "said") -> Iterator[bytes]:
    """Yield lines without end, each after the one before."""
    salts = _counting_salts()
    while True:
        n = after.seq + 1
        cause = Cause(kind="record", thread="t", turns=TurnRange(n, n))
        line = seal(Draft(AT, cause, (turn(f"{text} {n} 说", n),)), after, salts)
        after = head_of(line)
        yield line


def fill(store: EventStore, stream: str, lines: Iterable[bytes]) -> None:
    """Append lines to a stream, one by one."""
    for line in lines:
        store.append(stream, [line], head_of(line).seq - 1)


def as_file(lines: Iterable[bytes]) -> bytes:
    """Return the lines as the JSONL engine stores them, with a line break each."""
    return b"".join(line + b"\n" for line in lines)


def offsets(lines: Sequence[bytes]) -> list[int]:
    """Return where each line begins, and where the last one ends, in bytes."""
    return [0, *itertools.accumulate(len(line) + 1 for line in lines)]


# By hand.


def digest(salt: str, content: bytes) -> str:
    """Return the digest of a content."""
    return hashlib.sha256(salt.encode() + content).hexdigest()


def chain_hash(v: int, seq: int, at: str, prev: str, digests: Iterable[str]) -> str:
    """Return the hash of a commit."""
    return hashlib.sha256("\n".join([str(v), str(seq), at, prev, *digests]).encode()).hexdigest()


def by_hand(
    contents: Sequence[bytes],
    *,
    v: int = 1,
    after: Head = EMPTY,
    at: str = AT,
    salts: Sequence[str | None] | None = None,
    digests: Sequence[str] | None = None,
    seq: int | None = None,
) -> bytes:
    """Write a line from its contents, the cause first; salts and digests are stated where they are not to be right."""
    keys = [f"{n:032x}" for n in range(1, len(contents) + 1)] if salts is None else list(salts)
    if digests is None:
        digests = [digest(key or "", content) for key, content in zip(keys, contents, strict=True)]
    number = after.seq + 1 if seq is None else seq
    parts = [
        b'{"v":%d,"seq":%d,"at":%s,"cause":' % (v, number, json.dumps(at, ensure_ascii=False).encode()),
        contents[0],
        b',"events":[' + b",".join(contents[1:]) + b"]",
        b',"salts":' + json.dumps(keys, separators=(",", ":")).encode(),
        b',"prev":"' + after.hash.encode() + b'"',
        b',"hash":"' + chain_hash(v, number, at, after.hash, digests).encode() + b'"}',
    ]
    return b"".join(parts)


def slots(line: bytes) -> tuple[list[bytes], list[str | None], dict[str, object]]:
    """Take a line apart: the bytes of cause and events, the salts, and the rest of the envelope."""
    text = line.decode()
    decoder = json.JSONDecoder()
    envelope: dict[str, object] = json.loads(text)
    contents: list[bytes] = []
    place = text.index('"cause":') + len('"cause":')
    _, end = decoder.raw_decode(text, place)
    contents.append(text[place:end].encode())
    place = end + len(',"events":[')
    while text[place] != "]":
        _, end = decoder.raw_decode(text, place)
        contents.append(text[place:end].encode())
        place = end + 1 if text[end] == "," else end
    keys = envelope["salts"]
    assert isinstance(keys, list)
    return contents, keys, envelope


def erase(line: bytes, index: int, *, stub: bytes | None = None) -> bytes:
    """Put a stub where an event stood (-1: the cause), with its digest, and drop its salt; all else stays."""
    contents, keys, envelope = slots(line)
    salt = keys[index + 1]
    assert salt is not None
    told = digest(salt, contents[index + 1])
    name = b'"kind":"erased"' if index < 0 else b'"type":"Erased"'
    contents[index + 1] = stub if stub is not None else b'{%s,"digest":"%s"}' % (name, told.encode())
    keys[index + 1] = None
    digests = [digest(k, c) if k else "" for k, c in zip(keys, contents, strict=True)]
    written = by_hand(
        contents,
        v=int(str(envelope["v"])),
        after=Head(int(str(envelope["seq"])) - 1, str(envelope["prev"])),
        at=str(envelope["at"]),
        salts=keys,
        digests=digests,
    )
    return written[: -len('"}') - 64] + str(envelope["hash"]).encode() + b'"}'
