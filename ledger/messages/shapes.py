"""The shapes in which hosts hold a message, each brought to its fields by name (row D1).

A shape is an object or its dump: a dict as OpenAI and Anthropic write it, a LangChain message, `messages_to_dict` and
`dumpd` of one, a pair of role and text, an OpenAI object, an item of the Responses API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from backstory.ledger.core.errors import InputError

__all__ = ["AS_SENT", "fields_of", "is_call", "is_item", "kind_of"]

AS_SENT = ("id", "name", "at", "thread_id", "user_id", "agent_name", "cause_by", "sent_from", "send_to")
"""Fields that are kept as they come."""

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
"""What is looked at of an object that cannot be dumped to a dict."""

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
    "chat.completion": "a whole completion: give its message, choices[0].message",
    "chat.completion.chunk": "a piece of a stream: give the whole message once it has ended",
    "response": "a whole response: give the items of its output",
}


def is_item(kind: object) -> bool:
    """Whether a type is that of an item of the Responses API which nobody said: a call, its output, reasoning."""
    return isinstance(kind, str) and (kind in _ITEMS or kind.endswith(("_call", "_output")) or kind.startswith("mcp_"))


def is_call(kind: object) -> bool:
    """Whether a type is that of an item with which the agent waits for its host: a call, or what it gave.

    What the model's own house runs (`web_search_call`) is none: the answer goes on behind it.
    """
    return isinstance(kind, str) and (kind in _CALLS or kind.endswith("_call_output"))


def kind_of(message: object) -> str:
    """Name the type of what came for a message, with its article."""
    kind = type(message).__name__
    return f"{'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind}"


def fields_of(message: object) -> Mapping[str, object]:
    """Return the fields of one message; what they hold is still to be read.

    Raises:
        InputError: it has none, or is more than one message; the text says what to give instead.
    """
    # The two that come in hundreds, again and again, are told first.
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
        except Exception as error:  # noqa: BLE001 the object is somebody else's
            cause = error
        else:
            if isinstance(dumped, Mapping):
                return dumped
    elif not isinstance(message, msgspec.Struct):
        # Those are ours: a turn that was read has a number of its conversation for an id, which may be another's here.
        said = {name: getattr(message, name) for name in _ATTRIBUTES if hasattr(message, name)}
        told = any(isinstance(said.get(name), str) for name in ("role", "type"))
        if told and ("content" in said or is_item(said.get("type"))):
            return said
    raise InputError(
        f"a message is {kind_of(message)}; it is a dict, a LangChain message or an OpenAI message"
    ) from cause


def _held(message: object) -> Mapping[str, object] | None:
    """Return what a pydantic model holds, without the copy of a dump; None where only its dump tells."""
    held = vars(message)
    extra = getattr(message, "__pydantic_extra__", None)
    if extra:
        held = {**extra, **held}
    _refuse_whole(held)
    kind = held.get("role") or held.get("type")
    if not isinstance(kind, str) or not ("content" in held or is_item(kind)):
        return None
    # These are stored as they are, and a model in them has its own way to be written.
    return None if held.get("metadata") or held.get("instruct_content") is not None else held


def _unwrapped(message: Mapping[str, object]) -> Mapping[str, object]:
    """Take a message out of what a serialiser put around it."""
    _refuse_whole(message)
    inner = message.get("kwargs") if message.get("lc") == 1 else message.get("data")
    if not isinstance(inner, Mapping) or "role" in message:
        return message
    said = {name: value for name, value in inner.items() if value is not None}
    if "lc" not in message:
        return {**message, **said}
    path = message.get("id")
    named = path[-1] if isinstance(path, Sequence) and path else None
    routed = {name: message[name] for name in AS_SENT if name != "id" and name in message}
    return {"type": named, **routed, **said}


def _refuse_whole(fields: Mapping[str, object]) -> None:
    whole = fields.get("object")
    if isinstance(whole, str) and whole in _WHOLE:
        raise InputError(f"a message is {_WHOLE[whole]}")
