"""The block of memory in a system message: put at its end, so that what stands before it stays in a prompt's cache."""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_core.messages import SystemMessage

from backstory.projections.context.fact_lines import CLOSING, OPENING, PARTS

__all__ = ["with_block"]

_GAP = "\n\n"
# What a block says holds no `<`, so this is ours and nothing else: a prompt may speak of `<memory>` as it likes.
_OURS = rf"{re.escape(OPENING)}(?:{'|'.join(map(re.escape, PARTS))}):\n[^<]*{re.escape(CLOSING)}"
_BLOCK = re.compile(rf"{_GAP}{_OURS}|{_OURS}\n*")


def with_block(message: SystemMessage | None, text: str) -> SystemMessage | None:
    """Return the system message with this block and no other of ours; the same object where nothing changes."""
    if message is None:
        return SystemMessage(content=text) if text else None
    content = message.content
    if isinstance(content, str):
        bare = _without(content)
        new = f"{bare}{_GAP if bare else ''}{text}" if text else bare
        return message if new == content else message.model_copy(update={"content": new})
    blocks = list(_bare_blocks(content))
    if text:
        blocks.append({"type": "text", "text": f"{_GAP if blocks else ''}{text}"})
    if not blocks:
        return None
    return message if blocks == content else message.model_copy(update={"content": blocks})


def _bare_blocks(content: list[str | dict[str, object]]) -> Iterator[str | dict[str, object]]:
    """The blocks of a content without ours; one in which nothing else stood goes."""
    for block in content:
        said = block if isinstance(block, str) else block.get("text")
        if not isinstance(said, str) or (bare := _without(said)) == said:
            yield block
        elif bare:
            yield bare if isinstance(block, str) else {**block, "text": bare}


def _without(text: str) -> str:
    return _BLOCK.sub("", text) if OPENING in text else text
