"""What of a damaged stream still makes an intact chain, and in which order its lines have to stand for that.

Every line names the one before it by hash, so the lines of a file make a tree; its longest branch from the first commit
on is the stream. Where a commit is there twice, once with something erased, the erased one is taken: nothing that was
erased may come back.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import msgspec

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Inspection, decode, inspect
from backstory.ledger.log.store import EventStore, Record
from backstory.projections.integrity.stream_check import Hashes

__all__ = ["Salvage", "Span", "salvage"]


class Span(msgspec.Struct, frozen=True):
    """Lines that stand side by side: from which byte to which, the last line break included."""

    begin: int
    end: int


class Salvage(msgspec.Struct, frozen=True):
    """The intact chain: where its lines stand, in its order, its first commit, and how many there are.

    `lost` counts the commits that are whole and have no place in it, `unread` the lines that are no commits. `whole`:
    the lines stand in that order, and nothing else is there.
    """

    spans: tuple[Span, ...]
    first: Commit | None
    commits: int
    lost: int
    unread: int
    whole: bool


class _Piece(msgspec.Struct, frozen=True):
    """A line that is what somebody sealed, and does not follow the whole ones before it."""

    seq: int
    prev: str
    hash: str
    span: Span
    erased: int


class _Stem:
    """The lines that follow each other as they stand in the file; 48 bytes each."""

    def __init__(self) -> None:
        self.hashes = Hashes()
        self.last = EMPTY.hash
        self._spans = array("Q")
        self._erased: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.hashes)

    def grow(self, found: Inspection, span: Span) -> bool:
        """Take in a line that follows; False where it does not."""
        if (found.seq, found.prev) != (len(self) + 1, self.last):
            return False
        self.hashes.add(found.seq, found.hash)
        self.last = found.hash
        self._spans.extend((span.begin, span.end))
        if found.erased:
            self._erased[found.seq] = len(found.erased)
        return True

    def span(self, seq: int) -> Span:
        return Span(self._spans[2 * seq - 2], self._spans[2 * seq - 1])

    def erased(self, seq: int) -> int:
        return self._erased.get(seq, 0)

    def has(self, seq: int, digest: str) -> bool:
        return digest == (EMPTY.hash if seq == 0 else self.hashes.get(seq))


def salvage(store: EventStore, stream: str) -> Salvage:
    """Find the longest intact chain in a stream; lines out of their place take about 400 bytes each meanwhile.

    Raises:
        StoreError: the stream cannot be read, or is in a newer format.
    """
    stem = _Stem()
    loose: list[_Piece] = []
    unread = 0
    for record in store.read(stream):
        span = Span(record.byte, record.byte + len(record.line) + 1)
        found = _sound(record)
        if found is None:
            unread += 1
        elif not stem.grow(found, span):
            loose.append(_Piece(found.seq, found.prev, found.hash, span, len(found.erased)))
    branch = _longest(stem, loose)
    left = branch[0].seq - 1 if branch else len(stem)
    spans = _joined([*_stem_spans(stem, left, loose), *(piece.span for piece in branch)])
    kept = left + len(branch)
    there = len(stem) + len({piece.hash for piece in loose if not stem.has(piece.seq, piece.hash)})
    first = _at(store, stream, spans[0].begin) if spans else None
    return Salvage(spans, first, kept, there - kept, unread, whole=not loose and not unread)


def _sound(record: Record) -> Inspection | None:
    """Inspect a line; None where it is not what somebody sealed, or nothing that we understand."""
    try:
        found = inspect(record.line)
        decode(record.line)
    except UNREADABLE:
        return None
    return found if found.intact else None


def _longest(stem: _Stem, loose: Iterable[_Piece]) -> list[_Piece]:
    """Return the lines beside the stem that, from where they leave it, lead further than the stem; [] for none."""
    joined: dict[str, _Piece] = {}
    best: _Piece | None = None
    for piece in sorted(loose, key=lambda piece: piece.seq):
        before = joined.get(piece.prev)
        follows = stem.has(piece.seq - 1, piece.prev) or (before is not None and before.seq == piece.seq - 1)
        if not follows or stem.has(piece.seq, piece.hash):
            continue
        known = joined.get(piece.hash)
        if known is None or piece.erased > known.erased:
            joined[piece.hash] = piece
            if piece.seq > (best.seq if best is not None else len(stem)) or (known is not None and known is best):
                best = piece
    branch = []
    while best is not None:
        branch.append(best)
        best = None if stem.has(best.seq - 1, best.prev) else joined[best.prev]
    return branch[::-1]


def _stem_spans(stem: _Stem, count: int, loose: Iterable[_Piece]) -> Iterator[Span]:
    """Yield where the stem's first lines stand: where more of one was erased further down, there."""
    barer: dict[int, _Piece] = {}
    for piece in loose:
        if stem.has(piece.seq, piece.hash):
            least = barer[piece.seq].erased if piece.seq in barer else stem.erased(piece.seq)
            if piece.erased > least:
                barer[piece.seq] = piece
    for seq in range(1, count + 1):
        yield barer[seq].span if seq in barer else stem.span(seq)


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Put spans together that touch."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].end == span.begin:
            joined[-1] = Span(joined[-1].begin, span.end)
        else:
            joined.append(span)
    return tuple(joined)


def _at(store: EventStore, stream: str, byte: int) -> Commit | None:
    return next((decode(record.line) for record in store.read(stream) if record.byte == byte), None)
