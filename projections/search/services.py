"""Search services of a home: one search for each scope in use, and the background embedding."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from backstory.ledger.concurrency.forks import register
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import CorruptLogError, NoModelError
from backstory.ledger.core.scope import TRANSCRIPT, Scope
from backstory.ledger.log.store import EventStore
from backstory.ledger.log.store.files import translated
from backstory.ledger.log.writer import Writer
from backstory.projections.history.replay import replay
from backstory.projections.search.corpus import Turns, fact_entry
from backstory.projections.search.filters import SPACES
from backstory.projections.search.query import Search
from backstory.projections.search.vectors.background_embedding import BackgroundEmbedding, Embedded, Source
from backstory.projections.search.vectors.embedder import Embedder
from backstory.projections.search.vectors.passages import Passage, passages
from backstory.projections.search.vectors.scope_vectors import VECTORS, Vectors, erase_vectors
from backstory.projections.search.vectors.semantic import SemanticSearch
from backstory.projections.turns import TurnFollower

_KEPT = 32
"""Scopes whose words stay in memory."""

_WRITERS = 256
_SPARE_FILES = 16


@runtime_checkable
class _Closes(Protocol):
    """An embedder that has connections to close."""

    def close(self) -> None: ...


class SearchServices:
    """One search per scope of a home; safe for threads and forks.

    `document` says where a scope's memory.json lies, beside which its vectors are kept. Without an `embedder` there is
    no search by meaning; with `background` a thread embeds the rest after the first search. `top_k`
    and `min_similarity` are as configured. `followers` gives what follows a scope's transcript, which others share.
    `embedded` gets the outcome of each embedding in the background: an error, or None.
    """

    def __init__(
        self,
        document: Callable[[Scope], Path],
        embedder: Embedder | None = None,
        *,
        background: bool = True,
        top_k: int = 5,
        min_similarity: float = 0.0,
        followers: Callable[[Scope], TurnFollower],
        embedded: Callable[[Scope, Exception | None], None] = lambda *_: None,
    ) -> None:
        self.top_k = top_k
        self._document = document
        self._embedder = embedder
        self._background = background
        self._min_similarity = min_similarity
        self._followers = followers
        self._embedding = BackgroundEmbedding(self._source, settled=embedded)
        self._begin()
        register(self)

    def _begin(self) -> None:
        self._mutex = threading.Lock()
        self._all: weakref.WeakValueDictionary[Scope, Search] = weakref.WeakValueDictionary()
        self._recent: Recent[Scope, Search] = Recent(_KEPT)
        self._writers: Recent[Scope, Writer] = Recent(_WRITERS)
        """Writers of the scopes that may be embedded: the thread that does it gets no more than their names."""

    def of(self, writer: Writer) -> Search:
        """Return the search of a writer's scope: the same one while it is in use or was asked for lately."""
        scope = writer.scope
        with self._mutex:
            search = self._all.get(scope)
            if search is None:
                _must_have_spare_files()
                search = self._all[scope] = Search(
                    writer,
                    self._meaning(scope),
                    min_similarity=self._min_similarity,
                    follower=self._followers(scope),
                )
            self._recent.put(scope, search)
            self._writers.put(scope, writer)
            return search

    def _meaning(self, scope: Scope) -> SemanticSearch | None:
        if self._embedder is None:
            return None
        vectors = Vectors(self._vectors(scope), self._embedder)
        return SemanticSearch(vectors, partial(self._embedding.wanted, scope) if self._background else None)

    def _vectors(self, scope: Scope) -> Path:
        return self._document(scope).with_name(VECTORS)

    def embed(
        self, writer: Writer, *, timeout: float | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Embedded:
        """Embed here and now what of a scope is not; `timeout` is in seconds, `progress` gets how many are done.

        Raises:
            NoModelError: there is no embedding model.
            ModelError: it gave no usable answer; what it has read before that is kept.
            CorruptLogError, StoreError, LockTimeoutError: a log cannot be read, or the vectors not be kept.
        """
        if self._embedder is None:
            raise NoModelError(
                "there is no embedding model to search by meaning: install backstory[vectors], or set embedding_model "
                "and embedding_base_url"
            )
        self.of(writer)
        return self._embedding.catch_up(writer.scope, timeout=timeout, progress=progress)

    def _source(self, scope: Scope) -> Source:
        writer = self._writers.get(scope)
        search = None if writer is None else self.of(writer)
        if writer is None or search is None or search.meaning is None:
            raise NoModelError(f"{scope} was not searched by meaning lately: search it first")
        return _Source(writer, search, search.meaning.vectors)

    def purge(self, scope: Scope, store: EventStore) -> None:
        """Let go of what is known of a scope, but for the meaning of what still stands when both logs have been read.

        The caller holds the locks of both. Of what a redaction names nothing is left then, in memory and on disk.

        Raises:
            StoreError: the vectors cannot be taken away. LockTimeoutError: another process keeps them.
        """
        search = self._all.get(scope)
        if search is not None:
            search.purge()
        path = self._vectors(scope)
        if self._embedder is None:
            erase_vectors(path)
            return
        known = None if search is None or search.meaning is None else search.meaning.vectors
        vectors = known or Vectors(path, self._embedder)
        try:
            standing = _standing(store, scope) if path.exists() or known is not None else None
            vectors.purge(standing)
        except CorruptLogError:
            vectors.purge(None)

    def start_over(self, scope: Scope) -> None:
        """Read a scope anew, after a repair that may have taken commits away."""
        search = self._all.get(scope)
        if search is not None:
            search.purge()

    def close(self) -> None:
        """End what embeds in the background, and let go of everything."""
        self._embedding.close()
        embedder: object = self._embedder
        if isinstance(embedder, _Closes):
            embedder.close()
        for search in list(self._all.values()):
            search.close()
        with self._mutex:
            self._recent.clear()
            self._writers.clear()

    def renew(self) -> None:
        """Begin anew in a child of this process, where the thread that holds a lock may not exist."""
        held = list(self._all.values())
        self._begin()
        for search in held:
            search.purge()


class _Source:
    """What of a scope is to be embedded; see `Source`."""

    spaces: Iterable[str] = SPACES

    def __init__(self, writer: Writer, search: Search, vectors: Vectors) -> None:
        self.vectors = vectors
        self._writer = writer
        self._search = search

    def state(self) -> Hashable:
        """Return where both logs stand."""
        store = self._writer.store
        streams = (self._writer.ledger, self._writer.transcript_stream)
        return tuple((store.head(stream), store.edition(stream)) for stream in streams)

    def passages(self, space: str) -> Iterator[Passage]:
        """Yield what stands in a space."""
        return self._search.passages(space)


def _standing(store: EventStore, scope: Scope) -> dict[str, Iterable[Passage]]:
    """What both logs say when it is asked for, their redactions heeded; read as they are, for their locks are held."""
    turns = Turns(store, scope)
    turns.follow(store.head(scope.stream(TRANSCRIPT)))
    facts = map(fact_entry, replay(store, scope).facts.values())
    return {"facts": passages(facts), "turns": passages(turns.entries())}


def _must_have_spare_files() -> None:
    """Refuse to go on where what a search loads first might be loaded by half: numpy works no more after that.

    Raises:
        StoreError: this process has too many files open.
    """
    if "numpy" in sys.modules:
        return
    spare: list[int] = []
    try:
        with translated(Path(os.devnull), "open"):
            spare.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(_SPARE_FILES))
    finally:
        for descriptor in spare:
            os.close(descriptor)
