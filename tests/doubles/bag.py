"""A stand-in for an embedding model: texts are alike as far as they share words; the same in every run."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from backstory.projections.search.vectors.embedder import Floats, Passage


class BagOfWords:
    """Each word has a direction of its own. `read` lists the texts, in order, and `given` the seconds for each
    batch; `before` is called before it.
    """

    def __init__(self, name: str = "bag", dimensions: int = 64, *, local: bool = True) -> None:
        self.name = name
        self.local = local
        self.dimensions = dimensions
        self.read: list[str] = []
        self.given: list[float | None] = []
        self.queries: list[str] = []
        self.before: Callable[[Sequence[str]], None] = lambda texts: None
        self._lock = threading.Lock()

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Floats:
        self.before(texts)
        with self._lock:
            self.read += texts
            self.given.append(timeout)
        return np.stack([self._vector(text) for text in texts])

    def query(self, text: str) -> Floats:
        with self._lock:
            self.queries.append(text)
        return self._vector(text)

    def _vector(self, text: str) -> Floats:
        total = np.zeros(self.dimensions, np.float32)
        for word in text.lower().split():
            chance = np.random.default_rng(zlib.crc32(word.encode(errors="surrogatepass")))
            total += chance.standard_normal(self.dimensions).astype(np.float32)
        length = float(np.linalg.norm(total))
        return total / np.float32(length) if length else total


def passage(key: str, text: str) -> Passage:
    return Passage(key, text, blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest())


def passages(**texts: str) -> list[Passage]:
    return [passage(key, text) for key, text in texts.items()]
