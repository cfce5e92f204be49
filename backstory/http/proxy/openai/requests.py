"""Requests of OpenAI's protocol: chat completions and the Responses API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw

from backstory.http.proxy.protocol import (
    Asked,
    Item,
    RawFields,
    UnreadableRequestError,
    asks_for_title,
    bare_parts,
    fields_of,
    heard,
    items_of,
    raw,
    reading,
    roles_of,
    text_of,
    value_of,
)
from backstory.integrations.prompt_block import GAP, text_after_block, text_with_block
from backstory.ledger.text.scaffolding import Scaffolding

Api: TypeAlias = Literal["chat", "responses"]
"""Chat completions, or the Responses API."""

_INSTRUCTING = ("system", "developer")


class OpenAIAsked(Asked, frozen=True, kw_only=True):
    """A request of OpenAI's protocol."""

    kind: Api

    @property
    def instructs(self) -> bool:
        """Whether the request has instructions of its own, or a place for them beside the messages."""
        return self.kind == "responses" or any(
            role in _INSTRUCTING for role in roles_of(items_of(self.fields["messages"]))
        )

    @property
    def names_answers(self) -> bool:
        """Whether a later request may name the answer by its id instead of sending it."""
        return self.kind == "responses"

    @property
    def goes_on(self) -> bool:
        """Whether it may hold nothing but what is new in a conversation."""
        return bool(self.follows or self.conversation or self.calls)

    def changed(self, standing: str, found: str, *, in_question: bool) -> RawFields:
        """Return the fields of the body with a block; what was found goes directly before the newest question."""
        fields = self.fields
        question = _newest_question(self) if found else None
        if found and question is None:
            # There is no question to put it before.
            standing = f"{standing}{GAP if standing else ''}{found}"
        elif question is not None:
            fields = question.with_text_before(found)
        if in_question:
            first = _first_question(self, fields) if standing else None
            return fields if first is None else first.with_text_before(standing)
        name, changed = _CHANGES[self.kind](fields, standing)
        return fields if changed is None else {**fields, name: changed}


def read_request(kind: Api, body: bytes, scaffolding: Scaffolding) -> Asked:
    """Read a request.

    Args:
        kind: Which of the two it is.
        body: Its body, as plain JSON.
        scaffolding: What is taken out of its messages.

    Raises:
        UnreadableRequestError: The body is no JSON object, is nested too deep, or holds no conversation.
    """
    with reading():
        fields = fields_of(body)
        items = list(_items(kind, fields))
        said = heard(items, scaffolding)
        return OpenAIAsked(
            kind=kind,
            fields=fields,
            messages=said.messages,
            user=text_of(fields, "user"),
            skipped=said.unreadable,
            cuts=said.cuts,
            aside="title" if asks_for_title(items, text_of(fields, "instructions"), scaffolding) else None,
            safety_identifier=text_of(fields, "safety_identifier"),
            calls=tuple(dict.fromkeys(_calls(reversed(items)))),
            follows=text_of(fields, "previous_response_id"),
            conversation=_conversation(fields),
        )


def _items(kind: Api, fields: RawFields) -> Iterator[Item]:
    given = fields.get("messages" if kind == "chat" else "input")
    if given is None:
        if kind == "chat":
            raise UnreadableRequestError("no messages")
        return
    sent = msgspec.json.decode(given)
    if isinstance(sent, str) and kind == "responses":
        sent = [{"role": "user", "content": sent}]
    if not isinstance(sent, list) or not all(isinstance(item, dict) for item in sent):
        raise UnreadableRequestError("no list of messages")
    yield from sent


def _calls(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        for name in ("tool_call_id", "call_id"):
            if isinstance(key := item.get(name), str) and key:
                yield key
        calls = item.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(key := call.get("id"), str) and key:
                yield key


def _conversation(fields: RawFields) -> str | None:
    value = value_of(fields, "conversation")
    if isinstance(value, dict):
        value = value.get("id")
    return value if isinstance(value, str) and value else None


# The context block.


class _Question(msgspec.Struct, frozen=True):
    """A message of the user in the body: under a name, and at a place in the list there; None for a text alone."""

    fields: RawFields
    name: str
    place: int | None

    def with_text_before(self, block: str) -> RawFields:
        """Return the body with a block before what the message says."""
        given = self.fields[self.name]
        if self.place is None:
            return {**self.fields, self.name: raw(text_after_block(msgspec.json.decode(given, type=str), block))}
        messages = items_of(given)
        message = fields_of(messages[self.place])
        kind = "text" if self.name == "messages" else "input_text"
        content = _content_after_block(message.get("content"), block, kind)
        messages[self.place] = raw({**message, "content": content})
        return {**self.fields, self.name: raw(messages)}


def _newest_question(asked: OpenAIAsked) -> _Question | None:
    return next(_questions(asked.kind, asked.fields, newest_first=True), None)


def _first_question(asked: OpenAIAsked, fields: RawFields) -> _Question | None:
    return next(_questions(asked.kind, fields, newest_first=False), None)


def _questions(kind: Api, fields: RawFields, *, newest_first: bool) -> Iterator[_Question]:
    name = "messages" if kind == "chat" else "input"
    given = fields.get(name)
    if given is None:
        return
    if bytes(given)[:1] == b'"':
        yield _Question(fields, name, None)
        return
    roles = roles_of(items_of(given))
    for place in reversed(range(len(roles))) if newest_first else range(len(roles)):
        if roles[place] == "user":
            yield _Question(fields, name, place)


def _chat_with_block(fields: RawFields, block: str) -> tuple[str, Raw | None]:
    """Put a block at the end of the first system message, or into a new one before all others."""
    messages = items_of(fields["messages"])
    for n, role in enumerate(roles_of(messages)):
        if role in _INSTRUCTING:
            message = fields_of(messages[n])
            content = _content_with_block(message.get("content"), block)
            if content is None:
                return "messages", None
            messages[n] = raw({**message, "content": content})
            return "messages", raw(messages)
    if not block:
        return "messages", None
    return "messages", raw([{"role": "system", "content": block}, *messages])


def _responses_with_block(fields: RawFields, block: str) -> tuple[str, Raw | None]:
    return "instructions", _content_with_block(fields.get("instructions"), block)


_CHANGES: dict[Api, Callable[[RawFields, str], tuple[str, Raw | None]]] = {
    "chat": _chat_with_block,
    "responses": _responses_with_block,
}


def _content_after_block(given: Raw | None, block: str, kind: str) -> Raw:
    """Return the content of a question with a block before it; `kind` is the type of a part of text."""
    content = None if given is None else msgspec.json.decode(given)
    if content is None or isinstance(content, str):
        return raw(text_after_block(content or "", block))
    if not isinstance(content, list):
        raise UnreadableRequestError("a question of an unknown type")
    return raw([{"type": kind, "text": f"{block}{GAP}"}, *bare_parts(content, items_of(given or b"[]"))])


def _content_with_block(given: Raw | None, block: str) -> Raw | None:
    """Return a content with a block at its end; None where nothing changes."""
    content = None if given is None else msgspec.json.decode(given)
    if content is None:
        return raw(block) if block else None
    if isinstance(content, str):
        new = text_with_block(content, block)
        return None if new == content else raw(new)
    if not isinstance(content, list):
        raise UnreadableRequestError("instructions of an unknown type")
    before = items_of(given or b"[]")
    parts = list(bare_parts(content, before))
    if block:
        parts.append(raw({"type": "text", "text": f"{GAP if parts else ''}{block}"}))
    return None if parts == before else raw(parts)
