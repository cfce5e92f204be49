"""Shapes of messages and of their content, each converted to a mapping of fields or to one text.

Known shapes are a dict as OpenAI and Anthropic write it, a LangChain message and its `messages_to_dict` and `dumpd`, a
pair of role and text, an OpenAI object, and an item of the Responses API. A content may be a list of blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.text.blocks import spoken

AS_SENT = ("id", "name", "at", "thread_id", "user_id", "agent_name", "cause_by", "sent_from", "send_to")
"""Fields that are recorded as sent."""

_ATTRIBUTES = (
    *AS_SENT,
    "role",
    "type",
    "content",
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_chunks",
    "function_call",
    "additional_kwargs",
    "refusal",
    "audio",
    "phase",
    "hidden",
)
"""The attributes that are read from an object that cannot be dumped to a dict."""

_ITEMS = frozenset(
    {
        "additional_tools",
        "compaction",
        "compaction_trigger",
        "configuration_update",
        "item_reference",
        "program",
        "reasoning",
    }
)
_CALLS = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "custom_tool_call",
        "function_call",
        "local_shell_call",
        "mcp_approval_request",
        "shell_call",
    }
)
_WHOLE = {
    "chat.completion": "got a whole completion: give its choices[0].message",
    "chat.completion.chunk": "got a chunk of a stream: give the whole message when the stream has ended",
    "response": "got a whole response: give the items of its output",
}


def is_item(kind: object) -> bool:
    """Whether a type is that of an item of the Responses API that is not a message: a call, its output, reasoning."""
    return isinstance(kind, str) and (kind in _ITEMS or kind.endswith(("_call", "_output")) or kind.startswith("mcp_"))


def is_call(kind: object) -> bool:
    """Whether a type is that of a call that the host runs, or of its output.

    A call that the provider runs (`web_search_call`) does not count, because the answer continues after it.
    """
    return isinstance(kind, str) and (kind in _CALLS or kind.endswith("_call_output"))


def fields_of(message: object) -> Mapping[str, object]:
    """Return the fields of one message; their values are not checked.

    Raises:
        InputError: The object is not a message, or holds more than one.
    """
    # The two most frequent shapes come first.
    if type(message) is not dict and hasattr(type(message), "__pydantic_fields__"):
        held = _held(message)
        if held is not None:
            return held
    elif type(message) is dict or isinstance(message, Mapping):
        return message if "content" in message else _unwrapped(message)
    elif isinstance(message, list | tuple):
        match message:
            case [str() as role, content]:
                return {"role": role, "content": content}
    dump = getattr(message, "model_dump", None)
    cause: Exception | None = None
    if callable(dump):
        try:
            dumped = dump()
        except Exception as error:  # noqa: BLE001 the object is foreign and may raise anything
            cause = error
        else:
            if isinstance(dumped, Mapping):
                return dumped
    elif not isinstance(message, msgspec.Struct):
        # Structs are our own. The id of a recorded turn may be a number that means another turn in this thread.
        fields = {name: getattr(message, name) for name in _ATTRIBUTES if hasattr(message, name)}
        has_kind = any(isinstance(fields.get(name), str) for name in ("role", "type"))
        if has_kind and ("content" in fields or is_item(fields.get("type"))):
            return fields
    raise InputError(
        f"a message must be a dict, a LangChain message or an OpenAI message, got {type(message).__name__}"
    ) from cause


def _held(message: object) -> Mapping[str, object] | None:
    """Return the fields of a pydantic model without the copy that a dump makes; None if it has to be dumped."""
    held = _fields_of_model(message)
    _refuse_whole(held)
    kind = held.get("role") or held.get("type")
    if not isinstance(kind, str) or not ("content" in held or is_item(kind)):
        return None
    # These are stored as JSON, and a model in them has to be dumped.
    return None if held.get("metadata") or held.get("instruct_content") is not None else held


def _fields_of_model(model: object) -> Mapping[str, object]:
    extra = getattr(model, "__pydantic_extra__", None)
    return {**extra, **vars(model)} if extra else vars(model)


def _unwrapped(message: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields of a message without the envelope of a serialiser."""
    _refuse_whole(message)
    inner = message.get("kwargs") if message.get("lc") == 1 else message.get("data")
    if not isinstance(inner, Mapping) or "role" in message:
        return message
    fields = {name: value for name, value in inner.items() if value is not None}
    if "lc" not in message:
        return {**message, **fields}
    path = message.get("id")
    class_name = path[-1] if isinstance(path, Sequence) and path else None
    outer = {name: message[name] for name in AS_SENT if name != "id" and name in message}
    return {"type": class_name, **outer, **fields}


