"""Search in one scope: facts and turns by their words and, where an embedding model is at hand, by meaning."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.events import NO_THREADS
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.writer import Writer
from backstory.ledger.text.tags import read_filter
from backstory.projections.context.joined import USERS, period_key
from backstory.projections.history.times import When
from backstory.projections.search.filters import SearchFilters, Within
from backstory.projections.search.query import find_among
from backstory.projections.search.results import Found
from backstory.projections.search.vectors.background_embedding import Embedded
from backstory.services.named import must_know
from backstory.services.services import Operations, ScopeServices

_MAX_SECONDS = 1e9
"""Longer than any caller waits, and still a number that a clock accepts."""


class _Asked(msgspec.Struct, frozen=True):
    """A search as it was asked for; see `MemoryHandle.search`."""

    query: str
    top_k: int
    filters: SearchFilters
    min_similarity: float | None
    explain: bool
    true_in: tuple[str, str] | None = None
    """The span of time in which facts have to have been true; None: only what is in memory."""


def _find(services: ScopeServices, writer: Writer, asked: _Asked) -> Found:
    query, top_k, filters, explain = asked.query, asked.top_k, asked.filters, asked.explain
    if asked.true_in is not None:
        return find_among(services.true_in(writer, None, *asked.true_in), query, top_k, filters, explain=explain)
    search = services.home.states(writer.scope).search
    return search.find(query, top_k, filters, min_similarity=asked.min_similarity, explain=explain)


def _joined(services: ScopeServices, asked: _Asked, own: Found, users: Found) -> Found:
    """Join what was found in an agent's memory and in its user's: equal facts once, each hit with its owner.

    The scores of two searches compare only where both ranked in the same way; otherwise the hits take turns.
    """
    agent, user = services.scope, Scope(services.scope.user)
    ours = [msgspec.structs.replace(hit, owner=agent) for hit in own]
    theirs = [msgspec.structs.replace(hit, owner=user) for hit in users]
    if asked.true_in is None:
        joined = services.joined()
        known = {} if joined is None else joined.memory.facts
        theirs = [hit for hit in theirs if f"{USERS}{hit.id}" in known]
    else:
        periods = {period_key(fact) for fact in services.true_in(services.writer, None, *asked.true_in)}
        theirs = [hit for hit in theirs if period_key(hit) not in periods]
    if own.model == users.model and (own.trouble is None) == (users.trouble is None):
        hits = sorted((*ours, *theirs), key=lambda hit: -hit.score)
    else:
        hits = [hit for pair in zip_longest(ours, theirs) for hit in pair if hit is not None]
    return Found(
        tuple(hits[: asked.top_k]),
        own.within,
        own.total + users.total,
        own.model or users.model,
        own.embedded + users.embedded,
        own.trouble or users.trouble,
    )


def _count_trouble(services: ScopeServices, found: Found) -> None:
    """Count a search that used words alone. The search itself has logged the reason."""
    faults, scope = services.home.faults, services.scope
    if found.trouble is None:
        faults.recovered(scope, "search")
    else:
        detail = "the embedding model gave no vector of the query, so it was searched by words: see the log"
        faults.count(scope, "search", "ModelError", detail, log=False)


def _must_be_a_source(services: ScopeServices, reading: Writer, thread: str, within: Within) -> None:
    """Distinguish a thread without matches from one that does not exist."""
    if within == "turns":
        must_know(services.writer, thread)
        return
    if thread in NO_THREADS:
        return
    for writer in (services.writer, reading):
        with writer.reader.state() as state:
            if thread in state.transcript.threads:
                return
    # Imported facts may come from threads that were never recorded here.
    if not any(fact.source == thread for fact in reading.memory().facts.values()):
        raise NotFoundError(
            f"there is no thread {thread} in the memory of {reading.scope}, and no fact from it: see `threads`"
        )


class Searching(Operations):
    """What searches a memory; see `MemoryHandle`."""

    # Searching.

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
        valid_at: When | None = None,
        include_past: bool = False,
        tags: Sequence[str] | None = None,
    ) -> Found:
        """Search live facts or standing turns, by words and by meaning.

        An agent finds its user's facts, too, unless `agent_reads` says otherwise: then the `owner` of a hit says whose
        it is. Turns are its own.

        Args:
            query: What to look for.
            top_k: How many hits at most; as configured unless given.
            category: Only facts of this category.
            within: `facts` or `turns`.
            thread: Only turns of this conversation, or facts learned from it.
            since: Only from this time on; see docs/reference/times.md.
            until: Only before this time, or up to the end of this day.
            min_similarity: The cosine, -1 to 1, that a hit by meaning alone needs; as configured unless given.
            explain: Say of each hit why it has its rank.
            valid_at: Only facts that were true at this time, also those that have ended since, as in `facts`; by words.
            include_past: Also all facts that have ended; by words.
            tags: Only facts or turns with all of these tags; `name=value` is about an attribute of a fact.

        Returns:
            The hits, the best first.

        Raises:
            UsageError: A value cannot be one of its kind, or nothing lies between `since` and `until`.
            NotFoundError: There is no such thread and, within facts, no live fact from it.
        """
        services = self._services
        query = checks.text("query", query)
        most = services.home.states.searches.top_k if top_k is None else checks.whole("top_k", top_k, 1)
        floor = None if min_similarity is None else checks.number("min_similarity", min_similarity, -1, 1)
        source = None if thread is None else checks.text("thread", thread)
        category = None if category is None else checks.text("category", category)
        first, end = services.times().span(since, until)
        span = services.span_of_truth(valid_at, include_past=include_past)
        if span is not None and within != "facts":
            raise UsageError("only facts are true at a time or have ended: search facts, or ask turns for neither")
        filters = SearchFilters.read(
            within, category=category, thread=source, since=first, until=end, tags=read_filter(tags or ())
        )
        asked = _Asked(query, most, filters, floor, explain, span)
        # An agent may also read its user's facts; the turns are always its own.
        reading = services.reading() if within == "facts" else services.writer
        beside = services.beside() if within == "facts" else None
        own = _find(services, reading, asked)
        found = own if beside is None else _joined(services, asked, own, _find(services, beside, asked))
        _count_trouble(services, found)
        if source is not None and not found:
            _must_be_a_source(services, beside or reading, source, within)
        if within == "facts" and span is None and found:
            for writer in (reading, beside):
                ids = [hit.id for hit in found if writer is not None and hit.owner in (None, writer.scope)]
                if writer is not None and ids:
                    services.home.states(writer.scope).use.touch(ids)
        return found

    def embed(self, *, timeout: float | None = None, progress: Callable[[int, int], None] | None = None) -> Embedded:
        """Embed every fact and turn that has no vector yet; otherwise this happens in the background.

        Args:
            timeout: In seconds; what is not embedded by then is left for later.
            progress: Gets how many of how many are done.

        Returns:
            How many were embedded, and how many are left.

        Raises:
            UsageError: `timeout` is no number from 0 on.
            NoModelError: There is no embedding model.
            ModelError: The model gave no usable answer.
        """
        services = self._services
        limit = None if timeout is None else min(checks.number("timeout", timeout, 0, math.inf), _MAX_SECONDS)
        begun = time.monotonic()
        own, searches, states = services.writer, services.home.states.searches, services.home.states
        reading = services.beside() or services.reading()
        embedded = searches.embed(states(own.scope).embedding, timeout=limit, progress=progress)
        if reading is own:
            return embedded
        left = None if limit is None else max(0.0, begun + limit - time.monotonic())
        return embedded + searches.embed(states(reading.scope).embedding, timeout=left, progress=progress)

    asearch = in_thread(search)
    aembed = in_thread(embed)
