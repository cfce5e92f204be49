"""Request of a conversation: who asks, what was said, and its body with the context block.

Of the body only the instructions and the newest question change. Every other value keeps its bytes: numbers, the order
of keys, unknown keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
from msgspec import Raw

from backstory.http.proxy.answers.readers import Protocol
from backstory.integrations.prompt_block import GAP, text_after_block, text_with_block, without_block
from backstory.ledger.core.errors import InputError
from backstory.ledger.messages import Message, read_message

_Fields: TypeAlias = dict[str, Raw]

_INSTRUCTING = ("system", "developer")
_SAID = ("role", "type", "phase", "content", "refusal", "audio", "name", "tool_calls", "function_call")
"""What is read of a message. Ids are left out, since not every client sends the same one again."""


class UnreadableRequestError(Exception):
    """The body is no request of the protocol."""


class _Role(msgspec.Struct):
    role: object = None


class Asked(msgspec.Struct, frozen=True):
    """A request of a conversation.

    `messages` are what was said up to now or, with `follows` or `conversation`, since the last response. `skipped`
    counts those that cannot be read. `calls` are the ids of the tool calls in it, the newest first. `follows` is the
    id of the response before, and `conversation` that of a conversation that the upstream keeps.
    """

    protocol: Protocol
    fields: _Fields
    messages: tuple[Message, ...]
    user: str | None = None
    skipped: int = 0
    calls: tuple[str, ...] = ()
    follows: str | None = None
    conversation: str | None = None

    @property
    def model(self) -> str:
        """The name of the model; empty where none is named."""
        return _text(self.fields, "model") or ""

    @property
    def instructs(self) -> bool:
        """Whether the request has instructions of its own, or a place for them beside the messages."""
        return self.protocol == "responses" or any(
            role in _INSTRUCTING for role in _roles(msgspec.json.decode(self.fields["messages"], type=list[Raw]))
        )

    def with_block(self, standing: str, found: str = "", *, in_question: bool = False) -> bytes | None:
        """Return the body with a context block instead of an earlier one; None where nothing changes.

        Args:
            standing: What stands, for the instructions; empty for nothing.
            found: What was found, for directly before the newest question; empty for nothing.
            in_question: What stands goes before the first question, for a model that knows no system messages. A
                request that has instructions of its own gets it there all the same.

        Raises:
            UnreadableRequestError: The instructions or the question are neither a text nor a list of parts.
        """
        with _reading():
            fields = _with_block(self, standing, found, in_question=in_question and not self.instructs)
            return None if fields is self.fields else msgspec.json.encode(fields)


@contextmanager
def _reading() -> Iterator[None]:
    """Raise what cannot be read as UnreadableRequestError, without the text of the error, which may quote content."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise UnreadableRequestError(type(error).__name__) from None


def read_request(protocol: Protocol, body: bytes) -> Asked:
    """Read a request.

    Raises:
        UnreadableRequestError: The body is no JSON object, is nested too deep, or holds no conversation.
    """
    with _reading():
        fields = msgspec.json.decode(body, type=_Fields)
        items = list(_items(protocol, fields))
        messages = [message for item in items if (message := _message(item)) is not None]
        return Asked(
            protocol,
            fields,
            tuple(messages),
            user=_text(fields, "user"),
            skipped=len(items) - len(messages),
            calls=tuple(dict.fromkeys(_calls(reversed(items)))),
            follows=_text(fields, "previous_response_id"),
            conversation=_conversation(fields),
        )


def _items(protocol: Protocol, fields: _Fields) -> Iterator[Mapping[str, object]]:
    given = fields.get("messages" if protocol == "chat" else "input")
    if given is None:
        if protocol == "chat":
            raise UnreadableRequestError("no messages")
        return
    sent = msgspec.json.decode(given)
    if isinstance(sent, str) and protocol == "responses":
        sent = [{"role": "user", "content": sent}]
    if not isinstance(sent, list) or not all(isinstance(item, dict) for item in sent):
        raise UnreadableRequestError("no list of messages")
    yield from sent


def _message(item: Mapping[str, object]) -> Message | None:
    try:
        said = {name: item[name] for name in _SAID if item.get(name) is not None}
        return read_message({"content": None, **said})
    except InputError:
        return None


def _calls(items: Iterable[Mapping[str, object]]) -> Iterator[str]:
    for item in items:
        for name in ("tool_call_id", "call_id"):
            if isinstance(key := item.get(name), str) and key:
                yield key
        calls = item.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(key := call.get("id"), str) and key:
                yield key


def _text(fields: _Fields, name: str) -> str | None:
    """Return a field that is a text or a number, as text; None for an empty one, or one of another type."""
    value = msgspec.json.decode(fields[name]) if name in fields else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _conversation(fields: _Fields) -> str | None:
    value = msgspec.json.decode(fields["conversation"]) if "conversation" in fields else None
    if isinstance(value, dict):
        value = value.get("id")
    return value if isinstance(value, str) and value else None


# The context block.


