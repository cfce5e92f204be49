"""Searching: facts and turns found again by their words and, where a model for that is at hand, by what they mean."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

from backstory import checks
from backstory.checks import When
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.log.writer import Writer
from backstory.operations.scope_base import ScopeBase
from backstory.projections.search.results import Found
from backstory.projections.search.services import Embedded

__all__ = ["Searching"]

Within = Literal["facts", "turns"]

_MOST_SECONDS = 1e9
"""Longer than anybody waits, and still a number that a clock can be told."""

_BY_HAND = ("manual", "import")
"""Sources of facts that are no threads."""


class Searching(ScopeBase):
    """The part of a handle that finds."""

    def search(
        self,
        query: str,
        *,
        top_k: int | None = None,
        category: str | None = None,
        within: Within = "facts",
        thread: str | None = None,
        since: When | None = None,
        until: When | None = None,
        min_similarity: float | None = None,
        explain: bool = False,
    ) -> Found:
        """Return what is most like a query, the best first: live facts, or turns that stand.

        Only what is of `category` and `thread` (of a fact its source), from `since` on and before `until` is looked at
        at all; times are ISO 8601, datetimes or dates. `top_k` and `min_similarity` are as configured unless given; the
        latter is the cosine that a meaning needs where no word matched. With `explain` each hit says why it stands
        where it stands.

        Raises:
            UsageError: no such place to search in, no such category, a time that is none, nothing between `since` and
                `until`, a `top_k` below 1, a value of another kind.
            NotFoundError: there is no such thread and, within facts, no live fact from it either.
        """
        query = checks.text("query", query)
        most = None if top_k is None else checks.whole("top_k", top_k, 1)
        floor = None if min_similarity is None else checks.number("min_similarity", min_similarity, -1, 1)
        source = None if thread is None else checks.text("thread", thread)
        first, end = checks.span(since, until)
        # What an agent has learned may be its user's still; what was said to it is its own.
        reading = self._reading() if within == "facts" else self._writer
        searches = self._services.searches
        found = searches.of(reading).find(
            query,
            searches.top_k if most is None else most,
            within=within,
            category=category,
            thread=source,
            since=first,
            until=end,
            min_similarity=floor,
            explain=explain,
        )
        self._count_trouble(found)
        if source is not None and not found:
            self._must_be_a_source(reading, source, within)
        if within == "facts" and found:
            self._services.heat.touch(reading, [hit.id for hit in found])
        return found

    def _count_trouble(self, found: Found) -> None:
        """Count that a search went by words alone, which was logged where it happened."""
        faults, scope = self._services.faults, self._writer.scope
        if found.trouble is None:
            faults.recovered(scope, "search")
        else:
            detail = "the embedding model gave no vector of the query, so it was searched by words: see the log"
            faults.count(scope, "search", "ModelError", detail, log=False)

    def _must_be_a_source(self, reading: Writer, thread: str, within: Within) -> None:
        """Tell a thread in which nothing is alike from one that is not there."""
        if within == "turns":
            self._must_know(thread)
            return
        if thread in _BY_HAND:
            return
        for writer in (self._writer, reading):
            with writer.reader.state() as state:
                if thread in state.transcript.threads:
                    return
        # What was imported may come from threads that were never recorded here.
        if not any(fact.source == thread for fact in reading.memory().facts.values()):
            raise NotFoundError(
                f"there is no thread {thread} in the memory of {reading.scope}, and no fact from it: see `threads`"
            )

    def embed(self, *, timeout: float | None = None, progress: Callable[[int, int], None] | None = None) -> Embedded:
        """Have a model read every fact and turn that it has not read yet, here and now, so that search knows it.

        It otherwise happens by and by, in the background. `timeout` is in seconds: what is not read by then is left for
        another time. `progress` is told how many of how many are done.

        Raises:
            UsageError: `timeout` is no number from 0 on.
            NoModelError: there is no model for that.
            ModelError: it gave no usable answer.
        """
        limit = None if timeout is None else min(checks.number("timeout", timeout, 0, math.inf), _MOST_SECONDS)
        begun = time.monotonic()
        own, reading = self._writer, self._reading()
        embedded = self._services.searches.embed(own, timeout=limit, progress=progress)
        if reading is own:
            return embedded
        left = None if limit is None else max(0.0, begun + limit - time.monotonic())
        return embedded + self._services.searches.embed(reading, timeout=left, progress=progress)
