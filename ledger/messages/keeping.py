"""Messages of a conversation: each is read in any shape, and which of them are recorded; how a long one is cut.

A message that its host hides is recorded only where a person wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from typing import TypeAlias
from uuid import UUID

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.moments import parse_local, spell_moment, spell_offset
from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_NAME, bounded_name, clip, safe_json, safe_text
from backstory.ledger.messages.shapes import Content, block_fields, fields_of, is_call, is_item, plain, read_content
from backstory.ledger.text.blocks import spoken, strip_memory_blocks, strip_upload_blocks
from backstory.ledger.text.tags import readable_tags

KeepHidden: TypeAlias = "Callable[[Mapping[str, object]], bool]"
"""Returns whether a person wrote a hidden message, given its additional_kwargs."""

_SUMMARY = "summarization"


def is_hidden(
    extra: Mapping[str, object], *, flagged: bool, of_user: bool, keep_hidden: KeepHidden | None = None
) -> bool:
    """Whether a message is hidden and not part of the conversation.

    A user's message with an `lc_source` was made by LangChain. If it is a summary it is always hidden.

    Args:
        extra: the message's additional_kwargs.
        flagged: whether the host marked the message as hidden in another way.
        of_user: whether it is a user's message; a hidden message of another role stays hidden.
        keep_hidden: whether a person wrote a hidden message; `is_answer_of_a_person` by default.

    Raises:
        InputError: `keep_hidden` raised an error.
    """
    source = extra.get("lc_source") if of_user else None
    if isinstance(source, str) and source:
        if _SUMMARY in source:
            return True
    elif not (flagged or extra.get("hide_from_ui")):
        return False
    if not of_user:
        return True
    if keep_hidden is None:
        return not is_answer_of_a_person(extra)
    try:
        return not keep_hidden(extra)
    except Exception as error:
        raise InputError(f"keep_hidden failed on a hidden message with {type(error).__name__}: {error}") from error


def is_answer_of_a_person(extra: Mapping[str, object]) -> bool:
    """Whether a hidden message holds a person's answer to a question of the agent.

    This is a `human_input_response` of version 1 with a source, a request id and a value, and, if it chooses an option,
    the option's id. One with a missing field does not count.
    """
    answer = extra.get("human_input_response")
    if not isinstance(answer, Mapping) or answer.get("version") != 1 or answer.get("kind") != "human_input_response":
        return False
    needed = {"text": (), "option": ("option_id",)}.get(str(answer.get("response_kind")))
    if needed is None:
        return False
    values = [answer.get(name) for name in ("source", "request_id", "value", *needed)]
    return all(isinstance(value, str) and value.strip() for value in values)


_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}
_REMOVES = "remove"
"""The type of LangChain's order to remove a message from its history."""


class Message(msgspec.Struct, frozen=True):
    """A message that was read; `role` is user, assistant, tool or system, and `content` is one text."""

    role: str
    content: str = ""
    id: str | None = None
    name: str | None = None
    at: str | None = None
    offset: str | None = None
    """The offset of `at` from UTC as it was given, such as `-07:00`; None for UTC."""
    thread_id: str | None = None
    user_id: str | None = None
    agent_name: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}
    tags: tuple[str, ...] = ()
    calls_tools: bool = False
    hidden: bool = False
    is_call_item: bool = False
    """Whether this is a call or its output as a separate message, so that the agent's answer is still to come."""
    is_chunk: bool = False
    """Whether this is a streamed message, whole or one of several chunks with the same id."""
    answer: str | None = None
    """The content without blocks of an agent's reasoning that has no end; None where there are none."""


def read_message(message: object, keep_hidden: KeepHidden | None = None, *, ends: int | None = None) -> Message:
    """Read one message.

    Args:
        message: a message in one of the shapes of `shapes`; a Message is returned as it is.
        keep_hidden: whether a person wrote a hidden message; if so, it does not count as hidden.
        ends: if given, only this many blocks of the beginning and of the end of a content are read.

    Raises:
        InputError: The object is not a message, or a field is not valid; the text names the field.
    """
    if isinstance(message, Message):
        return message
    try:
        return _message(fields_of(message), keep_hidden, ends)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        # Attributes and methods of a foreign object may raise anything.
        raise InputError(
            f"cannot read a message of type {type(message).__name__}: {type(error).__name__}; give it as a dict with "
            "role and content"
        ) from error


