"""Likeness of texts, by their words and, where an embedding model is at hand, by their meaning."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from backstory.ledger.text.content_words import shared_words
from backstory.projections.search.vectors.embedder import Embedder, passages_by, query_by

if TYPE_CHECKING:
    from backstory.projections.search.vectors.embedder import Floats

_SHARE = 0.6
"""A text is like another that has this share of its content words, as `said_again_share` counts them."""
_COSINE = 0.83
"""Or if the cosine of their meanings is at least this.

Of 504 pairs of a question and a fact, 21 of which belong together, the packaged model gives it to 11 of these and to
11 others. With 0.8 it would be 17 and 50.
"""


class Likeness:
    """Says whether a text is like another.

    Args:
        embedder: The embedding model; without one words alone are compared.
    """

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self._asked = lru_cache(256)(self._query)
        self._kept = lru_cache(65_536)(self._passage)

    @property
    def name(self) -> str | None:
        """The embedding model; None where words alone are compared."""
        return None if self._embedder is None else self._embedder.name

    def alike(self, wanted: str, text: str) -> bool:
        """Whether a text is like the wanted one.

        Raises:
            ModelError: The embedding model gave no usable answer.
        """
        words, meaning = self.scores(wanted, text)
        return words >= _SHARE or meaning >= _COSINE

    def scores(self, wanted: str, text: str) -> tuple[float, float]:
        """Return how like a text is, each 0 to 1: in words and, where the words are not enough, in meaning.

        Raises:
            ModelError: The embedding model gave no usable answer.
        """
        words = shared_words(wanted, text)
        if self._embedder is None or words >= _SHARE:
            return words, 0.0
        return words, float(self._asked(wanted) @ self._kept(text))

    def _query(self, text: str) -> Floats:
        if self._embedder is None:
            raise TypeError("there is no embedding model")
        return query_by(self._embedder, text)

    def _passage(self, text: str) -> Floats:
        if self._embedder is None:
            raise TypeError("there is no embedding model")
        vector: Floats = passages_by(self._embedder, [text])[0]
        return vector
