"""Model port: takes a prompt, returns an answer or raises a ModelError that never shows the key.

The functions are for adapters: they read token counts and error texts, and keep secrets out of messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from backstory.ledger.core.sanitize import Json, clip

_MAX_TOKENS = 2**63 - 1
_ERROR_TEXT = ("error", "message", "detail", "msg")


class Prompt(msgspec.Struct, frozen=True):
    """A request to a model.

    Attributes:
        system: the system message.
        user: the user message.
        digest: the sha256 of the template files it was built from, as 64 hex digits.
        schema: the JSON schema of the wanted reply, for servers that enforce one.
    """

    system: str
    user: str
    digest: str
    schema: dict[str, Json]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts as the server reports them; None where it reports none."""

    input: int | None = None
    output: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """A model's answer.

    Attributes:
        text: the raw text.
        model: the model named in the answer.
        usage: the token counts, where the server reports them.
        prompted: false for a recorded answer: its prompt was never sent, and no cause may claim it was.
    """

    text: str
    model: str
    usage: Usage | None = None
    prompted: bool = True


class Model(Protocol):
    """The interface of a model."""

    @property
    def name(self) -> str:
        """The requested model; recorded in the cause of every commit."""

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt with one request; the caller retries.

        Raises:
            ModelUnavailableError: A retry may succeed.
            ModelRejectedError: A retry is pointless.
        """


def token_count(count: object) -> int | None:
    """Return a server's token count, or None where it is not a valid count."""
    if isinstance(count, bool) or not isinstance(count, int):
        return None
    return count if 0 <= count <= _MAX_TOKENS else None


def usage_in(stated: object, input_name: str, output_name: str) -> Usage | None:
    """Return the token counts that an object states under two names; None where it states none."""
    if not isinstance(stated, Mapping):
        return None
    usage = Usage(token_count(stated.get(input_name)), token_count(stated.get(output_name)))
    return None if usage == Usage() else usage


def usage_of(answer: Answer) -> Usage:
    """Return the token counts of an answer; empty where its usage has another shape."""
    stated: object = answer.usage
    if not isinstance(stated, Usage):
        return Usage()
    return Usage(token_count(stated.input), token_count(stated.output))


def error_text(body: object) -> str:
    """Return the message of an error body; servers put it under several keys, in a list, or send it bare.

    The rest of the body may repeat the request.
    """
    while isinstance(body, Mapping | list) and body:
        body = body[0] if isinstance(body, list) else next((body[key] for key in _ERROR_TEXT if body.get(key)), None)
    return re.sub(r"<[^>]*>", " ", body) if isinstance(body, str) else ""


def public_address(address: str) -> str | None:
    """Return an HTTP address without the parts that may hold secrets, or None where the text is not one."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")) if usable else None


def redacted(text: str, key: str | None, at_most: int) -> str:
    """Return a text as one line of at most `at_most` characters, without the key."""
    # The key goes first: clipping could leave a part of it that no longer matches.
    hidden = text.replace(key, "***") if key else text
    return clip(" ".join(hidden.split()), at_most)


def showable(error: BaseException, key: str | None) -> BaseException | None:
    """Return an error as the cause to show in a traceback, or None where its own text would show the key."""
    link: BaseException | None = error
    while link is not None and key:
        if key in str(link):
            return None
        link = link.__cause__ or link.__context__
    return error
