"""The port to whatever turns a text into a vector whose direction is its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Embedder", "Floats"]

Floats: TypeAlias = "NDArray[np.float32]"


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
            ModelUnavailableError: another try may work, or the time was up. ModelRejectedError: none will.
        """

    def query(self, text: str) -> Floats:
        """Return the vector of what is looked for: shape (dimensions,).

        Raises:
            ModelUnavailableError, ModelRejectedError: as `passages`.
        """
