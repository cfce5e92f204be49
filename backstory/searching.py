"""Searching: facts and turns found again by their words and, where a model for that is at hand, by what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from backstory.scoped import Scoped
from projections.search.found import Found
from projections.search.searches import Embedded

__all__ = ["Searching"]

Within = Literal["facts", "turns"]


class Searching(Scoped):
    """The part of a handle that finds."""

    def search(
        self,
        query: str,
        *,
        top_k: int | None = None,
        category: str | None = None,
        within: Within = "facts",
        thread: str | None = None,
        since: str | None = None,
        until: str | None = None,
        min_similarity: float | None = None,
        explain: bool = False,
    ) -> Found:
        """Return what is most like a query, the best first: live facts, or turns that stand.

        Only what is of `category` and `thread` (of a fact its source), from `since` on and before `until` is looked at
        at all; times are ISO 8601. `top_k` and `min_similarity` are as configured unless given; the latter is the
        cosine that a meaning needs where no word matched. With `explain` each hit says why it stands where it stands.

        Raises:
            UsageError: no such place to search in, no such category, a time that is none, a `top_k` below 1.
        """
        # What an agent has learned may be its user's still; what was said to it is its own.
        reading = self._reading() if within == "facts" else self._writer
        searches = self._engine.searches
        found = searches.of(reading).find(
            query,
            searches.top_k if top_k is None else top_k,
            within=within,
            category=category,
            thread=thread,
            since=since,
            until=until,
            min_similarity=min_similarity,
            explain=explain,
        )
        if within == "facts" and found:
            self._engine.heat.touch(reading, [hit.id for hit in found])
        return found

    def embed(self, *, timeout: float | None = None, progress: Callable[[int, int], None] | None = None) -> Embedded:
        """Have a model read every fact and turn that it has not read yet, here and now, so that search knows it.

        It otherwise happens by and by, in the background. `timeout` is in seconds; `progress` is told how many of how
        many are done.

        Raises:
            NoModelError: there is no model for that.
            ModelError: it gave no usable answer.
        """
        own, reading = self._writer, self._reading()
        embedded = self._engine.searches.embed(own, timeout=timeout, progress=progress)
        if reading is own:
            return embedded
        return embedded + self._engine.searches.embed(reading, timeout=timeout, progress=progress)
