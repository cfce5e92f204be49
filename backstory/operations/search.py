"""Search in one scope: facts and turns by their words and, where an embedding model is at hand, by meaning."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

from backstory import checks
from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.events import NO_THREADS
from backstory.ledger.log.writer import Writer
from backstory.operations.services import ScopeServices, must_know
from backstory.projections.search.results import Found
from backstory.projections.search.vectors.background_embedding import Embedded

Within = Literal["facts", "turns"]

_MAX_SECONDS = 1e9
"""Longer than any caller waits, and still a number that a clock accepts."""


def count_trouble(services: ScopeServices, found: Found) -> None:
    """Count a search that used words alone. The search itself has logged the reason."""
    faults, scope = services.home.faults, services.scope
    if found.trouble is None:
        faults.recovered(scope, "search")
    else:
        detail = "the embedding model gave no vector of the query, so it was searched by words: see the log"
        faults.count(scope, "search", "ModelError", detail, log=False)


def must_be_a_source(services: ScopeServices, reading: Writer, thread: str, within: Within) -> None:
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


def embed(services: ScopeServices, *, timeout: float | None, progress: Callable[[int, int], None] | None) -> Embedded:
    """Embed every fact and turn that has no vector yet; see `MemoryHandle.embed`."""
    limit = None if timeout is None else min(checks.number("timeout", timeout, 0, math.inf), _MAX_SECONDS)
    begun = time.monotonic()
    own, reading, searches = services.writer, services.reading(), services.home.searches
    embedded = searches.embed(own, timeout=limit, progress=progress)
    if reading is own:
        return embedded
    left = None if limit is None else max(0.0, begun + limit - time.monotonic())
    return embedded + searches.embed(reading, timeout=left, progress=progress)
