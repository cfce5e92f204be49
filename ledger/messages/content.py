"""What was said in a message's content: a text, or blocks of OpenAI's, Anthropic's and LangChain's kinds (row D1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from backstory.ledger.core.errors import InputError

__all__ = ["Spoken", "block_fields", "plain", "spoken"]

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
"""Blocks that ask the host to run a tool; what the model's own house runs (`server_tool_use`) is part of its answer."""
_RESULTS = frozenset({"computer_call_output", "custom_tool_call_output", "function_call_output", "tool_result"})
_NOT_SPOKEN = frozenset(
    {
        "reasoning",
        "reasoning_text",
        "redacted_thinking",
        "summary_text",
        "text-plain",
        "thinking",
    }
)
"""What was thought and not said, what a tool found, and a document that came along."""
_SAID_IN = ("text", "refusal", "transcript")


class Spoken(NamedTuple):
    """The words of a content."""

    text: str = ""
    calls: bool = False
    """Whether a block asks the host to run a tool."""
    results: bool = False
    """Whether a block holds what a tool of the host found."""


def spoken(content: object, ends: int | None = None) -> Spoken:
    """Join the words of a content; blocks without words (images, files, what was only thought) are left out.

    Words are a block's `text`, a `refusal`, the `transcript` of what was said aloud. With `ends` only so many blocks of
    either end are looked at.

    Raises:
        InputError: it is neither a text nor a list of blocks.
    """
    if content is None:
        return Spoken()
    if isinstance(content, str):
        return Spoken(plain(content))
    if not isinstance(content, list | tuple):
        raise InputError(f"content is {type(content).__name__}; it is a text or a list of blocks")
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
        elif kind not in _NOT_SPOKEN and not kind.endswith("_tool_result"):
            words = _words(fields)
            if words is not None:
                parts.append(words)
    return Spoken(" ".join(parts), calls, results)


def _words(block: Mapping[str, object]) -> str | None:
    for name in _SAID_IN:
        words = block.get(name)
        if isinstance(words, str):
            return words
    return None


def plain(text: str) -> str:
    """Return a text of a derived type as a plain one: what its type does to it is no business of ours."""
    return text if type(text) is str else str.__str__(text)


def block_fields(block: object) -> Mapping[str, object]:
    """Return the fields of a block, or of what a message carries like one; none where it has none.

    A list is of an API's blocks, so what is no object there is nothing that was said.
    """
    if isinstance(block, Mapping):
        return block
    if hasattr(type(block), "__pydantic_fields__"):
        extra = getattr(block, "__pydantic_extra__", None)
        return {**extra, **vars(block)} if extra else vars(block)
    kind = getattr(block, "type", None)
    return {"type": kind} | {name: getattr(block, name, None) for name in _SAID_IN} if isinstance(kind, str) else {}
