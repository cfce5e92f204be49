"""Lineage of merged facts: which facts each one was merged from, through all levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from backstory.ledger.core.events import Fact, FactRemoved
from backstory.ledger.erasure.requests import Walk


class Lineage:
    """The facts that were merged into each fact; the ledger is read once, when the first merged fact is asked for.

    Args:
        ledger: starts reading the ledger from its first commit at each call.
    """

    def __init__(self, ledger: Walk) -> None:
        self._ledger = ledger

    @cached_property
    def _sources(self) -> dict[str, tuple[Fact, str]]:
        """Return each merged fact, by id, with the id of the fact that it was last merged into."""
        return {
            event.fact.id: (event.fact, event.detail or "")
            for commit in self._ledger(lambda _, line: b'"consolidated"' in line)
            for event in commit.events
            if isinstance(event, FactRemoved) and event.reason == "consolidated"
        }

    def ancestors(self, fact: Fact) -> dict[str, Fact | None]:
        """Return all facts that went into a fact, by id, nearest first; None for one whose removal was erased."""
        found: dict[str, Fact | None] = {}
        queue = list(fact.consolidated_from)
        while queue:
            source = queue.pop(0)
            if source in found:
                continue
            known = self._sources.get(source)
            found[source] = None if known is None else known[0]
            if known is not None:
                queue += known[0].consolidated_from
        return found

    def origins(self, fact: Fact) -> Iterator[Fact]:
        """Yield the facts whose evidence says where a fact was learned: itself, or the unmerged facts it comes from.

        A merged fact's own evidence names turns without their threads. So the fact itself is only yielded if it was not
        merged or an ancestor is unknown.
        """
        ancestors = self.ancestors(fact)
        if None in ancestors.values() or not ancestors:
            yield fact
        yield from (known for known in ancestors.values() if known is not None and not known.consolidated_from)

    def merged_into(self, facts: Iterable[str]) -> Iterator[Fact]:
        """Yield the facts that were merged into one of these, through all levels, and are not among them."""
        reached = set(facts)
        while True:
            new = [fact for fact, into in self._sources.values() if into in reached and fact.id not in reached]
            if not new:
                return
            reached.update(fact.id for fact in new)
            yield from new
