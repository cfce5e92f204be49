"""Salvage: finds the intact chain in a damaged stream, and the order of its lines.

Each line names its predecessor by hash, so the lines of a file form a tree. Its longest branch from the first commit is
the stream. Of two copies of a commit the one with more erased content is kept, so that nothing erased is restored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import msgspec

from backstory.ledger.core.commit import EMPTY, UNREADABLE, Commit, Inspection, decode, inspect
from backstory.ledger.engines.port import EventStore, Record
from backstory.projections.integrity.stream_check import Hashes


class Span(msgspec.Struct, frozen=True):
    """Adjacent lines: their half-open byte range, the last line break included."""

    begin: int
    end: int


class Salvage(msgspec.Struct, frozen=True):
    """The intact chain of a stream.

    Attributes:
        spans: the byte ranges of its lines, in the order of the chain.
        first: its first commit.
        commits: the number of its commits.
        lost: the intact commits that are not part of it.
        unread: the lines that are not commits.
        whole: whether the file holds this chain, in this order, and nothing else.
    """

    spans: tuple[Span, ...]
    first: Commit | None
    commits: int
    lost: int
    unread: int
    whole: bool


class _Piece(msgspec.Struct, frozen=True):
    """An intact line that does not follow the intact lines before it."""

    seq: int
    prev: str
    hash: str
    span: Span
    erased: int


class _Stem:
    """The lines that form a chain in the order of the file; takes 48 bytes per line."""

    def __init__(self) -> None:
        self.hashes = Hashes()
        self.last = EMPTY.hash
        self._spans = array("Q")
        self._erased: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.hashes)

    def grow(self, found: Inspection, span: Span) -> bool:
        """Add a line, if it follows the last one, and return whether it does."""
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
    """Find the longest intact chain in a stream; takes about 400 bytes of memory per line out of order.

    Raises:
        StoreError: the stream cannot be read, or has a newer format.
    """
    stem = _Stem()
    loose: list[_Piece] = []
    unread = 0
    for record in store.read(stream):
        span = Span(record.byte, record.byte + len(record.line) + 1)
        found = _inspected(record)
        if found is None:
            unread += 1
        elif not stem.grow(found, span):
            loose.append(_Piece(found.seq, found.prev, found.hash, span, len(found.erased)))
    branch = _longest(stem, loose)
    left = branch[0].seq - 1 if branch else len(stem)
    spans = _joined([*_stem_spans(stem, left, loose), *(piece.span for piece in branch)])
    kept = left + len(branch)
    found_commits = len(stem) + len({piece.hash for piece in loose if not stem.has(piece.seq, piece.hash)})
    lines = (record.line for record in store.read(stream) if spans and record.byte == spans[0].begin)
    first = next(map(decode, lines), None)
    return Salvage(spans, first, kept, found_commits - kept, unread, whole=not loose and not unread)


def _inspected(record: Record) -> Inspection | None:
    """Inspect a line; None where its hash is wrong or it cannot be decoded."""
    try:
        found = inspect(record.line)
        decode(record.line)
    except UNREADABLE:
        return None
    return found if found.intact else None


def _longest(stem: _Stem, loose: Iterable[_Piece]) -> list[_Piece]:
    """Return the branch that leaves the stem and leads further than the stem, or an empty list."""
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
    """Yield the spans of the stem's first lines; a later copy with more erased content replaces a line."""
    more_erased: dict[int, _Piece] = {}
    for piece in loose:
        if stem.has(piece.seq, piece.hash):
            least = more_erased[piece.seq].erased if piece.seq in more_erased else stem.erased(piece.seq)
            if piece.erased > least:
                more_erased[piece.seq] = piece
    for seq in range(1, count + 1):
        yield more_erased[seq].span if seq in more_erased else stem.span(seq)


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Join adjacent spans."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].end == span.begin:
            joined[-1] = Span(joined[-1].begin, span.end)
        else:
            joined.append(span)
    return tuple(joined)
