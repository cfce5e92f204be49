"""What the talk is about now, and which facts bear on it (row D19)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ledger.blocks import strip_memory_blocks
from ledger.sanitize import safe_text

__all__ = ["last_words"]


_HEAD = 600
_TAIL = 300
_TAG = re.compile("<[^<>]*>")


def last_words(messages: str | Iterable[object] | None, turns: int) -> str:
    """Return what was said last: so many of the user's messages with the answers they got, or the text that is given.

    Left out is what would not be kept as a turn either: tools' results, hidden messages, our own block. Of a long
    message its head and its tail are taken.

    Raises:
        InputError: one of these messages cannot be read.
    """
    if messages is None:
        return ""
    if isinstance(messages, str):
        return _gist(strip_memory_blocks(safe_text(messages)))
    from ledger.messages import keep, read_message

    said: list[str] = []
    for message in reversed(messages if isinstance(messages, Sequence) else list(messages)):
        read = read_message(message)
        for kept in keep([read]):
            if kept.content == read.content or not _is_wrapping(kept.content):
                said.append(_gist(kept.content))
                turns -= kept.role == "user"
        if turns <= 0:
            break
    return "\n".join(reversed(said))


def _is_wrapping(text: str) -> bool:
    """Whether nothing but tags is left of a message that a block was cut out of: then a host said it, and no person."""
    return text.startswith("<") and not _TAG.sub("", text).strip()


def _gist(text: str) -> str:
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} {text[-_TAIL:]}"