def _message(fields: Mapping[str, object], keep_hidden: KeepHidden | None, ends: int | None) -> Message:
    kind, extra = fields.get("type"), fields.get("additional_kwargs")
    # `isinstance` with Mapping runs Python code, which most messages are spared here and in `fields_of`.
    if extra is None or not (type(extra) is dict or isinstance(extra, Mapping)):
        extra = {}
    if fields.get("role") is None and (is_item(kind) or kind == _REMOVES):
        role, content = "tool", Content()
    else:
        given = fields.get("content")
        role = _role(fields)
        if given is None and role == "user" and not _HOLDS.intersection(fields):
            keys = ", ".join(repr(str(key)[:40]) for key in list(fields)[:8])
            raise InputError(
                f"content is missing: a user's message needs its text or blocks there, and has only {keys}"
            )
        content = read_content(fields.get("content_blocks") if given is None else given, ends)
    metadata = _metadata(fields)
    at = _moment(fields.get("at"))
    return Message(
        role="tool" if content.results and role == "user" and not content.text.strip() else role,
        content=content.text or _refusal_or_audio(fields, extra),
        id=_name(fields, "id"),
        name=_name(fields, "name"),
        at=None if at is None else spell_moment(at),
        offset=None if at is None else spell_offset(at),
        thread_id=_name(fields, "thread_id"),
        user_id=_name(fields, "user_id"),
        agent_name=_name(fields, "agent_name"),
        cause_by=_name(fields, "cause_by"),
        sent_from=_name(fields, "sent_from"),
        send_to=_names(fields.get("send_to")),
        metadata=metadata,
        tags=readable_tags(fields.get("tags")),
        calls_tools=content.calls or _calls_tools(fields, extra),
        hidden=is_hidden(
            extra,
            flagged=bool(fields.get("hidden") or metadata.get("hidden")),
            of_user=role == "user",
            keep_hidden=keep_hidden,
        ),
        is_call_item=role == "tool" and is_call(kind),
        is_chunk=isinstance(kind, str) and kind.endswith("MessageChunk"),
        answer=content.answer if role == "assistant" else None,
    )


def _role(fields: Mapping[str, object]) -> str:
    field = "type" if not fields.get("role") and fields.get("type") else "role"
    value = fields.get(field)
    role = _ROLES.get(value) if isinstance(value, str) else None
    if role is None and isinstance(value, str):
        # LangChain's type of a streamed message is AIMessageChunk, and its serialiser gives the class name.
        role = _ROLES.get(value.strip().casefold().removesuffix("chunk").removesuffix("message"))
    if role is None:
        given = repr(value[:40]) if isinstance(value, str) else "nothing" if value is None else type(value).__name__
        raise InputError(
            f"{field} must be one of {', '.join(_ROLES)}, got {given}; only items of the Responses API have other types"
        )
    return role


def _refusal_or_audio(fields: Mapping[str, object], extra: Mapping[str, object]) -> str:
    """Return the text of an answer without content: a refusal, or the transcript of its audio."""
    refusal = fields.get("refusal") or extra.get("refusal")
    if isinstance(refusal, str):
        return plain(refusal)
    audio = fields.get("audio") or extra.get("audio")
    transcript = block_fields(audio).get("transcript") if audio else None
    return plain(transcript) if isinstance(transcript, str) else ""


def _calls_tools(fields: Mapping[str, object], extra: Mapping[str, object]) -> bool:
    """Whether a message is not a final answer: it calls tools, validly or not, or is a commentary."""
    return bool(
        fields.get("tool_calls")
        or fields.get("function_call")
        or fields.get("invalid_tool_calls")
        or fields.get("tool_call_chunks")
        or extra.get("tool_calls")
        or extra.get("function_call")
        or fields.get("phase") == "commentary"
    )


def _name(fields: Mapping[str, object], field: str) -> str | None:
    value = fields.get(field)
    return value if value is None or type(value) is str else _name_text(field, value)


def _name_text(field: str, value: object) -> str:
    """Return a name or an id as a text; integers and UUIDs are allowed."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        try:
            return str(value)
        except ValueError as error:
            raise InputError(f"{field} must be a name, got a number of more than 4,300 digits") from error
    raise InputError(f"{field} must be a text or a whole number, got {type(value).__name__}")


def _names(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (plain(value),)
    if not isinstance(value, list | tuple | set | frozenset):
        raise InputError(f"send_to must be a name or a list of names, got {type(value).__name__}")
    names = [_name_text("send_to", name) for name in value]
    # The order of a set differs between processes, but the same input must give the same turn.
    return tuple(sorted(names) if isinstance(value, set | frozenset) else names)


def _moment(value: object) -> datetime | None:
    """Return a time with its own offset; one without an offset is UTC."""
    if value is None:
        return None
    text = value.isoformat() if isinstance(value, datetime) else value
    moment = parse_local(text) if isinstance(text, str) else None
    if moment is None:
        given = repr(value[:40]) if isinstance(value, str) else type(value).__name__
        raise InputError(f"at must be an ISO 8601 time like 2026-03-12T10:30:00Z, got {given}")
    return moment


def _metadata(fields: Mapping[str, object]) -> dict[str, object]:
    metadata, instruct = fields.get("metadata"), fields.get("instruct_content")
    if metadata is None and instruct is None:
        return {}
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InputError(f"metadata must be an object, got {type(metadata).__name__}")
    given = {**(metadata or {}), **({} if instruct is None else {"instruct_content": instruct})}
    if not all(isinstance(key, str) for key in given):
        raise InputError("metadata must be an object whose keys are texts")
    safe = safe_json(given)
    return dict(safe) if isinstance(safe, dict) else {}


_HOLDS = frozenset({"content", "content_blocks", "refusal", "audio"})
"""Where a message has its words. A user's message with none of them has them elsewhere, and they would be lost."""
_LONG = 1_000
_HEAD = 600
_TAIL = 300


