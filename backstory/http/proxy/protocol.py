"""Protocol of a model server, as the proxy sees it: its paths, how requests and answers are read, its errors.

`openai/` and `anthropic/` each make one. A request says who asks and what was said, without what a harness puts into
the words of the user. Each field of its body keeps its bytes until it is read or changed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from starlette.responses import Response

from backstory.config.settings import Settings
from backstory.http.proxy.answers import AnswerForm
from backstory.integrations.prompt_block import without_block
from backstory.ledger.core.errors import InputError
from backstory.ledger.messages import Message, read_message
from backstory.ledger.text.scaffolding import Cut, Scaffolding

RawFields: TypeAlias = dict[str, Raw]


class _Role(msgspec.Struct):
    role: object = None


def raw(value: object) -> Raw:
    """Return a value as it stands in a body."""
    return Raw(msgspec.json.encode(value))


def fields_of(json: bytes | Raw) -> RawFields:
    """Return the fields of a JSON object.

    Raises:
        ValueError: It is none.
        RecursionError: It is nested too deep.
    """
    return msgspec.json.decode(json, type=RawFields)


def items_of(json: bytes | Raw) -> list[Raw]:
    """Return the items of a JSON list, as `fields_of` does."""
    return msgspec.json.decode(json, type=list[Raw])


def value_of(fields: RawFields, name: str) -> object:
    """Return the value of a field; None where there is none."""
    given = fields.get(name)
    return None if given is None else msgspec.json.decode(given)


def text_of(fields: RawFields, name: str) -> str | None:
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

    fields: RawFields
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

    def changed(self, standing: str, found: str, *, in_question: bool) -> RawFields:
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


Item: TypeAlias = Mapping[str, object]

_READ = ("role", "type", "phase", "content", "refusal", "audio", "name", "tool_calls", "function_call")
"""What is read of a message. Ids are left out, since not every client sends the same one again."""


class Heard(NamedTuple):
    """The messages that can be read, the scaffolding since the last answer, and how many cannot be read."""

    messages: tuple[Message, ...]
    cuts: tuple[Cut, ...]
    unreadable: int


def heard(items: Iterable[Item], scaffolding: Scaffolding) -> Heard:
    """Read the messages of a request; those that are nothing but scaffolding are left out."""
    messages: list[Message] = []
    cuts: list[Cut] = []
    answer, unreadable = "", 0
    for item in items:
        content: object = item.get("content")
        cut: tuple[Cut, ...] = ()
        if item.get("role") == "user":
            content, cut = _stripped(content, scaffolding, answer)
            cuts += cut
        message = _message({**item, "content": content} if cut else item)
        if message is None:
            unreadable += 1
        elif message.content.strip() or not cut:
            messages.append(message)
        if message is not None and message.role == "assistant":
            answer = message.content
            cuts.clear()
    return Heard(tuple(messages), tuple(cuts), unreadable)


def _stripped(content: object, scaffolding: Scaffolding, answer: str) -> tuple[object, tuple[Cut, ...]]:
    """Return a content without scaffolding. Harnesses put it into parts of its own, so each part is looked at."""
    if isinstance(content, str):
        return scaffolding.stripped(content, answer)
    if not isinstance(content, list):
        return content, ()
    parts: list[object] = []
    cuts: list[Cut] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else None
        rest, cut = scaffolding.stripped(text, answer) if isinstance(text, str) else (text, ())
        cuts += cut
        if not cut:
            parts.append(part)
        elif rest:
            parts.append({**part, "text": rest})
    return (parts, tuple(cuts)) if cuts else (content, ())


def asks_for_title(items: Iterable[Item], instructions: object, scaffolding: Scaffolding) -> bool:
    """Whether the newest words of the user, or the newest instructions, are a known prompt for a title."""
    newest: dict[object, object] = {item.get("role"): item.get("content") for item in items}
    asked = [("user", newest.get("user"))]
    asked += [("system", content) for content in (instructions, newest.get("system"), newest.get("developer"))]
    return any(scaffolding.is_title(role, text) for role, content in asked for text in texts_of(content))


def texts_of(content: object) -> Iterator[str]:
    """Yield the texts of a content, which is one or a list of parts."""
    parts: Iterable[object] = content if isinstance(content, list) else (content,)
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text


def _message(item: Item) -> Message | None:
    try:
        said = {name: item[name] for name in _READ if item.get(name) is not None}
        return read_message({"content": None, **said})
    except InputError:
        return None


ErrorShape = Callable[[int, str, str], Response]
"""Makes an error of the proxy itself of a status, a code and a message, in the shape that the clients know."""


@dataclass(frozen=True)
class Endpoint:
    """A path of conversations.

    Attributes:
        read: Reads a request: its body as plain JSON, and the value of a header by its name, empty where there is none.
            It raises UnreadableRequestError.
        answers: How its answers are read.
    """

    read: Callable[[bytes, Callable[[str], str], Scaffolding], Asked]
    answers: AnswerForm


@dataclass(frozen=True)
class Protocol:
    """A protocol that the proxy speaks.

    Attributes:
        name: Its name, for messages.
        path: The path under which its proxy is mounted.
        usual: The path below that most clients use.
        endpoint: Finds the conversations of a path below; None where it has none.
        error: The shape of its errors.
        upstream_key: The key of the configuration for its model server.
        upstream: Returns the base URL of that server, by the configuration and the environment.
    """

    name: str
    path: str
    usual: str
    endpoint: Callable[[str], Endpoint | None]
    error: ErrorShape
    upstream_key: str
    upstream: Callable[[Settings, Mapping[str, str]], str]
