"""Requests of OpenAI's protocol: chat completions and the Responses API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw

from backstory.http.proxy.answers import name_of
from backstory.http.proxy.openai.answers import call_ids
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
        question = next(_questions(self.kind, fields, newest_first=True), None) if found else None
        if found and question is None:
            # There is no question to put it before.
            standing = f"{standing}{GAP if standing else ''}{found}"
        elif question is not None:
            fields = question.with_text_before(found)
        if in_question:
            first = next(_questions(self.kind, fields, newest_first=False), None) if standing else None
            return fields if first is None else first.with_text_before(standing)
        return _chat_with_block(fields, standing) if self.kind == "chat" else _responses_with_block(fields, standing)


def read_request(kind: Api, body: bytes, _: Callable[[str], str], scaffolding: Scaffolding) -> Asked:
    """Read a request; none of its headers counts.

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
            if (key := name_of(item.get(name))) is not None:
                yield key
        yield from call_ids(item.get("tool_calls"))


def _conversation(fields: RawFields) -> str | None:
    value = value_of(fields, "conversation")
    return name_of(value.get("id") if isinstance(value, dict) else value)


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


def _chat_with_block(fields: RawFields, block: str) -> RawFields:
    """Put a block at the end of the first system message, or into a new one before all others."""
    messages = items_of(fields["messages"])
    for n, role in enumerate(roles_of(messages)):
        if role in _INSTRUCTING:
            message = fields_of(messages[n])
            content = _content_with_block(message.get("content"), block)
            if content is None:
                return fields
            messages[n] = raw({**message, "content": content})
            return {**fields, "messages": raw(messages)}
    return {**fields, "messages": raw([{"role": "system", "content": block}, *messages])} if block else fields


def _responses_with_block(fields: RawFields, block: str) -> RawFields:
    content = _content_with_block(fields.get("instructions"), block)
    return fields if content is None else {**fields, "instructions": content}


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
