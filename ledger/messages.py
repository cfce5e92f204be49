"""Messages as hosts send them, and what of them is kept (rows D1 to D3 and D5).

Kept are what people said and what the agent finally answered. Tool results, system messages, hidden ones, answers that
only call tools, upload blocks and our own injected memory are not; the rest is kept byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ledger.blocks import strip_memory_blocks, strip_upload_blocks
from ledger.clock import parse_moment, spell_moment
from ledger.errors import InputError
from ledger.sanitize import MAX_CONTENT, MAX_NAME, Json, clip, safe_json, safe_text

__all__ = ["Kept", "Message", "abridge", "keep", "read_message"]

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
_NOT_SPOKEN = frozenset({"thinking", "reasoning", "redacted_thinking"})
_LONG = 1_000
_HEAD = 600
_TAIL = 300


class Message(BaseModel):
    """A message as it enters; `role` is user, assistant, tool or system afterwards, `content` one text."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

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
    metadata: dict[str, object] = Field(default_factory=dict)
    calls_tools: bool = False
    hidden: bool = False

    @field_validator("id", "name", "thread_id", "user_id", "cause_by", "sent_from", mode="before")
    @classmethod
    def _name(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("send_to", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list | tuple | set | frozenset):
            names = tuple([cls._name(name) for name in value])
            # A set has an order of its own in every process, and the same input leads to the same turn.
            return tuple(sorted(names, key=str)) if isinstance(value, set | frozenset) else names
        raise ValueError(f"send_to is {type(value).__name__}; it is a name or a list of names")

    @field_validator("role")
    @classmethod
    def _known_role(cls, value: str) -> str:
        # LangChain names a message that was streamed AIMessageChunk, whole as it may be by now.
        role = _ROLES.get(value.strip().casefold().removesuffix("messagechunk"))
        if role is None:
            raise ValueError(f"role is {value[:40]!r}; it is one of {', '.join(_ROLES)}")
        return role

    @field_validator("at")
    @classmethod
    def _moment(cls, value: str | None) -> str | None:
        if value is None:
            return None
        moment = parse_moment(value)
        if moment is None:
            raise ValueError(f"at is {value[:40]!r}; it is a time in ISO 8601, as 2026-03-12T10:30:00Z")
        return spell_moment(moment)


_AS_SENT = (
    "id",
    "name",
    "at",
    "thread_id",
    "user_id",
    "agent_name",
    "cause_by",
    "sent_from",
    "send_to",
)
_ATTRIBUTES = (
    *_AS_SENT,
    "role",
    "type",
    "content",
    "tool_calls",
    "function_call",
    "additional_kwargs",
    "hidden",
)
"""What is looked at of an object that cannot be dumped to a dict."""


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a message, made safe to store."""

    role: str
    content: str
    id: str | None = None
    name: str | None = None
    at: str | None = None
    cause_by: str | None = None
    sent_from: str | None = None
    send_to: tuple[str, ...] = ()
    metadata: dict[str, object] = {}


def _spoken(content: object) -> str:
    """Join a content given as blocks; what was thought and not said is left out."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise InputError(f"content is {type(content).__name__}; it is a text or a list of blocks")
    parts = []
    for block in content:
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, Mapping):
            kind, text = block.get("type"), block.get("text")
            if isinstance(text, str) and not (isinstance(kind, str) and kind in _NOT_SPOKEN):
                parts.append(text)
    return " ".join(parts)


