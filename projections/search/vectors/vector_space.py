"""Vectors of one space in memory, searched for the nearest to a query.

They lie in a flat FAISS index as half-precision floats: half the size of single precision, and faster to scan. Scores
are exact cosines to those. Rows are numbered without gaps: the last row moves into the place of a removed one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, KeysView
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, TypeAlias

import faiss
import numpy as np
from numpy.typing import NDArray

from backstory.projections.search.lexical.lazy_filter import LazyFilter
from backstory.projections.search.vectors.embedder import Floats

_CHUNK = 4096
_FEW = 8
"""Up to one key in this many is looked up; for more than that, all rows are tested."""

_AHEAD = 8
"""At least this many times the rows asked for are tested, before all keys that are allowed are gathered."""

_HALF = 2

_library: Any = faiss
"""Its Python side takes more than its signatures say."""

Ident: TypeAlias = tuple[str, bytes]
"""A key, and the digest of a text that was embedded for it."""

NearKey: TypeAlias = tuple[str, float]
"""A key, and its cosine to the query."""


class VectorSpace:
    """Vectors by what they were made of; one thread at a time."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._bytes = _HALF * dimensions
        self._index = faiss.IndexScalarQuantizer(dimensions, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
        self._idents: list[Ident] = []
        self._rows: dict[Ident, int] = {}
        self._digests: dict[str, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self._idents)

    def __contains__(self, ident: object) -> bool:
        return ident in self._rows

    def knows(self, key: str) -> bool:
        """Whether anything was embedded for a key."""
        return key in self._digests

    def count(self) -> int:
        """Return for how many keys something was embedded."""
        return len(self._digests)

    def idents(self) -> KeysView[Ident]:
        """All that was embedded."""
        return self._rows.keys()

    def data(self, ident: Ident) -> bytes:
        """Return a vector as it is kept."""
        return bytes(self._codes()[self._rows[ident]])

    # Changing.

    def put(self, rows: list[tuple[Ident, bytes]]) -> None:
        """Add vectors; what is there already stays as it is."""
        fresh = {ident: data for ident, data in rows if ident not in self._rows}
        codes = list(fresh.values())
        with _one_thread():
            for start in range(0, len(codes), _CHUNK):
                chunk = codes[start : start + _CHUNK]
                self._index.add_sa_codes(np.frombuffer(b"".join(chunk), np.uint8).reshape(len(chunk), -1))
        for ident in fresh:
            self._rows[ident] = len(self._idents)
            self._idents.append(ident)
            self._digests.setdefault(ident[0], []).append(ident[1])

    def drop(self, idents: Collection[Ident]) -> None:
        """Take vectors away."""
        codes = self._codes()
        for ident in idents:
            row = self._rows.pop(ident, None)
            if row is None:
                continue
            last = self._idents.pop()
            end = len(self._idents)
            if row != end:
                codes[row] = codes[end]
                self._idents[row] = last
                self._rows[last] = row
            codes[end] = 0
            left = self._digests[ident[0]]
            left.remove(ident[1])
            if not left:
                del self._digests[ident[0]]
        self._index.codes.resize(len(self._idents) * self._bytes)
        self._index.ntotal = len(self._idents)

    def _codes(self) -> NDArray[np.uint8]:
        """The vectors where they lie; good until one is added."""
        if not self._idents:
            return np.zeros((0, self._bytes), np.uint8)
        flat = faiss.rev_swig_ptr(self._index.codes.data(), len(self._idents) * self._bytes)
        codes: NDArray[np.uint8] = flat.reshape(len(self._idents), self._bytes)
        return codes

    # Asking.

    def nearest(self, query: Floats, k: int, keep: Collection[str] | None = None) -> list[NearKey]:
        """Return the keys whose vectors are nearest, the best first, of equal ones the lesser key; `keep` allows some.

        A key for which several texts were embedded counts with the nearest of them.
        """
        if k < 1 or not self._idents:
            return []
        if isinstance(keep, LazyFilter) and keep.gathered is None and keep.most**2 > k * len(self):
            # Of what is nearest enough is allowed, mostly: to look that up costs less than to gather all that is.
            ahead = max(_AHEAD * k, 2 * k * len(self) // keep.most)
            ranked, is_all = self._ranked(query, k, ahead, None, keep)
            if len(ranked) == k or is_all:
                return ranked
        allowed = None if keep is None else self._rows_of(keep.all() if isinstance(keep, LazyFilter) else keep)
        if allowed is not None and not allowed.any():
            return []
        asked, is_all = k, False
        while not is_all:
            ranked, is_all = self._ranked(query, k, asked, allowed)
            if len(ranked) == k:
                break
            asked = max(2 * asked, 16)
        return ranked

    def _ranked(
        self, query: Floats, k: int, asked: int, rows: NDArray[np.bool_] | None, keep: Collection[str] | None = None
    ) -> tuple[list[NearKey], bool]:
        """Return the nearest keys of `keep`, `k` at most, among the `asked` nearest rows, and whether these were all.

        They are fewer where more rows would have to be asked for to be sure of them.
        """
        # One more than asked for shows whether the cut goes through equal ones.
        found = self._search(query, min(asked + 1, len(self)), rows)
        is_all = len(found) <= asked
        least = -math.inf if is_all else found[-1][1]
        best: dict[str, float] = {}
        for row, score in found:
            if score <= least:
                break
            key = self._idents[row][0]
            if (keep is None or key in keep) and best.setdefault(key, score) == score and len(best) == k:
                # What is as near as the last one may come before it.
                least = math.nextafter(score, -math.inf)
        return sorted(best.items(), key=lambda near: (-near[1], near[0]))[:k], is_all

    def _rows_of(self, keys: Collection[str]) -> NDArray[np.bool_]:
        """Return a mask of the rows that belong to these keys."""
        if len(keys) > len(self._digests) // _FEW:
            return np.fromiter(map(keys.__contains__, map(itemgetter(0), self._idents)), bool, len(self))
        mask: NDArray[np.bool_] = np.zeros(len(self), bool)
        mask[[self._rows[key, digest] for key in keys for digest in self._digests.get(key, ())]] = True
        return mask

    def _search(self, query: Floats, k: int, allowed: NDArray[np.bool_] | None) -> list[tuple[int, float]]:
        """Return rows and cosines, the nearest first; those that differ by no more than rounding are equal."""
        params = None
        if allowed is not None:
            bits = np.packbits(allowed, bitorder="little")
            params = _library.SearchParameters(sel=_library.IDSelectorBitmap(bits))
        with _one_thread():
            scores, rows = self._index.search(query[None], k, params=params)
        return [
            (row, round(score, 6)) for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True) if row >= 0
        ]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep FAISS to the thread that calls: others would not be there after a fork, and would be waited for forever."""
    before = _library.omp_get_max_threads()
    _library.omp_set_num_threads(1)
    try:
        yield
    finally:
        _library.omp_set_num_threads(before)
