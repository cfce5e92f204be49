"""OpenAI adapter of the model port: for the hosted service and every server that speaks the same protocol."""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from backstory.ledger.concurrency.forks import ForkLock
from backstory.ledger.core.errors import ModelError, ModelRejectedError, ModelUnavailableError
from backstory.ledger.core.sanitize import MAX_NAME, clip, safe_text
from backstory.ledger.extraction.models.model import (
    Answer,
    Prompt,
    error_text,
    public_address,
    redacted,
    showable,
    usage_in,
)

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI
    from openai.types.chat.completion_create_params import ResponseFormat

_DEFAULT_ADDRESS = "https://api.openai.com/v1"
# Local servers ask for no key, but the client library refuses to start without one.
_PLACEHOLDER_KEY = "no-key-needed"
_REPLY_NAME = "reply"
_MAX_DETAIL = 300

_FORMAT_REFUSED = frozenset({400, 404, 415, 422, 501})
_TRANSIENT = frozenset({408, 409, 425, 429})
_FIRST_SERVER_ERROR = 500
_TOO_MANY_REQUESTS = 429

_CHECK_KEY = "check OPENAI_API_KEY"
_ADVICE = {
    400: "shorten the prompt if it is too long for the model, otherwise check what the server says",
    401: _CHECK_KEY,
    402: "check the account's balance",
    403: f"{_CHECK_KEY} and what it may use",
    404: "check the model's name and OPENAI_BASE_URL, which often ends in /v1",
    413: "shorten the prompt",
}
_OTHER_ADVICE = "check OPENAI_BASE_URL and what the server says"


class _ReplyFormat(enum.IntEnum):
    """The reply formats to ask a server for, strictest first."""

    JSON_SCHEMA = 0
    JSON_OBJECT = 1
    TEXT = 2


@dataclass(frozen=True, slots=True)
class _Connection:
    """A client, the name of its server in error messages, and the key that no message may show.

    `owner` is the process that has opened it; None where the host has.
    """

    client: OpenAI
    where: str
    key: str = field(repr=False)
    owner: int | None = None

    def redact(self, text: str) -> str:
        """Return a server's or library's text as one short line without the key."""
        return redacted(text, self.key, _MAX_DETAIL)

    def cause(self, error: BaseException) -> BaseException | None:
        """Return the error as the cause of another one, or None where its text holds the key."""
        return showable(error, self.key)


