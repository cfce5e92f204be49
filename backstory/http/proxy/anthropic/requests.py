"""Requests of Anthropic's protocol: messages, and where a context block stands in them.

What stands is a block of `system` of its own, directly before the block with the caller's last cache mark: so it lies
within what the caller caches, and what other marks cache stays. What was found stands at the end of the newest
question, behind the caller's marks there: the request's bytes up to the question are the caller's, and are cached.

Anthropic means `metadata.user_id` for the user of an application. Coding agents put the name of their session there:
Claude Code a text such as `user_…_account_…_session_…`, and later a JSON object with a `session_id`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from backstory.http.proxy.answers import decoded, name_of
from backstory.http.proxy.protocol import (
    Aside,
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
    texts_of,
    value_of,
)
from backstory.integrations.prompt_block import text_with_block, without_block
from backstory.ledger.text.scaffolding import Scaffolding

_MARK = "cache_control"
_NULL = b"null"
_MOST_BEHIND = 12
"""Blocks behind a question up to which what was found stays with it.

From its marks a cache looks back over 20 blocks. The next question is without what this one found, so the mark on this
one is the last that holds, and has to be within sight.
"""


class MessagesAsked(Asked, frozen=True, kw_only=True):
    """A request of Anthropic's protocol."""

    def changed(self, standing: str, found: str, *, in_question: bool) -> RawFields:  # noqa: ARG002 there is `system`
        """Return the fields of the body with a block; the same ones where nothing changes."""
        fields = _with_found(self.fields, found) if found else self.fields
        return _with_standing(fields, standing)


def read_request(body: bytes, header: Callable[[str], str], scaffolding: Scaffolding) -> Asked:
    """Read a request.

    Args:
        body: Its body, as plain JSON.
        header: Returns the value of a header of it.
        scaffolding: What is taken out of its messages.

    Raises:
        UnreadableRequestError: The body is no JSON object, is nested too deep, or holds no conversation.
    """
    with reading():
        fields = fields_of(body)
        items, begun = _without_beginning(_items(fields))
        said = heard(items, scaffolding)
        user_id = _user_id(fields)
        return MessagesAsked(
            fields=fields,
            messages=said.messages,
            user=user_in(user_id),
            skipped=said.unreadable,
            calls=tuple(dict.fromkeys(_calls(items))),
            session=session_in(user_id, header),
            begun=begun,
            cuts=said.cuts,
            aside=_aside(items, fields, header, scaffolding),
        )


def _items(fields: RawFields) -> Sequence[Item]:
    sent = value_of(fields, "messages")
    if not isinstance(sent, list) or not all(isinstance(item, dict) for item in sent):
        raise UnreadableRequestError("no list of messages")
    return sent


def _without_beginning(items: Sequence[Item]) -> tuple[Sequence[Item], str]:
    """Return the messages without the beginning of the answer, and its text."""
    if not items or items[-1].get("role") != "assistant":
        return items, ""
    return items[:-1], "".join(texts_of(items[-1].get("content")))


def _aside(
    items: Iterable[Item], fields: RawFields, header: Callable[[str], str], scaffolding: Scaffolding
) -> Aside | None:
    # An answer of one token is none: so clients ask what is left of a quota, or warm a cache.
    if is_of_harness(header) or value_of(fields, "max_tokens") in (0, 1):
        return "side"
    return "title" if asks_for_title(items, value_of(fields, "system"), scaffolding) else None


def _user_id(fields: RawFields) -> str | None:
    metadata = value_of(fields, "metadata")
    return name_of(metadata.get("user_id")) if isinstance(metadata, Mapping) else None


def _calls(items: Sequence[Item]) -> Iterator[str]:
    """Yield the ids of the calls of tools, the newest first."""
    for item in reversed(items):
        for block in _blocks(item.get("content")):
            name = {"tool_result": "tool_use_id", "tool_use": "id"}.get(str(block.get("type")), "")
            if (key := name_of(block.get(name))) is not None:
                yield key


def _blocks(content: object) -> Iterator[Item]:
    yield from (block for block in (content if isinstance(content, list) else ()) if isinstance(block, dict))


# The context block.


def _with_standing(fields: RawFields, standing: str) -> RawFields:
    """Put what stands into `system`; other blocks of it keep their bytes."""
    content = value_of(fields, "system")
    if content is None:
        return {**fields, "system": raw(standing)} if standing else fields
    if isinstance(content, str):
        text = text_with_block(content, standing)
        return fields if text == content else {**fields, "system": raw(text)}
    if not isinstance(content, list):
        raise UnreadableRequestError("a system prompt of an unknown type")
    before = items_of(fields["system"])
    parts = list(bare_parts(content, before))
    if standing:
        parts.insert(_last_mark(parts), _block(standing))
    return fields if parts == before else {**fields, "system": raw(parts)}


