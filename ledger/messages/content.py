"""Content of a message: its text, from a string or from blocks as OpenAI, Anthropic and LangChain write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from backstory.ledger.core.errors import InputError
from backstory.ledger.text.reasoning import spoken

_CALLS = frozenset(
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
        InputError: the content is neither a text nor a list of blocks.
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
        if kind in _CALLS:
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
        extra = getattr(block, "__pydantic_extra__", None)
        return {**extra, **vars(block)} if extra else vars(block)
    kind = getattr(block, "type", None)
    return {"type": kind} | {name: getattr(block, name, None) for name in _TEXT_FIELDS} if isinstance(kind, str) else {}