class Kept(msgspec.Struct, frozen=True, gc=False):
    """A message to record, sanitized; `cut` is the number of characters that it was too long by."""

    role: str
    content: str
    id: str | None = None
    name: str | None = None
    at: str | None = None
    offset: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}
    cut: int = 0
    told: str | None = None
    """The content with the reasoning that was left out; None where none was."""
    tags: tuple[str, ...] = ()


def keep(messages: Iterable[Message]) -> list[Kept]:
    """Return the messages of a conversation to record, in order.

    A user's message that only holds an upload is dropped with the answer that follows it. One that only holds our own
    memory block is dropped without an answer, as if it were not there. If an agent makes calls as separate messages,
    only what it says after the last of them is its answer.

    Reasoning at the beginning of an agent's message is left out. Where it has no end it is left out with all of the
    message, if the agent says more before the user does; else it is kept, since it may be the answer.
    """
    kept: list[Kept] = []
    answer_start = 0  # where in `kept` the answer to the last user's message begins
    skip_answer = skipped = False
    for message in _whole(messages):
        if message.is_call_item:
            del kept[answer_start:]
            skip_answer, skipped = skip_answer or skipped, False
        if message.hidden or message.role not in ("user", "assistant"):
            if message.role == "user":
                answer_start, skipped = len(kept), False
            continue
        content = safe_text(message.content)
        no_uploads = strip_upload_blocks(content)
        text = strip_memory_blocks(no_uploads)
        if message.role == "user":
            if text.strip() or not content.strip():
                skip_answer = skipped = False
            elif no_uploads is not content and strip_memory_blocks(content).strip():
                skip_answer = True
        elif message.calls_tools:
            continue
        elif skip_answer:
            skip_answer, skipped = False, True
            continue
        said = _said(message, text)
        if said.strip():
            kept.append(_kept(message, said, told=None if said == text else text))
        if message.role == "user":
            answer_start = len(kept)
    return _without_open_reasoning(kept)


def _said(message: Message, text: str) -> str:
    """Return the text of a message without an agent's reasoning."""
    if message.role != "assistant":
        return text
    if message.answer is not None:
        text = strip_memory_blocks(strip_upload_blocks(safe_text(message.answer)))
    return spoken(text).text


def _without_open_reasoning(kept: list[Kept]) -> list[Kept]:
    """Leave out reasoning without an end that the agent's answer follows."""
    found: list[Kept] = []
    is_answered = False
    for message in reversed(kept):
        if message.role == "user":
            is_answered = False
        elif not spoken(message.content).is_open:
            is_answered = True
        elif is_answered:
            continue
        found.append(message)
    return found[::-1]


def _whole(messages: Iterable[Message]) -> Iterator[Message]:
    """Join the chunks of a streamed answer, which follow each other and share their id."""
    for answer, group in groupby(messages, lambda one: (one.role, one.id) if one.is_chunk and one.id else None):
        if answer is None:
            yield from group
        else:
            yield _joined(list(group))


def _joined(chunks: list[Message]) -> Message:
    if len(chunks) == 1:
        return chunks[0]
    return msgspec.structs.replace(
        chunks[0],
        content="".join([chunk.content for chunk in chunks]),
        calls_tools=any(chunk.calls_tools for chunk in chunks),
        hidden=any(chunk.hidden for chunk in chunks),
        answer=None,
    )


def _kept(message: Message, text: str, *, told: str | None = None) -> Kept:
    return Kept(
        role=message.role,
        content=clip(text, MAX_CONTENT),
        id=bounded_name(message.id) if message.id else None,
        name=_clipped(message.name),
        at=message.at,
        offset=message.offset,
        cause_by=_clipped(message.cause_by),
        sent_from=_clipped(message.sent_from),
        send_to=tuple([clip(to, MAX_NAME) for to in message.send_to]),
        metadata=message.metadata,
        tags=message.tags,
        cut=max(0, len(text) - MAX_CONTENT),
        told=None if told is None else clip(told, MAX_CONTENT),
    )


def _clipped(value: str | None) -> str | None:
    return clip(value, MAX_NAME) if value else None


def abridge(text: str) -> str:
    """Cut a text of more than 1,000 characters to its head, its tail and a mark that says how much was cut."""
    if len(text) <= _LONG:
        return text
    return f"{text[:_HEAD]}\n… [{len(text) - _HEAD - _TAIL} characters cut] …\n{text[-_TAIL:]}"
