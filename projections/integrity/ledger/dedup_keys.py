"""Dedup keys of the known facts."""

from __future__ import annotations

from collections.abc import Mapping

from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    Fact,
)


class DedupKeys:
    """Dedup keys of the known facts: finds two facts with the same content without comparing all."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._facts = facts
        self._key_of: dict[str, str] = {}
        self._ids: dict[str, list[str]] = {}
        self._fresh: set[str] = set()

    def put(self, fact: Fact, key_type: str) -> None:
        """Add or update a fact."""
        key = dedup_key(fact.content, key_type)
        if self._key_of.get(fact.id) != key:
            self.drop(fact.id)
            self._key_of[fact.id] = key
            self._ids.setdefault(key, []).append(fact.id)
            self._fresh.add(key)

    def drop(self, fact_id: str) -> None:
        """Remove a fact."""
        key = self._key_of.pop(fact_id, None)
        if key is not None:
            self._ids[key].remove(fact_id)
            if not self._ids[key]:
                del self._ids[key]

    def rebuild(self, facts: list[Fact], key_type: str) -> None:
        """Replace all facts, after a change of the dedup key."""
        self._key_of, self._ids = {}, {}
        for fact in facts:
            self.put(fact, key_type)

    def duplicates(self) -> tuple[str, str] | None:
        """Return two facts with the same key, of which one was added or changed since the last call."""
        fresh, self._fresh = self._fresh, set()
        found = next((ids for key in fresh if len(ids := self._ids.get(key, [])) > 1), None)
        return None if found is None else (found[0], found[1])
