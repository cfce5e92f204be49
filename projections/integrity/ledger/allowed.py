"""Tables of what a commit of each kind may hold."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from backstory.ledger.core.events import (
    CandidateRejected,
    Erased,
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
        "revert": ("revert", *_SWEPT),
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
