"""Witnessed heads: heads of the streams that were stored outside of the log, and their check against the log.

A witness receives heads while they are new. Recomputing the chain of a log, or cutting off its end, does not change
what the witness has. A witness file has one JSON object per line:

    {"v":1,"user":"ada","agent":null,"stream":"users/ada/ledger","seq":7,"hash":"…","transcript":{"seq":12,"hash":"…"},"at":"…"}
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.scope import LEDGER, Scope
from backstory.projections.integrity.stream_check import Problem, StreamCheck

WITNESS = "witness"
"""The stream that a problem of the witness names."""
NOTE = "note"
"""The stream that a problem of a signed note names."""

_HASH_BYTES = 32
_MOST_REPORTED = 100
MOST_SEQ = 2**63 - 1


class WitnessLine(msgspec.Struct, frozen=True):
    """One line of a witness: the heads of a scope's streams.

    Attributes:
        v: the version of the format.
        user: the scope's user.
        agent: the scope's agent.
        stream: the name of the ledger.
        seq: the seq of its head.
        hash: the hash of its head.
        transcript: the head of the transcript, or null where nothing was recorded.
        at: when the line was made.
    """

    v: int
    user: str | None
    agent: str | None
    stream: str
    seq: int
    hash: str
    transcript: Head | None
    at: str

    @classmethod
    def of(cls, scope: Scope, ledger: Head, transcript: Head, at: str) -> WitnessLine:
        """Return the line of a scope's heads."""
        head = transcript if transcript.seq else None
        return cls(1, scope.user, scope.agent, scope.stream(LEDGER), ledger.seq, ledger.hash, head, at)


class Heads:
    """Heads and their line numbers, in compact arrays."""

    def __init__(self) -> None:
        self._seqs = array("Q")
        self._places = array("Q")
        self._hashes = bytearray()

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[tuple[Head, int]]:
        for n, (seq, place) in enumerate(zip(self._seqs, self._places, strict=True)):
            yield Head(seq, self._hashes[_HASH_BYTES * n : _HASH_BYTES * (n + 1)].hex()), place

    def __contains__(self, head: object) -> bool:
        if not isinstance(head, Head):
            return False
        raw = bytes.fromhex(head.hash)
        return any(
            seq == head.seq and self._hashes[_HASH_BYTES * n : _HASH_BYTES * (n + 1)] == raw
            for n, seq in enumerate(self._seqs)
        )

    def add(self, head: Head, place: int = 0) -> bool:
        """Add a head with its line number; return False where it is not valid."""
        try:
            raw = bytes.fromhex(head.hash)
        except ValueError:
            return False
        if len(raw) != _HASH_BYTES or not 0 <= head.seq <= MOST_SEQ:
            return False
        self._seqs.append(head.seq)
        self._places.append(place)
        self._hashes += raw
        return True


class Witnessed(msgspec.Struct, frozen=True):
    """The heads that a witness has of one scope.

    Attributes:
        where: the name of the witness.
        ledger: the heads of the ledger.
        transcript: the heads of the transcript.
        problems: lines or files that cannot be read.
        notes: information that is not a fault.
    """

    where: str
    ledger: Heads = msgspec.field(default_factory=Heads)
    transcript: Heads = msgspec.field(default_factory=Heads)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge(heads: Heads, where: str, check: StreamCheck) -> list[Problem]:
    """Return a problem for each head that a stream does not have, for at most a hundred of them."""
    hashes = check.hashes
    missing = [(head, n) for head, n in heads if head != EMPTY and (not head.seq or hashes.get(head.seq) != head.hash)]
    problems = [
        Problem("head_not_found", check.stream, 0, 0, _missing(head, place, where, check))
        for head, place in missing[:_MOST_REPORTED]
    ]
    if len(missing) > _MOST_REPORTED:
        more = f"{problems[-1].message}; {len(missing) - _MOST_REPORTED} more witnessed commits are missing"
        problems[-1] = msgspec.structs.replace(problems[-1], message=more)
    return problems


def _missing(head: Head, place: int, where: str, check: StreamCheck) -> str:
    line = f", line {place}" if place else ""
    if head.seq > check.head.seq:
        what = f"the log ends at commit {check.head.seq}: its end was cut off, or it is another log"
    else:
        what = "the log has another commit there: it was rewritten, or it is another log"
    return f"commit {head.seq} with hash {head.hash} was witnessed ({where}{line}), and {what}"


class _Parsed(msgspec.Struct):
    """The contents of a witness file."""

    scopes: dict[Scope, tuple[Heads, Heads]]
    problems: list[str]
    notes: list[str]


_line = msgspec.json.Decoder(WitnessLine)


class WitnessFile:
    """A witness file; read as a whole, and again after a change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._parsed = _Parsed({}, [], [])

    def read(self, scope: Scope, sent: Head | None) -> Witnessed:
        """Return the heads of a scope; `sent` is the last head of its ledger that was sent to the file, if any."""
        try:
            self._refresh()
        except FileNotFoundError:
            missing = f"{self.path} does not exist"
            if sent is None:
                return Witnessed(str(self.path), notes=(f"{missing}: nothing was witnessed yet",))
            lost = f"{missing}, but commit {sent.seq} was sent to it: it was lost, or its disk is not mounted"
            return Witnessed(str(self.path), problems=(lost,))
        except OSError as error:
            return Witnessed(str(self.path), problems=(f"{self.path} cannot be read: {error.strerror or error}",))
        ledger, transcript = self._parsed.scopes.get(scope, (Heads(), Heads()))
        problems = list(self._parsed.problems)
        if sent is not None and sent not in ledger:
            problems.append(f"commit {sent.seq} was sent to {self.path}, which does not have it: lines were lost")
        return Witnessed(str(self.path), ledger, transcript, tuple(problems), tuple(self._parsed.notes))

    def _refresh(self) -> None:
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if seen == self._seen:
                return
            parsed = _Parsed({}, [], [])
            for number, data in enumerate(file, 1):
                self._take(parsed, number, data)
        self._seen, self._parsed = seen, parsed

    def _take(self, parsed: _Parsed, number: int, data: bytes) -> None:
        if not data.strip():
            return
        try:
            line = _line.decode(data.removesuffix(b"\n"))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            # A full disk or a power failure cuts a line short.
            if not data.endswith(b"\n") or "truncated" in str(error):
                _add(parsed.notes, f"line {number} of {self.path} was cut short while it was written")
            else:
                _add(parsed.problems, f"line {number} of {self.path} is not a witness line")
            return
        ledger, transcript = parsed.scopes.setdefault(Scope(line.user, line.agent), (Heads(), Heads()))
        kept = line.v == 1 and ledger.add(Head(line.seq, line.hash), number)
        if kept and line.transcript is not None:
            kept = transcript.add(line.transcript, number)
        if not kept:
            _add(parsed.problems, f"line {number} of {self.path} has no head that this version can read")


def _add(texts: list[str], text: str) -> None:
    if len(texts) < _MOST_REPORTED:
        texts.append(text)
    elif len(texts) == _MOST_REPORTED:
        texts.append(f"{text}, and perhaps later lines, too")
