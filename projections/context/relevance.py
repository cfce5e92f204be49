"""What the talk is about now, and which facts bear on it (row D19)."""

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

__all__ = ["last_words"]


_HEAD = 600
_TAIL = 300
_TAG = re.compile("<[^<>]*>")
_END = 64_000
"""Characters looked at of either end of a message, more than any block of ours has."""
_BLOCKS = 1_000
"""Blocks looked at of either end of a message's content."""


def last_words(
    messages: str | Iterable[object] | None,
    turns: int,
    *,
    keep_hidden: KeepHidden | None = None,
    on_unreadable: Callable[[int, InputError], None] | None = None,
) -> str:
    """Return what was said last: so many of the user's messages with the answers they got, or the text that is given.

    Left out is what would not be kept as a turn either: tools' results, hidden messages, our own block. Of a long
    message its head and its tail are taken; a block is found in it that lies within 64,000 characters of either end, or
    goes from the one to the other. Of a content in parts, 1,000 of either end are looked at. `keep_hidden` and
    `on_unreadable` are those of `record`.

    Raises:
        InputError: one of these messages cannot be read, and there is no `on_unreadable` to tell.
    """
    if messages is None:
        return ""
    if isinstance(messages, str):
        return _gist(strip_memory_blocks(safe_text(_ends(messages))))
    from backstory.ledger.messages import keep, read_message

    said: list[Message] = []
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
        said.append(read)
        turns -= bool(kept) and kept[0].role == "user"
        if turns <= 0:
            break
    return "\n".join([_gist(kept.content) for kept in keep(reversed(said))])


def _is_wrapping(text: str) -> bool:
    """Whether nothing but tags is left of a message that a block was cut out of: then a host said it, and no person."""
    return text.startswith("<") and not _TAG.sub("", text).strip()


def _shortened(message: Message) -> Message:
    if len(message.content) <= 2 * _END:
        return message
    return msgspec.structs.replace(message, content=_ends(message.content))


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _END else f"{text[:_END]}\n{text[-_END:]}"


def _gist(text: str) -> str:
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} {text[-_TAIL:]}"