def _fields(message: object) -> Mapping[str, object]:
    if isinstance(message, Mapping):
        return message
    dump = getattr(message, "model_dump", None)
    cause: Exception | None = None
    if callable(dump):
        try:
            dumped = dump()
        except Exception as error:  # noqa: BLE001 the object is somebody else's
            cause = error
        else:
            if isinstance(dumped, Mapping):
                return dumped
    elif not isinstance(message, msgspec.Struct):
        # Those are ours: a turn that was read has a number of its conversation for an id, which may be another's here.
        try:
            said = {name: getattr(message, name) for name in _ATTRIBUTES if hasattr(message, name)}
        except Exception as error:  # noqa: BLE001 the object is somebody else's
            cause = error
        else:
            if "content" in said and any(isinstance(said.get(name), str) for name in ("role", "type")):
                return said
    kind = type(message).__name__
    raise InputError(
        f"a message is {'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}; it is a dict, a LangChain message or an "
        "OpenAI message"
    ) from cause


def read_message(message: object) -> Message:
    """Read one message: a dict of the contract's shape, a LangChain message or an OpenAI one, or what looks like one.

    Raises:
        InputError: it is none of these; the text names the field.
    """
    fields = _fields(message)
    extra = fields.get("additional_kwargs")
    extra = extra if isinstance(extra, Mapping) else {}
    metadata = fields.get("metadata")
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, Mapping):
        raise InputError(f"metadata is {type(metadata).__name__}; it is an object")
    instruct = fields.get("instruct_content")
    known = {name: value for name in _AS_SENT if (value := fields.get(name)) is not None}
    known["role"] = fields.get("role") or fields.get("type")
    known["content"] = _spoken(fields.get("content"))
    if metadata or instruct is not None:
        known["metadata"] = dict(metadata) if instruct is None else {**metadata, "instruct_content": instruct}
    if fields.get("tool_calls") or fields.get("function_call") or extra.get("tool_calls"):
        known["calls_tools"] = True
    if fields.get("hidden") or metadata.get("hidden") or extra.get("hide_from_ui"):
        known["hidden"] = True
    try:
        return Message.model_validate(known)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "message"
        raise InputError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


def keep(messages: Iterable[Message]) -> list[Kept]:
    """Return what is kept of a conversation, in order.

    A message that is nothing but an upload is dropped and takes the answer that follows it along. One that is nothing
    but our own memory block is dropped as if it were not there: it is no question, so no answer is its answer.
    """
    kept: list[Kept] = []
    skip_answer = False
    for message in messages:
        if message.hidden or message.role not in ("user", "assistant"):
            continue
        content = safe_text(message.content)
        text = strip_memory_blocks(strip_upload_blocks(content))
        if message.role == "user":
            if text.strip() or not content.strip():
                skip_answer = False
            elif strip_memory_blocks(content).strip():
                skip_answer = True
        elif message.calls_tools:
            continue
        elif skip_answer:
            skip_answer = False
            continue
        if text.strip():
            kept.append(_kept(message, text))
    return kept


def _kept(message: Message, text: str) -> Kept:
    return Kept(
        role=message.role,
        content=clip(text, MAX_CONTENT),
        id=_identity(message.id),
        name=_named(message.name),
        at=message.at,
        cause_by=_named(message.cause_by),
        sent_from=_named(message.sent_from),
        send_to=tuple([clip(to, MAX_NAME) for to in message.send_to]),
        metadata=_as_objects(safe_json(message.metadata)) if message.metadata else {},
    )


def _identity(value: str | None) -> str | None:
    """Bound an id without making two alike: a long one is cut and carries its digest."""
    clean = safe_text(value) if value else None
    if clean is None or len(clean) <= MAX_NAME:
        return clean
    digest = hashlib.sha256(clean.encode()).hexdigest()
    return f"{clean[: MAX_NAME - len(digest) - 1]}…{digest}"


def _named(value: str | None) -> str | None:
    return clip(value, MAX_NAME) if value else None


def _as_objects(value: Json) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def abridge(text: str) -> str:
    """Cut a long text for the prompt: its head and tail, and a mark that says how much is between (row D5)."""
    if len(text) <= _LONG:
        return text
    return f"{text[:_HEAD]}\n… [{len(text) - _HEAD - _TAIL} characters cut] …\n{text[-_TAIL:]}"
