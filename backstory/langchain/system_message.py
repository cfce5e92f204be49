"""Context block in the messages of a model call: in the system message, and before the newest question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

from backstory.integrations.prompt_block import GAP, text_after_block, text_with_block, without_block


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


def with_found(messages: Sequence[AnyMessage], text: str) -> list[AnyMessage] | None:
    """Return messages with this part of a block before the newest question; None where there is no question."""
    newest = next((n for n in reversed(range(len(messages))) if isinstance(messages[n], HumanMessage)), None)
    if newest is None:
        return None
    changed = list(messages)
    changed[newest] = _after(messages[newest], text)
    return changed


def _after(message: AnyMessage, text: str) -> AnyMessage:
    said = message.content
    before = {"type": "text", "text": f"{text}{GAP}"}
    content = text_after_block(said, text) if isinstance(said, str) else [before, *_bare_blocks(said)]
    return message.model_copy(update={"content": content})


def _bare_blocks(content: list[str | dict[str, object]]) -> Iterator[str | dict[str, object]]:
    """Yield the blocks of a content without the context block; drop a block that becomes empty."""
    for block in content:
        said = block if isinstance(block, str) else block.get("text")
        if not isinstance(said, str) or (bare := without_block(said)) == said:
            yield block
        elif bare:
            yield bare if isinstance(block, str) else {**block, "text": bare}
