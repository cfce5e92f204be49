"""What merged facts were merged from, however long ago: they say again, in other words, what those said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from backstory.ledger.core.commit import Commit
from backstory.ledger.core.events import Fact, FactRemoved

__all__ = ["Lineage"]


class Lineage:
    """Who was merged into whom; the ledger is read once, and only where somebody asks about a merged fact.

    `ledger` begins the stream anew each time it is called. Facts whose removal was erased are known by their ids alone.
    """

    def __init__(self, ledger: Callable[[], Iterable[Commit]]) -> None:
        self._ledger = ledger
        self._sources: dict[str, tuple[Fact, str]] | None = None

    def _known(self) -> dict[str, tuple[Fact, str]]:
        """The facts that were merged, by id, each with the id of the one it went into last."""
        if self._sources is None:
            self._sources = {
                event.fact.id: (event.fact, event.detail or "")
                for commit in self._ledger()
                for event in commit.events
                if isinstance(event, FactRemoved) and event.reason == "consolidated"
            }
        return self._sources

    def ancestors(self, fact: Fact) -> dict[str, Fact | None]:
        """Return all that went into a fact, by id, nearest first; None where nothing is known of it any more."""
        found: dict[str, Fact | None] = {}
        asked = list(fact.consolidated_from)
        while asked:
            source = asked.pop(0)
            if source in found:
                continue
            known = self._known().get(source)
            found[source] = None if known is None else known[0]
            if known is not None:
                asked += known[0].consolidated_from
        return found

    def learned(self, fact: Fact) -> Iterator[Fact]:
        """Yield the facts by which it is known where a fact was learned: itself, or those at the root of it.

        A merged fact's own evidence names turns without their threads, so it only serves where a root is unknown.
        """
        ancestors = self.ancestors(fact)
        if None in ancestors.values() or not ancestors:
            yield fact
        yield from (known for known in ancestors.values() if known is not None and not known.consolidated_from)

    def merged_into(self, facts: Iterable[str]) -> Iterator[Fact]:
        """Yield the facts that went into one of these, near or far, and are not among them."""
        reached = set(facts)
        while True:
            new = [fact for fact, into in self._known().values() if into in reached and fact.id not in reached]
            if not new:
                return
            reached.update(fact.id for fact in new)
            yield from new
