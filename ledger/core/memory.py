"""What is remembered: the state that events lead to.

`evolve(memory, event)` is the whole meaning of an event. Replaying a log is folding it; nothing is decided on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    PolicyChanged,
    Redacted,
    Section,
    SummaryUpdated,
)
from backstory.ledger.core.policy import Policy

__all__ = ["BARRIERS", "Fold", "Memory", "birth", "evolve"]

BARRIERS = ("clear", "redaction", "revert", "rollback")
"""Kinds of commit that a model's answer, asked for before them, does not outlive."""


class Memory(msgspec.Struct, frozen=True):
    """One scope's memory at one commit; treat its dicts as read-only.

    `seq` and `at` are the commit's, `changed_at` that of the last commit that changed the document. `configured` is
    the policy that configuration asked for last, so that a change made by hand outlives a restart. `barriers` holds
    the last seq of each kind in BARRIERS.
    """

    seq: int = 0
    at: str = ""
    changed_at: str = ""
    facts: dict[str, Fact] = {}
    sections: dict[str, Section] = {}
    policy: Policy = Policy()
    configured: Policy = Policy()
    barriers: dict[str, int] = {}

    def section(self, name: str) -> Section:
        """The section, or the empty one."""
        return self.sections.get(name, _EMPTY)

    def in_order(self) -> list[Fact]:
        """The live facts by birth, oldest first: the order of the document."""
        return sorted(self.facts.values(), key=birth)


_EMPTY = Section()


def birth(fact: Fact) -> tuple[int, int]:
    """The rank of a fact by birth; unique within a scope."""
    return (fact.seq, fact.place)


class Fold:
    """Folds commits in place, on copies of its own; `memory()` hands out the result.

    A million commits would otherwise copy the facts a million times.
    """

    def __init__(self, memory: Memory) -> None:
        self.seq = memory.seq
        self.at = memory.at
        self.changed_at = memory.changed_at
        self.facts = dict(memory.facts)
        self.sections = dict(memory.sections)
        self.policy = memory.policy
        self.configured = memory.configured
        self.barriers = dict(memory.barriers)

    def apply(self, event: Event) -> bool:
        """Take one event in; True where it changed the document."""
        effect = _EFFECTS.get(type(event))
        return effect is not None and effect(self, event)

    def advance(self, seq: int, at: str, kind: str, events: Sequence[Event]) -> None:
        """Take a whole commit in."""
        changed = False
        effects = _EFFECTS
        for event in events:
            effect = effects.get(type(event))
            if effect is not None and effect(self, event):
                changed = True
        self.finish(seq, at, kind, events, changed=changed)

    def finish(self, seq: int, at: str, kind: str, events: Sequence[Event], *, changed: bool) -> None:
        """Close a commit whose events were applied one by one; `changed` tells whether one changed the document."""
        self.seq = seq
        self.at = at
        if changed or seq == 1:
            self.changed_at = at
        if kind in BARRIERS and not (kind == "redaction" and events and all(map(_expired, events))):
            self.barriers[kind] = seq

    def memory(self) -> Memory:
        """The state so far, on its own copies."""
        return Memory(
            self.seq,
            self.at,
            self.changed_at,
            dict(self.facts),
            dict(self.sections),
            self.policy,
            self.configured,
            dict(self.barriers),
        )


def evolve(memory: Memory, event: Event) -> Memory:
    """Return the memory after one event; the memory given is untouched."""
    fold = Fold(memory)
    fold.apply(event)
    return fold.memory()


def _added(fold: Fold, event: FactAdded) -> bool:
    fold.facts[event.fact.id] = event.fact
    return True


def _removed(fold: Fold, event: FactRemoved) -> bool:
    return fold.facts.pop(event.fact.id, None) is not None


def _revised(fold: Fold, event: FactRevised) -> bool:
    fold.facts[event.after.id] = event.after
    return True


def _summary(fold: Fold, event: SummaryUpdated) -> bool:
    if event.after == _EMPTY:
        fold.sections.pop(event.section, None)
    else:
        fold.sections[event.section] = event.after
    return event.section in DOCUMENT_SECTIONS


def _policy(fold: Fold, event: PolicyChanged) -> bool:
    fold.policy = event.after
    if event.source == "config":
        fold.configured = event.after
    return False


def _redacted(fold: Fold, event: Redacted) -> bool:
    if event.fact is not None:
        fold.facts.pop(event.fact, None)
    if event.section is not None:
        fold.sections.pop(event.section, None)
    # Whether it was there must not matter: a replay finds what was erased gone before it comes to its redaction.
    return event.fact is not None or event.section in DOCUMENT_SECTIONS


def _expired(event: Event) -> bool:
    """Whether an event erases a turn whose time had come: nothing in flight depends on it, for it is covered.

    So it is where a summary of turns says again what of a summary that had to go with some of them stays, also where
    that was erased later.
    """
    return isinstance(event, SummaryUpdated | Erased) or (isinstance(event, Redacted) and event.what == "expired")


# An event that is not here (UpdateProposed, CandidateRejected, Erased …) tells why, and changes nothing.
_EFFECTS: dict[type, Callable[..., bool]] = {
    FactAdded: _added,
    FactRemoved: _removed,
    FactRevised: _revised,
    SummaryUpdated: _summary,
    PolicyChanged: _policy,
    Redacted: _redacted,
}