class OpenAIModel:
    """A model behind an OpenAI-compatible chat completions endpoint; safe for threads.

    The first `ask` imports the client library and connects. Constructing does neither and never fails.

    The model requests a reply with the prompt's JSON schema, then as any JSON object, then as plain text. It keeps
    using the first format that the server accepts.

    Args:
        name: the model to ask for.
        api_key: falls back to OPENAI_API_KEY. A server given by its address may need none.
        base_url: falls back to OPENAI_BASE_URL.
        temperature: sent only when given.
        timeout: seconds to wait for the connection and for each chunk of the answer, not for the whole answer.
        client: a client to use. It keeps its own key, address and timeout, and the caller closes it. A forked child
            needs another one: over connections that both use, one reads what was answered to the other.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        temperature: float | None = None,
        timeout: float = 120.0,
        client: OpenAI | None = None,
    ) -> None:
        self._name = name
        self._api_key = api_key
        self._base_url = base_url
        self._temperature = temperature
        self._timeout = timeout
        self._client = client
        self._lock = ForkLock()
        self._connection: _Connection | None = None
        self._worked: frozenset[_ReplyFormat] = frozenset()

    @property
    def name(self) -> str:
        """The requested model."""
        return self._name

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt; the caller retries.

        Where the server refuses a reply format, the same request is sent with a weaker one. A truncated answer and a
        refusal to answer are returned as text, with lone surrogates replaced.

        Raises:
            ModelUnavailableError: Rate limit, time-out, lost connection, server error, or a broken or empty answer;
                `retry_after` is in seconds, where the server states it.
            ModelRejectedError: Bad key, unknown model, exhausted quota, or a request refused in every format.
        """
        connection = self._connect()
        reply_format = min(self._worked, default=_ReplyFormat.JSON_SCHEMA)
        while (answer := self._try_format(connection, prompt, reply_format)) is None:
            reply_format = _ReplyFormat(reply_format + 1)
        return answer

    def close(self) -> None:
        """Close the connections that this model opened; the next `ask` opens them again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None and connection.owner == os.getpid():
            connection.client.close()

    def _connect(self) -> _Connection:
        with self._lock:
            # A forked child must not use its parent's connections: one would read what was answered to the other.
            if self._connection is None or self._connection.owner not in (None, os.getpid()):
                self._connection = self._borrow(self._client) if self._client is not None else self._open()
            return self._connection

    def _open(self) -> _Connection:
        address = _setting(self._base_url, "OPENAI_BASE_URL")
        where = self._where(address or _DEFAULT_ADDRESS)
        key = _setting(self._api_key, "OPENAI_API_KEY") or (_PLACEHOLDER_KEY if address else "")
        if not key:
            raise ModelRejectedError(
                f"{where} needs an API key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs none."
            )
        # The HTTP library would reject such a key with an error that quotes it.
        if not (key.isascii() and key.isprintable()):
            raise ModelRejectedError(
                f"{where} cannot be asked: the API key holds characters that no HTTP header can carry; {_CHECK_KEY}."
            )
        try:
            import openai

            client = openai.OpenAI(
                api_key=key, base_url=address or _DEFAULT_ADDRESS, timeout=self._timeout, max_retries=0
            )
        except Exception as error:
            raise self._no_client(where, error) from error
        return _Connection(client=client, where=where, key=key, owner=os.getpid())

    def _borrow(self, given: OpenAI) -> _Connection:
        where = self._where(str(given.base_url))
        try:
            client = given.with_options(max_retries=0)
        except Exception as error:
            raise self._no_client(where, error) from error
        return _Connection(client=client, where=where, key=given.api_key)

    @staticmethod
    def _no_client(where: str, error: Exception) -> ModelRejectedError:
        return ModelRejectedError(
            f"{where} cannot be asked: no client could be set up ({type(error).__name__}); "
            f"check OPENAI_BASE_URL, the other OPENAI_ variables and those of any proxy."
        )

    def _where(self, address: str) -> str:
        shown = public_address(address)
        if shown is None:
            raise ModelRejectedError(
                f"Model {self._name!r} cannot be asked: its base URL has to begin with http:// or https://; "
                f"set OPENAI_BASE_URL to something like http://127.0.0.1:8080/v1."
            )
        return f"Model {self._name!r} at {shown}"

    def _may_weaken(self, reply_format: _ReplyFormat, status: int) -> bool:
        if reply_format is _ReplyFormat.TEXT:
            return False
        # Some servers answer 500 to a format they do not know. After a format has worked, a 500 is a real failure.
        return status in _FORMAT_REFUSED or (status == _FIRST_SERVER_ERROR and reply_format not in self._worked)

    def _try_format(self, connection: _Connection, prompt: Prompt, reply_format: _ReplyFormat) -> Answer | None:
        """Ask with one reply format; None means that the server refuses it and a weaker one is left."""
        import openai

        where = connection.where
        try:
            body = self._send(connection.client, prompt, reply_format)
        except openai.APIStatusError as error:
            if self._may_weaken(reply_format, error.status_code):
                return None
            raise _error_of_status(connection, error) from connection.cause(error)
        except openai.APITimeoutError as error:
            raise ModelUnavailableError(
                f"{where} kept silent for too long; try again later, or raise the timeout."
            ) from connection.cause(error)
        except (openai.APIError, OSError) as error:
            raise ModelUnavailableError(
                f"{where} could not be reached, or broke off: {connection.redact(str(error.__cause__ or error))}; "
                f"try again later, or check that the server runs and that OPENAI_BASE_URL is its address."
            ) from connection.cause(error)
        except Exception as error:  # noqa: BLE001 - raised again below, in the terms of the port
            raise ModelRejectedError(
                f"{where} could not be asked ({type(error).__name__}): {connection.redact(str(error))}; "
                f"check the prompt and the OPENAI_ variables."
            ) from connection.cause(error)
        answer = _read_answer(connection, body, self._name)
        # What two threads note at once may be noted by one of them; the next answer notes it again.
        self._worked |= {reply_format}
        return answer

    def _send(self, client: OpenAI, prompt: Prompt, reply_format: _ReplyFormat) -> bytes:
        import openai

        # The raw body: the library accepts any JSON as a completion, and any other body as a string.
        response = client.chat.completions.with_raw_response.create(
            model=self._name,
            messages=[
                {"role": "system", "content": safe_text(prompt.system)},
                {"role": "user", "content": safe_text(prompt.user)},
            ],
            response_format=openai.omit if reply_format is _ReplyFormat.TEXT else _format_option(reply_format, prompt),
            temperature=openai.omit if self._temperature is None else self._temperature,
        )
        return response.content


def _setting(value: str | None, variable: str) -> str:
    # The library takes a variable that is set but empty for an address.
    return (os.environ.get(variable, "") if value is None else value).strip()


def _format_option(reply_format: _ReplyFormat, prompt: Prompt) -> ResponseFormat:
    if reply_format is _ReplyFormat.JSON_OBJECT:
        return {"type": "json_object"}
    schema: dict[str, object] = dict(prompt.schema)
    return {"type": "json_schema", "json_schema": {"name": _REPLY_NAME, "schema": schema, "strict": False}}


def _error_of_status(connection: _Connection, error: APIStatusError) -> ModelError:
    status = error.status_code
    detail = connection.redact(error_text(error.body))
    what = f"{connection.where} answered HTTP {status}" + (f": {detail}" if detail else "")
    if status == _TOO_MANY_REQUESTS and "insufficient_quota" in (error.code, error.type):
        return ModelRejectedError(
            f"{what}; waiting does not help: check the account's quota and OPENAI_API_KEY.", status=status
        )
    if status in _TRANSIENT or status >= _FIRST_SERVER_ERROR:
        wait = _retry_after(error.response.headers.get("retry-after"))
        return ModelUnavailableError(f"{what}; try again later.", retry_after=wait, status=status)
    return ModelRejectedError(f"{what}; {_ADVICE.get(status, _OTHER_ADVICE)}.", status=status)


def _retry_after(header: str | None) -> float | None:
    """Return a Retry-After header (seconds or an HTTP date) as seconds from now, or None where it is neither."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            seconds = (aware - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _read_answer(connection: _Connection, body: bytes, asked: str) -> Answer:
    try:
        data = json.loads(body)
    # A body of nothing but brackets is deep enough for a RecursionError.
    except (ValueError, RecursionError) as error:
        raise ModelUnavailableError(
            f"{connection.where} answered with something that is no JSON; "
            f"try again later, or check that OPENAI_BASE_URL is the address of a model server."
        ) from error
    completion = _mapping(data)
    choices = completion.get("choices")
    choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    text = _message_text(_mapping(choice.get("message")))
    if not text.strip():
        # Some gateways report a failure in the body, with status 200.
        detail = connection.redact(error_text(completion.get("error")))
        reason = detail or f"finish_reason is {connection.redact(str(choice.get('finish_reason')))}"
        raise ModelUnavailableError(
            f"{connection.where} answered without any text ({reason}); "
            f"try again later, or check the server's token limit and log."
        )
    model = completion.get("model")
    return Answer(
        text=safe_text(text),
        model=clip(model, MAX_NAME) if isinstance(model, str) and model.strip() else asked,
        usage=usage_in(completion.get("usage"), "prompt_tokens", "completion_tokens"),
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _message_text(message: Mapping[str, object]) -> str:
    content = message.get("content")
    # Some servers split the content into parts; a thinking part has no `text`.
    if isinstance(content, list):
        content = "".join(part for part in (_mapping(item).get("text") for item in content) if isinstance(part, str))
    if isinstance(content, str) and content.strip():
        return content
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""
