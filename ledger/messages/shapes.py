"""Shapes of messages, each converted to a mapping of fields.

Known shapes are a dict as OpenAI and Anthropic write it, a LangChain message and its `messages_to_dict` and `dumpd`, a
pair of role and text, an OpenAI object, and an item of the Responses API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from backstory.ledger.core.errors import InputError

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
        InputError: the object is not a message, or holds more than one.
    """
    # The two most frequent shapes come first.
    if type(message) is not dict and hasattr(type(message), "__pydantic_fields__"):
        held = _held(message)
        if held is not None:
            return held
    elif isinstance(message, Mapping):
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
    held = vars(message)
    extra = getattr(message, "__pydantic_extra__", None)
    if extra:
        held = {**extra, **held}
    _refuse_whole(held)
    kind = held.get("role") or held.get("type")
    if not isinstance(kind, str) or not ("content" in held or is_item(kind)):
        return None
    # These are stored as JSON, and a model in them has to be dumped.
    return None if held.get("metadata") or held.get("instruct_content") is not None else held


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
