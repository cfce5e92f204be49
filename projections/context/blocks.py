"""Context blocks: how a home makes them, and those of one memory with their prepared lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from backstory.ledger.concurrency.background_load import BackgroundLoad
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.projections.context.block import Context, Shares, fill, fill_whole
from backstory.projections.context.counting import Counter
from backstory.projections.context.given import Quote
from backstory.projections.context.joined import Joined, join
from backstory.projections.context.lines import Prepared, narrowed, prepare
from backstory.projections.read_model import ReadModel

_ONE_USE = timedelta(minutes=1)
_FILTERS = 16
"""Filters by tags whose lines are kept for one memory."""


class Blocks(msgspec.Struct):
    """How a home makes the blocks of its memories.

    Attributes:
        shares: the budgets and weights.
        tokens: the token counter.
        turns: the number of the user's last messages that define what is relevant.
        quoting: whether turns are quoted that are like the newest of these.
        enabled: whether blocks are made at all.
    """

    shares: Shares
    tokens: BackgroundLoad[Counter]
    turns: int = 3
    quoting: bool = True
    enabled: bool = True

    def nothing(self) -> Context:
        """Return an empty block."""
        return Context("", 0, self.tokens.value.name)


class ScopeBlocks(ReadModel):
    """Makes the blocks of one memory, and keeps the prepared lines; safe for threads: two may prepare the same."""

    def __init__(self, blocks: Blocks) -> None:
        self._shares = blocks.shares
        self._tokens = blocks.tokens
        self.start_over()

    def start_over(self) -> None:
        """Drop everything that is kept."""
        self._prepared: Prepared | None = None
        self._tagged: dict[tuple[str, ...], Prepared] = {}
        """What `_prepared` leaves where a filter names tags, by these."""
        self._joined: Joined | None = None
        self._used: dict[str, datetime] = {}

    def block(
        self,
        memory: Memory,
        similarity: Mapping[str, float] | None,
        *,
        summaries: Sequence[ThreadSummaryText] = (),
        max_tokens: int | None = None,
        facts: bool = True,
        tags: tuple[str, ...] = (),
        quotes: Iterable[Quote] | None = None,
    ) -> Context:
        """Return the block of a memory; see `fill`.

        `max_tokens` overrides the configured budget. Facts that are about something else than `tags` are left out.
        """
        most = self._shares.max_tokens if max_tokens is None else max_tokens
        prepared = self._prepare(memory, any_more=quotes is not None)
        if tags:
            prepared = self._narrowed(prepared, tags)
        return fill(prepared, similarity, summaries, self._shares, most, facts=facts, quotes=quotes)

    def whole_block(
        self,
        memory: Memory,
        similarity: Mapping[str, float],
        *,
        summaries: Sequence[ThreadSummaryText] = (),
        facts: bool = True,
    ) -> Context:
        """Return the block of a memory in one part; see `fill_whole`."""
        return fill_whole(
            self._prepare(memory), similarity, summaries, self._shares, self._shares.max_tokens, facts=facts
        )

    def _prepare(self, memory: Memory, *, any_more: bool = False) -> Prepared:
        # Tokens are exact from the first block on, so the first one waits for the vocabulary.
        counter = self._tokens.wait() if memory.facts or memory.sections or any_more else self._tokens.value
        self._prepared = prepared = prepare(memory, counter, self._prepared)
        return prepared

    def _narrowed(self, prepared: Prepared, tags: tuple[str, ...]) -> Prepared:
        found = self._tagged.get(tags)
        if found is None or found.memory is not prepared.memory:
            found = narrowed(prepared, tags)
            kept = {key: one for key, one in self._tagged.items() if one.memory is prepared.memory}
            self._tagged = {tags: found} if len(kept) >= _FILTERS else {**kept, tags: found}
        return found

    def joined(self, own: Memory, users: Memory) -> Joined:
        """Return an agent's memory joined with its user's; see `join`."""
        self._joined = found = join(own, users, self._joined)
        return found

    def newly_used(self, fact_ids: Iterable[str], now: datetime) -> list[str]:
        """Return the facts that were not used within the last minute, and note their use.

        An agent requests a block before every call of its model, perhaps twenty times for one question.
        """
        used = {fact_id: at for fact_id, at in self._used.items() if abs(now - at) < _ONE_USE}
        newly = [fact_id for fact_id in fact_ids if fact_id not in used]
        self._used = used | dict.fromkeys(newly, now)
        return newly
