"""Context block of one scope: the text that an agent reads before it answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from backstory import checks
from backstory.ledger.core.summaries import thread_summaries
from backstory.operations.services import ScopeServices
from backstory.projections.context import Blocks, Context, Shares, last_words, tokens_for

if TYPE_CHECKING:
    from backstory.config.settings import Settings


def blocks_of(settings: Settings, model: str | None) -> Blocks:
    """Return what renders blocks as configured; `model` names the vocabulary that counts tokens, if it is known."""
    counting: str = settings.token_counting
    return Blocks(
        Shares(
            max_tokens=settings.max_injection_tokens,
            guaranteed_categories=settings.guaranteed_categories,
            guaranteed_tokens=settings.guaranteed_token_budget,
            similarity_weight=settings.similarity_weight,
            confidence_weight=settings.confidence_weight,
            found_share=settings.context_found_share,
        ),
        tokens_for(model or settings.model.model or settings.model_name, exact=counting == "tiktoken"),
        turns=settings.max_context_turns,
        enabled=settings.enabled and settings.injection_enabled,
    )


def context(
    services: ScopeServices,
    messages: str | Iterable[object] | None,
    max_tokens: int | None,
    *,
    thread: str | None,
    facts: bool,
) -> Context:
    """Return the block to inject; see `MemoryHandle.context`."""
    if max_tokens is not None:
        checks.whole("max_tokens", max_tokens, 1, "a whole number of tokens")
    if thread is not None:
        checks.text("thread", thread)
    said = messages if messages is None or isinstance(messages, str) else checks.messages_in(messages)
    services.home.must_be_open()
    blocks = services.home.blocks
    if not blocks.enabled:
        return blocks.nothing()
    words = None if said is None else last_words(said, blocks.turns) if facts else ""
    writer = services.reading()
    memory = services.memory()
    alike = services.home.searches.of(writer).likeness(memory, words) if words else {}
    block = blocks.block(
        writer.scope,
        memory,
        None if words is None else alike,
        summaries=() if thread is None else thread_summaries(memory, thread),
        max_tokens=max_tokens,
        facts=facts,
    )
    newly = blocks.newly_used(writer.scope, block.facts, writer.clock.now())
    if newly:
        services.home.usage.touch(writer, newly)
    head = writer.reader.standing()[1]
    if head.seq != memory.seq and block.text:
        head = services.logs(writer).commit(memory.seq).head
    return block.given_at(head, of_user=writer is services.fallback)
