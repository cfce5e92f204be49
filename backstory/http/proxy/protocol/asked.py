"""Request of a conversation: who asks, what was said, and its body with the context block."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw

from backstory.integrations.prompt_block import without_block
from backstory.ledger.messages import Message
from backstory.ledger.text.scaffolding import Cut

Fields: TypeAlias = dict[str, Raw]


class _Role(msgspec.Struct):
    role: object = None


def raw(value: object) -> Raw:
    """Return a value as it stands in a body."""
    return Raw(msgspec.json.encode(value))


def fields_of(json: bytes | Raw) -> Fields:
    """Return the fields of a JSON object.

    Raises:
        ValueError: It is none.
        RecursionError: It is nested too deep.
    """
    return msgspec.json.decode(json, type=Fields)


def items_of(json: bytes | Raw) -> list[Raw]:
    """Return the items of a JSON list, as `fields_of` does."""
    return msgspec.json.decode(json, type=list[Raw])


def value_of(fields: Fields, name: str) -> object:
    """Return the value of a field; None where there is none."""
    given = fields.get(name)
    return None if given is None else msgspec.json.decode(given)


def text_of(fields: Fields, name: str) -> str | None:
    """Return a field that is a text or a number, as text; None for an empty one, or one of another type."""
    value = value_of(fields, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def roles_of(messages: Iterable[Raw]) -> list[object]:
    """Return the roles of messages."""
    return [msgspec.json.decode(one, type=_Role).role for one in messages]


def bare_parts(content: Iterable[object], as_sent: Iterable[Raw]) -> Iterator[Raw]:
    """Yield the parts of a content without a context block; drop a part that becomes empty."""
    for part, sent in zip(content, as_sent, strict=True):
        said = part.get("text") if isinstance(part, dict) else None
        if not isinstance(said, str) or (bare := without_block(said)) == said:
            yield sent
        elif bare.strip():
            yield raw({**fields_of(sent), "text": bare})


Aside = Literal["title", "side"]
"""A request that is no part of a conversation: it asks for something about one, or a harness asks for itself."""


class UnreadableRequestError(Exception):
    """The body is no request of the protocol."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a conversation.

    `messages` are what was said up to now or, with `follows` or `conversation`, since the last response, without
    scaffolding. `cuts` is the scaffolding since the last answer. `skipped` counts messages that cannot be read. `calls`
    are the ids of the tool calls in it, the newest first. `follows` is the id of the response before, and
    `conversation` that of a conversation that the upstream keeps. `session` is the client's own, which is one
    conversation. `begun` is the beginning of the answer, which the client has given. `aside`: it is no part of a
    conversation. `safety_identifier` names the user for the upstream.
    """

    fields: Fields
    messages: tuple[Message, ...]
    user: str | None = None
    skipped: int = 0
    calls: tuple[str, ...] = ()
    follows: str | None = None
    conversation: str | None = None
    session: str | None = None
    begun: str = ""
    cuts: tuple[Cut, ...] = ()
    aside: Aside | None = None
    safety_identifier: str | None = None

    def field(self, name: str) -> object:
        """Return the value of a field of the body; None where it has none."""
        return value_of(self.fields, name)

    @property
    def model(self) -> str:
        """The name of the model; empty where none is named."""
        return text_of(self.fields, "model") or ""

    @property
    def instructs(self) -> bool:
        """Whether the request has instructions of its own, or a place for them beside the messages."""
        return True

    @property
    def names_answers(self) -> bool:
        """Whether a later request may name the answer by its id instead of sending it."""
        return False

    @property
    def goes_on(self) -> bool:
        """Whether it may hold nothing but what is new in a conversation."""
        return False

    def with_block(self, standing: str, found: str = "", *, in_question: bool = False) -> bytes | None:
        """Return the body with a context block instead of an earlier one; None where nothing changes.

        Of the body only the instructions and the newest question change. Every other value keeps its bytes: numbers,
        the order of keys, unknown keys.

        Args:
            standing: What stands, for the instructions; empty for nothing.
            found: What was found, for the newest question; empty for nothing.
            in_question: What stands goes before the first question, for a model that knows no system messages. A
                request that has instructions of its own gets it there all the same.

        Raises:
            UnreadableRequestError: The instructions or the question are neither a text nor a list of parts.
        """
        with reading():
            fields = self.changed(standing, found, in_question=in_question and not self.instructs)
            return None if fields is self.fields else msgspec.json.encode(fields)

    def changed(self, standing: str, found: str, *, in_question: bool) -> Fields:
        """Return the fields of the body with a block; the same ones where nothing changes. See `with_block`."""
        raise NotImplementedError


@contextmanager
def reading() -> Iterator[None]:
    """Raise what cannot be read as UnreadableRequestError, without the text of the error, which may quote content."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise UnreadableRequestError(type(error).__name__) from None


def inflated(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its compression.

    Raises:
        UnreadableRequestError: It is compressed in another way than gzip or deflate, damaged, or larger than the limit.
    """
    if encoding.lower() in ("", "identity"):
        return body
    if encoding.lower() not in ("gzip", "x-gzip", "deflate"):
        raise UnreadableRequestError("compressed")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = inflate.decompress(body, limit)
    except zlib.error:
        raise UnreadableRequestError("compressed") from None
    if not inflate.eof:
        raise UnreadableRequestError("compressed")
    return plain
