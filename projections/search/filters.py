"""Filters of a search: facts or turns, category, thread, span of time, tags; applied before anything is ranked."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import Fact
from backstory.projections.search.corpus import LATEST, LiveFacts, StandingTurns
from backstory.projections.search.lexical.lazy_filter import LazyFilter, StoredFilter
from backstory.projections.turns import TurnView

if TYPE_CHECKING:
    from backstory.projections.search.on_disk.stored_turns import StoredTurns

_FEW = 1000
"""So few are gathered at once."""

Within = Literal["facts", "turns"]
"""What there is to search in."""

SPACES: tuple[Within, ...] = get_args(Within)


class SearchFilters(msgspec.Struct, frozen=True):
    """Facts or turns of this category, of this thread, from `since` on and before `until`, with all of these tags.

    None bounds nothing. The category is casefolded. Of a fact the thread is its source and the time its creation.
    Make one with `SearchFilters.read`.
    """

    within: Within = "facts"
    category: str | None = None
    thread: str | None = None
    since: str | None = None
    until: str | None = None
    tags: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        within: Within = "facts",
        *,
        category: str | None = None,
        thread: str | None = None,
        since: str | None = None,
        until: str | None = None,
        tags: tuple[str, ...] = (),
    ) -> SearchFilters:
        """Check what a search was asked to keep to; the times are as the logs spell them.

        Raises:
            UsageError: There is no such place to search in, or the category has no name.
        """
        if within not in SPACES:
            raise UsageError(f"{within!r} cannot be searched; search within {' or '.join(SPACES)}")
        if category is not None and within != "facts":
            raise UsageError("only facts have a category: leave it out, or search within facts")
        if category is not None and not category.strip():
            raise UsageError("the category to search in has no name")
        return cls(within, None if category is None else category.strip().casefold(), thread, since, until, tags)

    @property
    def bounds_nothing(self) -> bool:
        """Whether everything lies within."""
        return self == SearchFilters(self.within)

    def of_facts(self, facts: LiveFacts) -> Collection[str] | None:
        """Return the ids of the facts that lie within; None where nothing is bounded."""
        if self.bounds_nothing:
            return None
        live = facts.live
        files = facts.filed().smallest(self.category, self.thread, self.since, self.until)
        most = sum(map(len, files))

        def test(key: str) -> bool:
            fact = live.get(key)
            return fact is not None and self.holds(fact)

        def gather() -> set[str]:
            # Others may go on filing meanwhile; a list is made in one step.
            return {fact.id for file in files for fact in list(file.values()) if self.holds(fact)}

        return gather() if most <= _FEW else LazyFilter(test, gather, most)

    def holds(self, fact: Fact) -> bool:
        """Whether a fact lies within."""
        return (
            (self.category is None or fact.category.casefold() == self.category)
            and (self.thread is None or fact.source == self.thread)
            and (self.since is None or fact.created_at >= self.since)
            and (self.until is None or fact.created_at < self.until)
            and fact.has(self.tags)
        )

    def of_turns(self, turns: StandingTurns) -> Collection[str] | None:
        """Return the keys of the turns that lie within; None where nothing is bounded."""
        if self.bounds_nothing:
            return None
        first, end, tags = self.since or "", self.until or LATEST, frozenset(self.tags)

        def holds(said: TurnView) -> bool:
            return first <= said.at < end and tags.issubset(said.tags)

        if turns.stored is not None:
            return self._of_stored(turns, turns.stored, holds)
        if self.thread is not None:
            return {key for key, said in turns.of(self.thread).items() if holds(said)}
        standing = turns.standing

        def test(key: str) -> bool:
            said = standing.get(key)
            return said is not None and holds(said)

        def gather() -> set[str]:
            # Others may go on reading meanwhile; a copy is made in one step.
            return {key for key, said in dict(standing).items() if holds(said)}

        return LazyFilter(test, gather, len(standing))

    def _of_stored(self, turns: StandingTurns, stored: StoredTurns, holds: Callable[[TurnView], bool]) -> StoredFilter:
        slots = stored.within(self.thread, self.since or "", self.until or LATEST, frozenset(self.tags))
        some = turns.fresh if self.thread is None else turns.of(self.thread)
        fresh = {key for key, said in some.items() if holds(said)}

        def test(key: str) -> bool:
            slot = stored.places.slot(key)
            return key in fresh or (slot is not None and bool(slots[slot]))

        def gather() -> set[str]:
            return fresh.union(map(stored.places.key, slots.nonzero()[0].tolist()))

        return StoredFilter(test, gather, int(slots.sum()) + len(fresh), stored.places, slots)
