"""Relevance query: the last messages of a conversation, as the text that facts are compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.text.blocks import strip_memory_blocks

if TYPE_CHECKING:
    from backstory.ledger.messages import KeepHidden, Message

_HEAD = 600
_TAIL = 300
_TAG = re.compile("<[^<>]*>")
_END = 64_000
"""Characters read at either end of a message; more than any memory block has."""
_BLOCKS = 1_000
"""Content parts read at either end of a message."""


def last_words(
    messages: str | Iterable[object] | None,
    turns: int,
    *,
    keep_hidden: KeepHidden | None = None,
    on_unreadable: Callable[[int, InputError], None] | None = None,
) -> str:
    """Return the last messages of the user with their answers, or the given text, without memory blocks.

    Messages that would not be recorded are left out: results of tools, hidden messages, memory blocks. Long messages
    are cut to their head and tail. A memory block is removed where it lies within 64,000 characters of either end of a
    message, or reaches from one end to the other. Of a content in parts, 1,000 parts of either end are read.

    Args:
        messages: the conversation, or a text.
        turns: how many of the user's messages to take.
        keep_hidden: as in `record`.
        on_unreadable: as in `record`.

    Raises:
        InputError: A message cannot be read, and there is no `on_unreadable`.
    """
    if messages is None:
        return ""
    if isinstance(messages, str):
        return _gist(strip_memory_blocks(safe_text(_ends(messages))))
    from backstory.ledger.messages import keep, read_message

    latest: list[Message] = []
    listed = messages if isinstance(messages, Sequence) else list(messages)
    for index in reversed(range(len(listed))):
        try:
            read = _shortened(read_message(listed[index], keep_hidden, ends=_BLOCKS))
        except InputError as error:
            if on_unreadable is None:
                raise
            on_unreadable(index, error)
            continue
        kept = keep([read])
        if kept and kept[0].content != read.content and _is_wrapping(kept[0].content):
            continue
        latest.append(read)
        turns -= bool(kept) and kept[0].role == "user"
        if turns <= 0:
            break
    return "\n".join([_gist(kept.content) for kept in keep(reversed(latest))])


def _is_wrapping(text: str) -> bool:
    """Whether only tags are left of a message after its block was removed: then the host wrote it."""
    return text.startswith("<") and not _TAG.sub("", text).strip()


def _shortened(message: Message) -> Message:
    if len(message.content) <= 2 * _END:
        return message
    return msgspec.structs.replace(message, content=_ends(message.content))


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _END else f"{text[:_END]}\n{text[-_END:]}"


def _gist(text: str) -> str:
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} {text[-_TAIL:]}"