def _refuse_whole(fields: Mapping[str, object]) -> None:
    whole = fields.get("object")
    if isinstance(whole, str) and whole in _WHOLE:
        raise InputError(f"a message must be a single message, {_WHOLE[whole]}")


_CALL_BLOCKS = frozenset(
    {
        "computer_call",
        "custom_tool_call",
        "function_call",
        "invalid_tool_call",
        "tool_call",
        "tool_call_chunk",
        "tool_use",
    }
)
"""Blocks that ask the host to run a tool; one that the provider runs (`server_tool_use`) is part of the answer."""
_RESULTS = frozenset({"computer_call_output", "custom_tool_call_output", "function_call_output", "tool_result"})
_NOT_TEXT = frozenset(
    {
        "reasoning",
        "reasoning_text",
        "redacted_thinking",
        "summary_text",
        "text-plain",
        "thinking",
    }
)
"""Blocks whose text is not part of the message: reasoning, and attached documents."""
_TEXT_FIELDS = ("text", "refusal", "transcript")


class Content(NamedTuple):
    """The text of a content, and whether its blocks call tools."""

    text: str = ""
    calls: bool = False
    """Whether a block asks the host to run a tool."""
    results: bool = False
    """Whether a block holds the result of a tool that the host ran."""
    answer: str | None = None
    """The text without blocks of reasoning that a later block answers, for an agent's content that has such."""


def read_content(content: object, ends: int | None = None) -> Content:
    """Read a content; its text joins the `text`, `refusal` or `transcript` of its blocks.

    Blocks without text (images, files, reasoning) are left out.

    Args:
        content: a string, a list of blocks, or None.
        ends: if given, only this many blocks of the beginning and of the end are read.

    Raises:
        InputError: The content is neither a text nor a list of blocks.
    """
    if content is None:
        return Content()
    if isinstance(content, str):
        return Content(plain(content))
    if not isinstance(content, list | tuple):
        raise InputError(f"content must be a text or a list of blocks, got {type(content).__name__}")
    if ends is not None and len(content) > 2 * ends:
        content = [*content[:ends], *content[-ends:]]
    parts: list[str] = []
    calls = results = False
    for block in content:
        if isinstance(block, str):
            parts.append(block)
            continue
        fields = block if type(block) is dict else block_fields(block)
        named = fields.get("type")
        kind = named if isinstance(named, str) else ""
        if kind in _CALL_BLOCKS:
            calls = True
        elif kind in _RESULTS:
            results = True
        elif kind not in _NOT_TEXT and not kind.endswith("_tool_result"):
            text = next((value for name in _TEXT_FIELDS if isinstance(value := fields.get(name), str)), None)
            if text is not None:
                parts.append(text)
    return Content(" ".join(parts), calls, results, _answer(parts))


def _answer(parts: list[str]) -> str | None:
    """Return the text without open reasoning before its last part; None where there is none."""
    said = [part for part in parts[:-1] if not spoken(part).is_open]
    return None if len(said) + 1 >= len(parts) or not parts[-1].strip() else " ".join([*said, parts[-1]])


def plain(text: str) -> str:
    """Return a text of a subclass of str as a plain str, without the methods of the subclass."""
    return text if type(text) is str else str.__str__(text)


def block_fields(block: object) -> Mapping[str, object]:
    """Return the fields of a block, or of another part of a message; empty if the object is not a block."""
    if isinstance(block, Mapping):
        return block
    if hasattr(type(block), "__pydantic_fields__"):
        return _fields_of_model(block)
    kind = getattr(block, "type", None)
    return {"type": kind} | {name: getattr(block, name, None) for name in _TEXT_FIELDS} if isinstance(kind, str) else {}
