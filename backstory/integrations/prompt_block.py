"""Context block in the text of a prompt. It goes to the end, so that the text before it stays in the prompt cache."""

from __future__ import annotations

import re

from backstory.projections.context.fact_lines import CLOSING, OPENING, PARTS

GAP = "\n\n"
# The text of a block contains no `<`, so this matches only our block, even if a prompt mentions `<memory>`.
_OURS = rf"{re.escape(OPENING)}(?:{'|'.join(map(re.escape, PARTS))}):\n[^<]*{re.escape(CLOSING)}"
_BLOCK = re.compile(rf"{GAP}{_OURS}|{_OURS}\n*")


def without_block(text: str) -> str:
    """Return a text without a context block."""
    return _BLOCK.sub("", text) if OPENING in text else text


def text_with_block(text: str, block: str) -> str:
    """Return a text with this context block at its end instead of an earlier one."""
    bare = without_block(text)
    return f"{bare}{GAP if bare else ''}{block}" if block else bare
