"""Port to an embedding model: a text goes in, a vector whose direction is its meaning comes out.

The text of an entry goes in as a passage, with its speaker and what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from backstory.ledger.core.errors import ModelError, ModelUnavailableError
from backstory.projections.search.lexical.entry import Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float32]"

_BEFORE_CHARS = 300
"""So much of the turn before is enough to know what is answered: its end, where a question stands."""


class Passage(msgspec.Struct, frozen=True):
    """A text to embed for what its key names; `digest` is blake2b of the text, 16 bytes."""

    key: str
    text: str
    digest: bytes


def passages(entries: Iterable[Entry]) -> Iterator[Passage]:
    """Return the text to embed for each entry; those of one group come whole and in order."""
    before: Entry | None = None
    for entry in entries:
        text = _spoken(entry.speaker, entry.text)
        if before is not None and entry.group and before.group == entry.group:
            text = f"{_spoken(before.speaker, before.text[-_BEFORE_CHARS:])}\n{text}"
        yield Passage(entry.key, text, blake2b(text.encode(), digest_size=16).digest())
        before = entry


def _spoken(speaker: str, text: str) -> str:
    return f"{speaker}: {text}" if speaker else text


class Embedder(Protocol):
    """Turns texts into vectors of length 1; safe for threads.

    `name` says everything that changes the vectors: those of two names are never compared. Of a long text the beginning
    may be all that is read. A text without words has no direction: its vector is all zeros.
    """

    @property
    def name(self) -> str:
        """What is recorded beside the vectors."""

    @property
    def local(self) -> bool:
        """Whether it answers without a network."""

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Floats:
        """Return the vectors of texts that are to be found: shape (texts, dimensions).

        What waits for a network waits no longer than `timeout`, in seconds, whatever it tries again.

        Raises:
            ModelUnavailableError: Another try may work, or the time was up.
            ModelRejectedError: None will.
        """

    def query(self, text: str) -> Floats:
        """Return the vector of what is looked for: shape (dimensions,).

        Raises:
            ModelUnavailableError, ModelRejectedError: As `passages`.
        """


def passages_by(embedder: Embedder, texts: Sequence[str], timeout: float | None = None) -> Floats:
    """Return the vectors of texts, and hold an embedder to its port: one for each text, in finite numbers.

    Raises:
        ModelUnavailableError: As the port, or it raised something else, or answered otherwise.
        ModelRejectedError: As the port.
    """
    return _checked(embedder, lambda: embedder.passages(texts, timeout=timeout), len(texts), 2)


def query_by(embedder: Embedder, text: str) -> Floats:
    """Return the vector of a query, and hold an embedder to its port.

    Raises:
        ModelUnavailableError, ModelRejectedError: As `passages_by`.
    """
    return _checked(embedder, lambda: embedder.query(text), None, 1)


def packed(vectors: Floats) -> list[bytes]:
    """Return each vector as half-precision floats, as it is kept."""
    return [row.tobytes() for row in vectors.astype("float16")]


def _checked(embedder: Embedder, ask: Callable[[], Floats], count: int | None, axes: int) -> Floats:
    import numpy as np

    try:
        vectors: Floats = np.asarray(ask(), np.float32)
    except ModelError:
        raise
    except Exception as error:
        # Its words are left out: they may quote a text.
        kind = type(error).__name__
        raise ModelUnavailableError(f"{embedder.name} failed with a {kind}: check the embedder") from error
    if vectors.ndim != axes or not vectors.shape[-1] or (count is not None and len(vectors) != count):
        wanted = "one vector" if count is None else f"{count} vectors"
        raise ModelUnavailableError(
            f"{embedder.name} answered with numbers of shape {vectors.shape}, not with {wanted}: check the embedder"
        )
    if not np.isfinite(vectors).all():
        raise ModelUnavailableError(f"{embedder.name} answered with numbers that are not finite: check the embedder")
    return vectors
