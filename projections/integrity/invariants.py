"""Invariants in every version of the rules: what a commit of each kind may hold, and that no two facts say the same."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.events import (
    CandidateRejected,
    Erased,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    IdsReserved,
    PolicyChanged,
    Redacted,
    SectionsMoved,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    UpdateFailed,
    UpdateProposed,
)

UNDO = frozenset[type]((FactAdded, FactRemoved, FactRevised, SummaryUpdated))


EVENTS: Mapping[str, frozenset[type]] = MappingProxyType(
    {
        kind: frozenset({Erased, *events})
        for kind, events in {
            "genesis": (PolicyChanged,),
            "extraction": (*UNDO, SummaryShared, UpdateProposed, CandidateRejected, UpdateFailed),
            "share": (SummaryUpdated, SummaryShared, SectionsMoved, SummariesReceived, CandidateRejected, UpdateFailed),
            "summary": (SummaryUpdated, UpdateFailed),
            "manual": (FactAdded, FactRemoved, FactRevised, CandidateRejected, UpdateFailed),
            "import": (*UNDO, CandidateRejected, IdsReserved),
            "revert": (*UNDO, PolicyChanged),
            "rollback": (*UNDO,),
            "clear": (FactRemoved, SummaryUpdated),
            "expiry": (FactRemoved,),
            "policy": (FactRemoved, PolicyChanged),
            "redaction": (Redacted, FactAdded, SummaryUpdated),
        }.items()
    }
)
"""The events that a commit of each kind may hold."""


_SWEPT = ("threshold", "duplicate", "cap")


REASONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "extraction": ("model", "stale", "consolidated", "cap", "ended"),
        "manual": ("hand", "cap", "ended"),
        "tool": ("model", "cap", "ended"),
        "import": ("import", "cap", "ended"),
        "revert": ("revert", "ended", *_SWEPT),
        "rollback": ("rollback",),
        "clear": ("clear",),
        "expiry": ("ended", "expired"),
        "policy": _SWEPT,
    }
)
"""The reasons for removals in a commit of each kind; `tool` is a manual commit by a model."""


CHANGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "extraction": ("confirmed", "extended", "ending", "tagged"),
        "manual": ("edited", "ending"),
        "import": ("edited",),
        "revert": ("restored",),
        "rollback": ("restored",),
    }
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