def _with_block(asked: Asked, standing: str, found: str, *, in_question: bool) -> _Fields:
    fields = asked.fields
    question = _newest_question(asked) if found else None
    if found and question is None:
        # There is no question to put it before.
        standing = f"{standing}{GAP if standing else ''}{found}"
    elif question is not None:
        fields = question.with_text_before(found)
    if in_question:
        first = _first_question(asked, fields) if standing else None
        return fields if first is None else first.with_text_before(standing)
    name, changed = _CHANGES[asked.protocol](fields, standing)
    return fields if changed is None else {**fields, name: changed}


class _Question(msgspec.Struct, frozen=True):
    """A message of the user in the body: under a name, and at a place in the list there; None for a text alone."""

    fields: _Fields
    name: str
    place: int | None

    def with_text_before(self, block: str) -> _Fields:
        """Return the body with a block before what the message says."""
        given = self.fields[self.name]
        if self.place is None:
            return {**self.fields, self.name: _raw(text_after_block(msgspec.json.decode(given, type=str), block))}
        messages = msgspec.json.decode(given, type=list[Raw])
        message = msgspec.json.decode(messages[self.place], type=_Fields)
        kind = "text" if self.name == "messages" else "input_text"
        content = _content_after_block(message.get("content"), block, kind)
        messages[self.place] = _raw({**message, "content": content})
        return {**self.fields, self.name: _raw(messages)}


def _newest_question(asked: Asked) -> _Question | None:
    return next(_questions(asked.protocol, asked.fields, newest_first=True), None)


def _first_question(asked: Asked, fields: _Fields) -> _Question | None:
    return next(_questions(asked.protocol, fields, newest_first=False), None)


def _questions(protocol: Protocol, fields: _Fields, *, newest_first: bool) -> Iterator[_Question]:
    name = "messages" if protocol == "chat" else "input"
    given = fields.get(name)
    if given is None:
        return
    if bytes(given)[:1] == b'"':
        yield _Question(fields, name, None)
        return
    roles = _roles(msgspec.json.decode(given, type=list[Raw]))
    for place in reversed(range(len(roles))) if newest_first else range(len(roles)):
        if roles[place] == "user":
            yield _Question(fields, name, place)


def _roles(messages: Iterable[Raw]) -> list[object]:
    return [msgspec.json.decode(raw, type=_Role).role for raw in messages]


def _chat_with_block(fields: _Fields, block: str) -> tuple[str, Raw | None]:
    """Put a block at the end of the first system message, or into a new one before all others."""
    messages = msgspec.json.decode(fields["messages"], type=list[Raw])
    for n, role in enumerate(_roles(messages)):
        if role in _INSTRUCTING:
            message = msgspec.json.decode(messages[n], type=_Fields)
            content = _content_with_block(message.get("content"), block)
            if content is None:
                return "messages", None
            messages[n] = _raw({**message, "content": content})
            return "messages", _raw(messages)
    if not block:
        return "messages", None
    return "messages", _raw([{"role": "system", "content": block}, *messages])


def _responses_with_block(fields: _Fields, block: str) -> tuple[str, Raw | None]:
    return "instructions", _content_with_block(fields.get("instructions"), block)


_CHANGES: dict[Protocol, Callable[[_Fields, str], tuple[str, Raw | None]]] = {
    "chat": _chat_with_block,
    "responses": _responses_with_block,
}


def _content_after_block(raw: Raw | None, block: str, kind: str) -> Raw:
    """Return the content of a question with a block before it; `kind` is the type of a part of text."""
    content = None if raw is None else msgspec.json.decode(raw)
    if content is None or isinstance(content, str):
        return _raw(text_after_block(content or "", block))
    if not isinstance(content, list):
        raise UnreadableRequestError("a question of an unknown type")
    before = msgspec.json.decode(raw or b"[]", type=list[Raw])
    return _raw([{"type": kind, "text": f"{block}{GAP}"}, *_bare_parts(content, before)])


def _content_with_block(raw: Raw | None, block: str) -> Raw | None:
    """Return a content with a block at its end; None where nothing changes."""
    content = None if raw is None else msgspec.json.decode(raw)
    if content is None:
        return _raw(block) if block else None
    if isinstance(content, str):
        new = text_with_block(content, block)
        return None if new == content else _raw(new)
    if not isinstance(content, list):
        raise UnreadableRequestError("instructions of an unknown type")
    before = msgspec.json.decode(raw or b"[]", type=list[Raw])
    parts = list(_bare_parts(content, before))
    if block:
        parts.append(_raw({"type": "text", "text": f"{GAP if parts else ''}{block}"}))
    return None if parts == before else _raw(parts)


def _bare_parts(content: Iterable[object], raw: Iterable[Raw]) -> Iterator[Raw]:
    """Yield the parts of a content without a context block; drop a part that becomes empty."""
    for part, as_sent in zip(content, raw, strict=True):
        said = part.get("text") if isinstance(part, dict) else None
        if not isinstance(said, str) or (bare := without_block(said)) == said:
            yield as_sent
        elif bare.strip():
            yield _raw({**msgspec.json.decode(as_sent, type=_Fields), "text": bare})


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
