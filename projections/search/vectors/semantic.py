"""Semantic search of one scope: the nearest entries, how many are embedded, and why none where that failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import msgspec

from backstory.ledger.core.errors import ModelError, UnavailableError
from backstory.projections.search.lexical.entry import Scored
from backstory.projections.search.lexical.tokenizer import words_of
from backstory.projections.search.vectors.scope_vectors import Vectors

_log = logging.getLogger(__name__)

_MORE = 4


def _all(key: str) -> bool:  # noqa: ARG001 nothing is known of any key
    return True


class Near(msgspec.Struct, frozen=True):
    """What is near a query, the best first, and how far meaning is known; see `Found`.

    `missing` says of a key whether it is not embedded yet.
    """

    ranked: list[Scored] = []
    missing: Callable[[str], bool] = _all
    model: str | None = None
    embedded: int = 0
    trouble: str | None = None


class SemanticSearch:
    """What is known of meanings in one scope; safe for threads.

    `wanted` is called whenever that may be behind; None where nothing embeds in the background.
    """

    def __init__(self, vectors: Vectors, wanted: Callable[[], None] | None) -> None:
        self.vectors = vectors
        self._wanted = wanted
        self._warned = False

    def near(
        self,
        query: str,
        within: str,
        depth: int,
        *,
        standing: Collection[str] | None = None,
        keep: Collection[str] | None = None,
    ) -> Near:
        """Rank what stands by its meaning, as far as that is known; None: all that is known.

        Where the query cannot be read the answer says so, and is empty. A query without a word is near nothing: a model
        would find something near it all the same.
        """
        if self._wanted is not None:
            self._wanted()
        model, embedded = self.vectors.embedder.name, 0
        try:
            embedded = self.vectors.count(within)
            ranked = self._nearest(query, within, depth, standing, keep) if embedded and words_of(query) else []
        except (ModelError, UnavailableError) as error:
            # Logged as a warning once: a host may search all the time.
            _log.log(logging.DEBUG if self._warned else logging.WARNING, "search goes on by words alone: %s", error)
            self._warned = True
            return Near(model=model, embedded=embedded, trouble=str(error))
        self._warned = False
        return Near(ranked, lambda key: not self.vectors.has(within, key), model, embedded)

    def _nearest(
        self, query: str, within: str, depth: int, standing: Collection[str] | None, keep: Collection[str] | None
    ) -> list[Scored]:
        """What is known of meanings may lag: what does not stand any more must not take the place of what does."""
        asked = depth
        while True:
            ranked = self.vectors.nearest(within, query, asked, keep)
            found = [scored for scored in ranked if standing is None or scored.key in standing]
            if len(found) >= depth or len(ranked) < asked:
                return found[:depth]
            asked *= _MORE
