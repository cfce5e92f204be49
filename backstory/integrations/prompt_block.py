"""Context block in the text of a prompt.

The part that stands goes to the end of the system message. What was found goes directly before the newest question, so
that the text before it stays in the prompt cache.
"""

from __future__ import annotations

import re

from backstory.projections.context.lines import CLOSING, FOUND, GAP, OPENING, PARTS

__all__ = ["GAP", "text_after_block", "text_with_block", "without_block"]

# The text of a block contains no `<`, so this matches only our block, even if a prompt mentions `<memory>`.
_OURS = rf"{re.escape(OPENING)}(?:{'|'.join(map(re.escape, (*PARTS, FOUND)))}):\n[^<]*{re.escape(CLOSING)}"
_BLOCK = re.compile(rf"{GAP}{_OURS}|{_OURS}\n*")


def without_block(text: str) -> str:
    """Return a text without a context block."""
    return _BLOCK.sub("", text) if OPENING in text else text


def text_with_block(text: str, block: str) -> str:
    """Return a text with this context block at its end instead of an earlier one."""
    bare = without_block(text)
    return f"{bare}{GAP if bare else ''}{block}" if block else bare


def text_after_block(text: str, block: str) -> str:
    """Return a text with this context block before it instead of an earlier one."""
    bare = without_block(text)
    return f"{block}{GAP if bare else ''}{bare}" if block else bare
