"""Context block in a system message. It goes to the end, so that the text before it stays in the prompt cache."""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_core.messages import SystemMessage

from backstory.projections.context.fact_lines import CLOSING, OPENING, PARTS

_GAP = "\n\n"
# The text of a block contains no `<`, so this matches only our block, even if a prompt mentions `<memory>`.
_OURS = rf"{re.escape(OPENING)}(?:{'|'.join(map(re.escape, PARTS))}):\n[^<]*{re.escape(CLOSING)}"
_BLOCK = re.compile(rf"{_GAP}{_OURS}|{_OURS}\n*")


def with_block(message: SystemMessage | None, text: str) -> SystemMessage | None:
    """Return a system message with this context block instead of an earlier one; the same object if nothing changes."""
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
    """Yield the blocks of a content without the context block; drop a block that becomes empty."""
    for block in content:
        said = block if isinstance(block, str) else block.get("text")
        if not isinstance(said, str) or (bare := _without(said)) == said:
            yield block
        elif bare:
            yield bare if isinstance(block, str) else {**block, "text": bare}


def _without(text: str) -> str:
    return _BLOCK.sub("", text) if OPENING in text else text
