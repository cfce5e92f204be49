"""What an agent is given to read of its memory before it answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from backstory import checks
from backstory.ledger.core.summaries import thread_summaries
from backstory.operations.scope_base import ScopeBase
from backstory.projections.context import Blocks, Context, Shares, last_words, tokens_for

if TYPE_CHECKING:
    from backstory.config.settings import Settings

__all__ = ["Injecting", "blocks_of"]


def blocks_of(settings: Settings, model: str | None) -> Blocks:
    """Return what makes blocks as configured; `model` is the one whose vocabulary counts, if it is known."""
    counting: str = settings.token_counting
    return Blocks(
        Shares(
            max_tokens=settings.max_injection_tokens,
            guaranteed_categories=settings.guaranteed_categories,
            guaranteed_tokens=settings.guaranteed_token_budget,
            similarity_weight=settings.similarity_weight,
            confidence_weight=settings.confidence_weight,
        ),
        tokens_for(model or settings.model.model or settings.model_name, exact=counting == "tiktoken"),
        turns=settings.max_context_turns,
        enabled=settings.enabled and settings.injection_enabled,
    )


class Injecting(ScopeBase):
    """The part of a handle that puts memory before a model."""

    def context(
        self,
        messages: str | Iterable[object] | None = None,
        max_tokens: int | None = None,
        *,
        thread: str | None = None,
        facts: bool = True,
    ) -> Context:
        """Return the block to inject: sections and facts, those first that bear most on what was said last.

        `messages` are the conversation as `record` takes it, or a text; without any the surest facts come first. With
        `thread` the summaries of that conversation come along; it need not have begun. Without `facts` there are none:
        for an agent that searches for them by itself. The text never has more tokens
        than `max_tokens`, which is `max_injection_tokens` unless given; `Context.counter` says with what they were
        counted. The first block of a process is counted by an estimate, and then the vocabulary is loaded, unless
        `Backstory.warm` was waited for.

        Raises:
            InputError: `messages` is no list, or one of the last cannot be read.
            UsageError: `max_tokens` is no number above 0, `thread` no text.
        """
        if max_tokens is not None:
            checks.whole("max_tokens", max_tokens, 1, "a whole number of tokens")
        if thread is not None:
            checks.text("thread", thread)
        said = messages if messages is None or isinstance(messages, str) else checks.messages_in(messages)
        self._services.must_be_open()
        blocks = self._services.blocks
        if not blocks.enabled:
            return blocks.nothing()
        words = last_words(said, blocks.turns) if facts else ""
        writer = self._reading()
        memory = writer.memory()

        context = blocks.block(
            writer.scope,
            memory,
            self._services.searches.of(writer).likeness(memory, words) if words else {},
            summaries=() if thread is None else thread_summaries(memory, thread),
            max_tokens=max_tokens,
            facts=facts,
        )
        newly = blocks.newly_used(writer.scope, context.facts, writer.clock.now())
        if newly:
            self._services.heat.touch(writer, newly)
        if context.text:
            # Not before: while a vocabulary is built nothing else runs, and now the agent waits for its model anyway.
            blocks.tokens.begin()
        return context
