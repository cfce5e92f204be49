"""The blocks of a home: what every scope's memory says, kept ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.projections.context.background_load import BackgroundLoad
from backstory.projections.context.block import Context, Shares, fill
from backstory.projections.context.counting import Counter
from backstory.projections.context.prepared import Prepared, prepare

__all__ = ["Blocks"]

_KEPT = 32
_ONE_USE = timedelta(minutes=1)


class Blocks:
    """Makes the blocks of all scopes of a home; safe for threads and forks: at worst it makes one anew.

    `turns` is how many of the user's last messages say what the talk is about.
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

    def block(
        self,
        scope: Scope,
        memory: Memory,
        likeness: Mapping[str, float],
        *,
        told: Sequence[ThreadSummaryText] = (),
        max_tokens: int | None = None,
        facts: bool = True,
    ) -> Context:
        """Return the block of a scope's memory; see `fill`. `max_tokens` overrides what is configured."""
        prepared = prepare(memory, self.tokens.value, self._recent.pop(scope, None))
        self._recent.put(scope, prepared)
        most = self.shares.max_tokens if max_tokens is None else max_tokens
        return fill(prepared, likeness, told, self.shares, most, facts=facts)

    def nothing(self) -> Context:
        """Return the block of no memory at all."""
        return Context("", 0, self.tokens.value.name)

    def newly_used(self, scope: Scope, fact_ids: Iterable[str], now: datetime) -> list[str]:
        """Return the facts that were not used within the last minute.

        An agent asks for a block before every call of its model, and may make twenty to answer one question.
        """
        used = self._used.pop(scope, {})
        used = {fact_id: at for fact_id, at in used.items() if abs(now - at) < _ONE_USE}
        newly = [fact_id for fact_id in fact_ids if fact_id not in used]
        self._used.put(scope, used | dict.fromkeys(newly, now))
        return newly

    def purge(self, scope: Scope) -> None:
        """Let go of what a scope's memory said."""
        self._recent.pop(scope, None)
        self._used.pop(scope, None)
