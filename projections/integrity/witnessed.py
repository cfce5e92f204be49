"""Witnessed heads: what was put down of the heads of two streams outside of the log, and whether the log has them.

A witness is told heads while they are new. Recomputing the chain of a log, or cutting its end off, changes what the log
says and not what the witness was told. A witness file has one JSON object a line:

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
from backstory.projections.integrity.stream_check import Hashes, Problem, StreamCheck

__all__ = ["NOTE", "WITNESS", "Heads", "WitnessFile", "WitnessLine", "Witnessed", "judge"]

WITNESS = "witness"
"""What a problem of the witness itself names as its stream."""
NOTE = "note"
"""What a problem of a signed note itself names as its stream."""

_HASH_BYTES = 32
_MOST_TOLD = 100
_MOST_SEQ = 2**63 - 1


class WitnessLine(msgspec.Struct, frozen=True):
    """One line of a witness: the heads of a scope's streams at a time.

    `stream` is the ledger's, and `seq` and `hash` are its head; `transcript` is the head of the other stream, or null
    where nothing was recorded there. `at` is when the line was made.
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
        """Make the line of a scope's heads."""
        said = transcript if transcript.seq else None
        return cls(1, scope.user, scope.agent, scope.stream(LEDGER), ledger.seq, ledger.hash, said, at)


class Heads:
    """Heads and where each was put down, side by side, for there may be a million."""

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
        """Keep a head and the line it stands in; False where it cannot be one."""
        try:
            raw = bytes.fromhex(head.hash)
        except ValueError:
            return False
        if len(raw) != _HASH_BYTES or not 0 <= head.seq <= _MOST_SEQ:
            return False
        self._seqs.append(head.seq)
        self._places.append(place)
        self._hashes += raw
        return True


class Witnessed(msgspec.Struct, frozen=True):
    """What a witness has of one scope.

    `where` names the witness. `problems` say what of it cannot be read, `notes` what is worth knowing and no fault.
    """

    where: str
    ledger: Heads
    transcript: Heads
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge(heads: Heads, where: str, check: StreamCheck) -> list[Problem]:
    """Return a problem for each head that a stream does not have; of very many the first ones."""
    missing = [(head, place) for head, place in heads if not _has(check.hashes, head)]
    problems = [
        Problem("head_not_found", check.stream, 0, 0, _told(head, place, where, check))
        for head, place in missing[:_MOST_TOLD]
    ]
    if len(missing) > _MOST_TOLD:
        more = f"{problems[-1].message}; {len(missing) - _MOST_TOLD} more witnessed commits are not there"
        problems[-1] = msgspec.structs.replace(problems[-1], message=more)
    return problems


def _has(hashes: Hashes, head: Head) -> bool:
    return head == EMPTY if head.seq == 0 else hashes.get(head.seq) == head.hash


def _told(head: Head, place: int, where: str, check: StreamCheck) -> str:
    line = f", line {place}" if place else ""
    if head.seq > check.head.seq:
        what = f"the log ends at commit {check.head.seq}: its tail was cut off, or it is another log"
    else:
        what = "the log has another commit there: it was written anew, or it is another log"
    return f"commit {head.seq} with hash {head.hash} was witnessed ({where}{line}), and {what}"


class _Parsed(msgspec.Struct):
    """What a whole file says."""

    scopes: dict[Scope, tuple[Heads, Heads]]
    problems: list[str]
    notes: list[str]


_line = msgspec.json.Decoder(WitnessLine)


class WitnessFile:
    """A witness that is a file; it is read whole, and again where it has changed since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._parsed = _Parsed({}, [], [])

    def read(self, scope: Scope, sent: Head | None) -> Witnessed:
        """Return what it has of a scope; `sent` is the last head of its ledger that it was given, if any was."""
        try:
            self._refresh()
        except FileNotFoundError:
            missing = f"{self.path} is not there"
            if sent is None:
                return Witnessed(str(self.path), Heads(), Heads(), (), (f"{missing}: nothing was witnessed yet",))
            lost = f"{missing}, and it was given commit {sent.seq}: it was lost, or its disk is not mounted"
            return Witnessed(str(self.path), Heads(), Heads(), (lost,))
        except OSError as error:
            told = f"{self.path} cannot be read: {error.strerror or error}"
            return Witnessed(str(self.path), Heads(), Heads(), (told,))
        ledger, transcript = self._parsed.scopes.get(scope, (Heads(), Heads()))
        problems = list(self._parsed.problems)
        if sent is not None and sent not in ledger:
            problems.append(f"{self.path} was given commit {sent.seq} and does not have it: lines of it were lost")
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
            # It was being written when the disk was full or the machine went down.
            if not data.endswith(b"\n") or "truncated" in str(error):
                _add(parsed.notes, f"line {number} of {self.path} was cut short while it was written")
            else:
                _add(parsed.problems, f"line {number} of {self.path} is not a line of a witness")
            return
        ledger, transcript = parsed.scopes.setdefault(Scope(line.user, line.agent), (Heads(), Heads()))
        kept = line.v == 1 and ledger.add(Head(line.seq, line.hash), number)
        if kept and line.transcript is not None:
            kept = transcript.add(line.transcript, number)
        if not kept:
            _add(parsed.problems, f"line {number} of {self.path} names no head that this program can read")


def _add(told: list[str], text: str) -> None:
    if len(told) < _MOST_TOLD:
        told.append(text)
    elif len(told) == _MOST_TOLD:
        told.append(f"{text}, and so may be lines after it")
