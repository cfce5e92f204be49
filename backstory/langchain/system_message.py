"""Context block in a system message."""

from __future__ import annotations

from collections.abc import Iterator

from langchain_core.messages import SystemMessage

from backstory.integrations.prompt_block import GAP, text_with_block, without_block


def with_block(message: SystemMessage | None, text: str) -> SystemMessage | None:
    """Return a system message with this context block instead of an earlier one; the same object if nothing changes."""
    if message is None:
        return SystemMessage(content=text) if text else None
    content = message.content
    if isinstance(content, str):
        new = text_with_block(content, text)
        return message if new == content else message.model_copy(update={"content": new})
    blocks = list(_bare_blocks(content))
    if text:
        blocks.append({"type": "text", "text": f"{GAP if blocks else ''}{text}"})
    if not blocks:
        return None
    return message if blocks == content else message.model_copy(update={"content": blocks})


def _bare_blocks(content: list[str | dict[str, object]]) -> Iterator[str | dict[str, object]]:
    """Yield the blocks of a content without the context block; drop a block that becomes empty."""
    for block in content:
        said = block if isinstance(block, str) else block.get("text")
        if not isinstance(said, str) or (bare := without_block(said)) == said:
            yield block
        elif bare:
            yield bare if isinstance(block, str) else {**block, "text": bare}
