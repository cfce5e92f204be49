"""Read one message, whatever its shape, as what the rest of the ledger knows (row D1)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.core.sanitize import safe_json
from backstory.ledger.messages.content import Spoken, block_fields, plain, spoken
from backstory.ledger.messages.hidden import KeepHidden, is_hidden
from backstory.ledger.messages.shapes import fields_of, is_call, is_item, kind_of

__all__ = ["Message", "read_message"]

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
"""LangChain's order to drop a message from its own history."""


class Message(msgspec.Struct, frozen=True):
    """A message as it was read; `role` is user, assistant, tool or system, `content` one text."""

    role: str
    content: str = ""
    id: str | None = None
    name: str | None = None
    at: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    agent_name: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}
    calls_tools: bool = False
    hidden: bool = False
    goes_on: bool = False
    """A call, or what it gave, that stands for itself: the agent had not finished with what it said before."""
    is_chunk: bool = False
    """A streamed message, whole or a piece of one; pieces in a row have one id."""


def read_message(message: object, keep_hidden: KeepHidden | None = None, *, ends: int | None = None) -> Message:
    """Read one message: a dict of the contract's shape, a LangChain message or an OpenAI one, or what looks like one.

    `keep_hidden` is asked about a message its host hides; what it keeps is not hidden. With `ends` only so many blocks
    of either end of a content are looked at, for whoever needs no more of it than that.

    Raises:
        InputError: it is none of these; the text names the field.
    """
    if isinstance(message, Message):
        return message
    try:
        return _message(fields_of(message), keep_hidden, ends)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        # Whatever the object is, looking at it is what failed.
        raise InputError(
            f"a message is {kind_of(message)} that cannot be read: {type(error).__name__}; give it as a dict with role "
            "and content"
        ) from error


def _message(fields: Mapping[str, object], keep_hidden: KeepHidden | None, ends: int | None) -> Message:
    kind, extra = fields.get("type"), fields.get("additional_kwargs")
    extra = extra if type(extra) is dict or isinstance(extra, Mapping) else {}
    if fields.get("role") is None and (is_item(kind) or kind == _REMOVES):
        role, said = "tool", Spoken()
    else:
        content = fields.get("content")
        role = _role(fields)
        said = spoken(fields.get("content_blocks") if content is None else content, ends)
    metadata = _metadata(fields)
    return Message(
        role="tool" if said.results and role == "user" and not said.text.strip() else role,
        content=said.text or _otherwise_said(fields, extra),
        id=_name(fields, "id"),
        name=_name(fields, "name"),
        at=_moment(fields.get("at")),
        thread_id=_name(fields, "thread_id"),
        user_id=_name(fields, "user_id"),
        agent_name=_text("agent_name", fields.get("agent_name")),
        cause_by=_name(fields, "cause_by"),
        sent_from=_name(fields, "sent_from"),
        send_to=_names(fields.get("send_to")),
        metadata=metadata,
        calls_tools=said.calls or _calls_tools(fields, extra),
        hidden=is_hidden(
            extra,
            flagged=bool(fields.get("hidden") or metadata.get("hidden")),
            of_user=role == "user",
            keep_hidden=keep_hidden,
        ),
        goes_on=role == "tool" and is_call(kind),
        is_chunk=isinstance(kind, str) and kind.endswith("MessageChunk"),
    )


def _role(fields: Mapping[str, object]) -> str:
    field = "type" if not fields.get("role") and fields.get("type") else "role"
    value = fields.get(field)
    role = _ROLES.get(value) if isinstance(value, str) else None
    if role is None and isinstance(value, str):
        # LangChain names a message that was streamed AIMessageChunk, and its serialiser names the class.
        role = _ROLES.get(value.strip().casefold().removesuffix("chunk").removesuffix("message"))
    if role is None:
        given = repr(value[:40]) if isinstance(value, str) else "missing" if value is None else type(value).__name__
        raise InputError(
            f"{field} is {given}; the role of a message is one of {', '.join(_ROLES)}, or its type is that of an item "
            "of the Responses API"
        )
    return role


def _otherwise_said(fields: Mapping[str, object], extra: Mapping[str, object]) -> str:
    """Return what an answer without content says: a refusal, or words that were spoken aloud."""
    refusal = fields.get("refusal") or extra.get("refusal")
    if isinstance(refusal, str):
        return plain(refusal)
    audio = fields.get("audio") or extra.get("audio")
    aloud = block_fields(audio).get("transcript") if audio else None
    return plain(aloud) if isinstance(aloud, str) else ""


def _calls_tools(fields: Mapping[str, object], extra: Mapping[str, object]) -> bool:
    """Whether a message is no final answer: it calls tools, however badly, or says itself that it goes on."""
    return bool(
        fields.get("tool_calls")
        or fields.get("function_call")
        or fields.get("invalid_tool_calls")
        or fields.get("tool_call_chunks")
        or extra.get("tool_calls")
        or extra.get("function_call")
        or fields.get("phase") == "commentary"
    )


def _text(field: str, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return plain(value)
    raise InputError(f"{field} is {type(value).__name__}; it is a text")


def _name(fields: Mapping[str, object], field: str) -> str | None:
    value = fields.get(field)
    return value if value is None or type(value) is str else _spelled(field, value)


def _spelled(field: str, value: object) -> str:
    """Spell a name or an id; a number will do for one."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        try:
            return str(value)
        except ValueError as error:
            raise InputError(f"{field} is a number of thousands of digits; it is a name") from error
    raise InputError(f"{field} is {type(value).__name__}; it is a text or a number")


def _names(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (plain(value),)
    if not isinstance(value, list | tuple | set | frozenset):
        raise InputError(f"send_to is {type(value).__name__}; it is a name or a list of names")
    names = [_spelled("send_to", name) for name in value]
    # A set has an order of its own in every process, and the same input leads to the same turn.
    return tuple(sorted(names) if isinstance(value, set | frozenset) else names)


def _moment(value: object) -> str | None:
    if value is None:
        return None
    moment = parse_moment(value) if isinstance(value, str) else None
    if moment is None:
        given = repr(value[:40]) if isinstance(value, str) else type(value).__name__
        raise InputError(f"at is {given}; it is a time in ISO 8601, as 2026-03-12T10:30:00Z")
    return spell_moment(moment)


def _metadata(fields: Mapping[str, object]) -> dict[str, object]:
    metadata, instruct = fields.get("metadata"), fields.get("instruct_content")
    if metadata is None and instruct is None:
        return {}
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InputError(f"metadata is {type(metadata).__name__}; it is an object")
    given = {**(metadata or {}), **({} if instruct is None else {"instruct_content": instruct})}
    if not all(isinstance(key, str) for key in given):
        raise InputError("metadata has a key that is no text; it is an object with texts for keys")
    safe = safe_json(given)
    return dict(safe) if isinstance(safe, dict) else {}