def _last_mark(parts: Sequence[Raw]) -> int:
    """Return the index of the last part with a cache mark; where there is none, that of the end."""
    return next((n for n in range(len(parts) - 1, -1, -1) if _is_given(fields_of(parts[n]), _MARK)), len(parts))


def _with_found(fields: RawFields, found: str) -> RawFields:
    """Put what was found behind the newest question; the same fields where it has no place there."""
    messages = items_of(fields["messages"])
    question = _newest_question(messages)
    if question is None:
        return fields
    automatic = _is_given(fields, _MARK)
    if question.behind > _MOST_BEHIND and (automatic or question.marked):
        return fields
    message = fields_of(messages[question.place])
    parts = _parts(message)
    if not parts:
        return fields
    if automatic and question.place == len(messages) - 1:
        # It stands for a mark on the last block, which would be the one with what was found.
        last = fields_of(parts[-1])
        parts[-1] = parts[-1] if _is_given(last, _MARK) else raw({**last, _MARK: fields[_MARK]})
        fields = {name: value for name, value in fields.items() if name != _MARK}
    messages[question.place] = raw({**message, "content": [*parts, _block(found)]})
    return {**fields, "messages": raw(messages)}


class _Question(NamedTuple):
    """The place of a question, how many blocks are behind it, and whether it or one of them has a cache mark."""

    place: int
    behind: int
    marked: bool


def _newest_question(messages: Sequence[Raw]) -> _Question | None:
    """Find the newest message of the user that holds no result of a tool."""
    behind, marked = 0, False
    for place in range(len(messages) - 1, -1, -1):
        message = msgspec.json.decode(messages[place])
        content = message.get("content")
        blocks = list(_blocks(content))
        marked = marked or any(block.get(_MARK) is not None for block in blocks)
        if message.get("role") == "user" and not any(block.get("type") == "tool_result" for block in blocks):
            return _Question(place, behind, marked)
        behind += max(1, len(blocks))
    return None


def _parts(message: RawFields) -> list[Raw]:
    """Return the blocks of a message without an earlier context block."""
    content = value_of(message, "content")
    if isinstance(content, str):
        text = without_block(content)
        return [_block(text)] if text.strip() else []
    if not isinstance(content, list):
        raise UnreadableRequestError("a question of an unknown type")
    return list(bare_parts(content, items_of(message["content"])))


def _block(text: str) -> Raw:
    return raw({"type": "text", "text": text})


def _is_given(fields: RawFields, name: str) -> bool:
    return bytes(fields.get(name, _NULL)) != _NULL


_SESSION = re.compile(r"_session_([0-9A-Za-z-]+)", re.ASCII)
_SAYS_SESSION = re.compile(r"(?<![^\W_])session(?![^\W_])", re.IGNORECASE)
"""The word, and not a part of a name such as obsession: that user would be taken for the server's own."""
_CLASSES = frozenset({"auxiliary", "compaction", "subagent", "workflow"})
"""Values of `x-claude-code-request-class` but `main`."""


class _Names(msgspec.Struct):
    session_id: object = None


def user_in(user_id: str | None) -> str | None:
    """Return the user that a `metadata.user_id` names; None where it names a session: it says so, or is JSON."""
    if user_id is None or user_id.lstrip().startswith("{") or _SAYS_SESSION.search(user_id):
        return None
    return user_id


def session_in(user_id: str | None, header: Callable[[str], str]) -> str | None:
    """Return the session that a request belongs to; None where the client has none.

    Args:
        user_id: The `metadata.user_id` of the request.
        header: Returns the value of a header of the request.
    """
    stated = header("x-claude-code-session-id")
    if stated or user_id is None:
        return stated or None
    found = _SESSION.search(user_id)
    return _in_json(user_id) if found is None else found[1]


def _in_json(user_id: str) -> str | None:
    names = decoded(user_id, _Names)
    return None if names is None else name_of(names.session_id)


def is_of_harness(header: Callable[[str], str]) -> bool:
    """Whether Claude Code asks for itself: for a sub-agent, or for something about the conversation."""
    return bool(header("x-claude-code-agent-id")) or header("x-claude-code-request-class") in _CLASSES
