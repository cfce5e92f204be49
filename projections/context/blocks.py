"""Blocks of a home: makes the context block of any scope, and caches prepared lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.projections.context.background_load import BackgroundLoad
from backstory.projections.context.block import Context, Shares, fill, fill_whole
from backstory.projections.context.counting import Counter
from backstory.projections.context.joined import Joined, join
from backstory.projections.context.prepared import Prepared, prepare

_KEPT = 32
_ONE_USE = timedelta(minutes=1)


class Blocks:
    """Makes the blocks of all scopes of a home; safe for threads and forks: without a lock, a cache may miss.

    Args:
        shares: the budgets and weights.
        tokens: the token counter.
        turns: the number of the user's last messages that define what is relevant.
        enabled: whether blocks are made at all.
    """

    def __init__(
        self, shares: Shares, tokens: BackgroundLoad[Counter], *, turns: int = 3, enabled: bool = True
    ) -> None:
        self.shares = shares
        self.tokens = tokens
        self.turns = turns
        self.enabled = enabled
        self._recent: Recent[Scope, Prepared] = Recent(_KEPT)
        self._used: Recent[Scope, dict[str, datetime]] = Recent(_KEPT)
        self._joined: Recent[Scope, Joined] = Recent(_KEPT)

    def block(
        self,
        scope: Scope,
        memory: Memory,
        similarity: Mapping[str, float] | None,
        *,
        summaries: Sequence[ThreadSummaryText] = (),
        max_tokens: int | None = None,
        facts: bool = True,
    ) -> Context:
        """Return the block of a scope's memory; see `fill`. `max_tokens` overrides the configured budget."""
        most = self.shares.max_tokens if max_tokens is None else max_tokens
        return fill(self._prepared(scope, memory), similarity, summaries, self.shares, most, facts=facts)

    def whole_block(
        self,
        scope: Scope,
        memory: Memory,
        similarity: Mapping[str, float],
        *,
        summaries: Sequence[ThreadSummaryText] = (),
        facts: bool = True,
    ) -> Context:
        """Return the block of a scope's memory in one part; see `fill_whole`."""
        prepared = self._prepared(scope, memory)
        return fill_whole(prepared, similarity, summaries, self.shares, self.shares.max_tokens, facts=facts)

    def _prepared(self, scope: Scope, memory: Memory) -> Prepared:
        # Tokens are exact from the first block on, so the first one waits for the vocabulary.
        counter = self.tokens.wait() if memory.facts or memory.sections else self.tokens.value
        prepared = prepare(memory, counter, self._recent.pop(scope, None))
        self._recent.put(scope, prepared)
        return prepared

    def joined(self, agent: Scope, own: Memory, users: Memory) -> Joined:
        """Return an agent's memory joined with its user's; see `join`."""
        found = join(own, users, self._joined.get(agent))
        self._joined.put(agent, found)
        return found

    def nothing(self) -> Context:
        """Return an empty block."""
        return Context("", 0, self.tokens.value.name)

    def newly_used(self, scope: Scope, fact_ids: Iterable[str], now: datetime) -> list[str]:
        """Return the facts that were not used within the last minute, and note their use.

        An agent requests a block before every call of its model, perhaps twenty times for one question.
        """
        used = self._used.pop(scope, {})
        used = {fact_id: at for fact_id, at in used.items() if abs(now - at) < _ONE_USE}
        newly = [fact_id for fact_id in fact_ids if fact_id not in used]
        self._used.put(scope, used | dict.fromkeys(newly, now))
        return newly

    def purge(self, scope: Scope) -> None:
        """Drop everything cached of a scope."""
        self._recent.pop(scope, None)
        self._used.pop(scope, None)
        for agent in [one for one in list(self._joined) if scope in (one, Scope(one.user))]:
            self._joined.pop(agent, None)
