"""Memory: the state of one scope, and the fold that derives it from events.

`evolve(memory, event)` defines what an event does. A replay folds the recorded events and never decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar, assert_never

import msgspec

from backstory.ledger.core.dedup import mark_key
from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    IdsReserved,
    PolicyChanged,
    Redacted,
    Section,
    SectionsMoved,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    TurnEvent,
    UpdateEvent,
    UpdateProposed,
)
from backstory.ledger.core.kinds import Barrier, CauseKind
from backstory.ledger.core.moments import begins, ends
from backstory.ledger.core.policy import Policy

BARRIERS: tuple[Barrier, ...] = ("clear", "redaction", "revert", "rollback")


MOST_MARKS = 1_000
"""How many marks of each kind are kept, the newest."""

_V = TypeVar("_V")


class Mark(msgspec.Struct, frozen=True):
    """A text that a person took away in commit `seq`, made at `at`, when the transcript's last commit was `after`."""

    seq: int
    after: int
    at: str = ""


class Memory(msgspec.Struct, frozen=True):
    """The memory of one scope after one commit; its dicts must not be changed.

    `seq` and `at` are the commit's; `changed_at` is the time of the last commit that changed the document.
    `configured` is the last policy that came from the configuration, so that a policy set by hand survives a
    restart. `barriers` holds the last seq of each kind in BARRIERS. `named_ahead` is the highest commit that an id
    in an imported document named before it was made (see `rules.admission`). Where agents share their user's
    sections, `shared` is the last commit of an agent that shared one and `shared_before` the one before it, `moved`
    is whether the agent gave up its own, and `received` is the last commit that the user's memory received of each
    agent. `marks` are the texts that a person took away, by `mark_key`, and `erased` those that were erased, by keyed
    digest. `taken` are the texts that models removed, by `mark_key`, with the time of the newest turn that they did
    it for. All three are oldest first.
    """

    seq: int = 0
    at: str = ""
    changed_at: str = ""
    facts: dict[str, Fact] = {}
    sections: dict[str, Section] = {}
    policy: Policy = Policy()
    configured: Policy = Policy()
    barriers: dict[str, int] = {}
    named_ahead: int = 0
    shared: int = 0
    shared_before: int = 0
    moved: bool = False
    received: dict[str, int] = {}
    marks: dict[str, Mark] = {}
    erased: dict[str, Mark] = {}
    taken: dict[str, str] = {}

    def section(self, name: str) -> Section:
        """Return the section of this name, or an empty one."""
        return self.sections.get(name, _EMPTY)

    def in_order(self) -> list[Fact]:
        """Return the live facts by birth rank, oldest first, which is the order of the document."""
        return sorted(self.facts.values(), key=birth)

    def standing_at(self, at: str) -> Memory:
        """Return the memory as it is served at a moment: without the facts that have lapsed by then."""
        facts = {fact_id: fact for fact_id, fact in self.facts.items() if not has_lapsed(fact, at)}
        return self if len(facts) == len(self.facts) else msgspec.structs.replace(self, facts=facts)

    def next_lapse(self) -> str | None:
        """Return the moment at which the next fact lapses; None where none ever does."""
        # Asked for with every commit: most facts have no end, and a call for each would cost more than the rest.
        ending = [fact for fact in self.facts.values() if fact.valid_until or fact.expires_at]
        return min((end for fact in ending if (end := lapses(fact)) is not None), default=None)

    def barrier_after(self, basis: int) -> tuple[int, Barrier] | None:
        """Return the seq and kind of the last barrier after a commit; an erasure outranks the others."""
        seq, kind = max((self.barriers.get(kind, 0), kind) for kind in BARRIERS)
        if (erased := self.barriers.get("redaction", 0)) > basis:
            # No word of an answer that was asked for before an erasure may be kept.
            seq, kind = erased, "redaction"
        return (seq, kind) if seq > basis else None

    def with_sections_of(self, users: Memory) -> Memory:
        """Return the memory with the document's sections of another one, as an agent shows its user's."""
        sections = {name: section for name, section in self.sections.items() if name not in DOCUMENT_SECTIONS}
        sections |= {name: users.sections[name] for name in DOCUMENT_SECTIONS if name in users.sections}
        changed_at = max(self.changed_at, users.changed_at)
        return msgspec.structs.replace(self, sections=sections, changed_at=changed_at)


_EMPTY = Section()
_Effect: TypeAlias = Callable[..., bool]


def lapses(fact: Fact) -> str | None:
    """Return the moment from which a fact is served no more: `valid_until` or `expires_at` is over; None: never."""
    if fact.valid_until is None and fact.expires_at is None:
        return None
    return min(ends(stated) for stated in (fact.valid_until, fact.expires_at) if stated is not None)


def has_lapsed(fact: Fact, at: str) -> bool:
    """Whether the time of a fact, or that of remembering it, was over at a moment."""
    return (end := lapses(fact)) is not None and end <= at


def held(fact: Fact, first: str, behind: str) -> bool:
    """Whether what a fact says may have been true at some time from one moment on and before another.

    Where both moments are the same it is about that moment. What a fact does not state bounds nothing.
    """
    if fact.valid_from is not None and (begin := begins(fact.valid_from)) > first and begin >= behind:
        return False
    return fact.valid_until is None or ends(fact.valid_until) > first


def birth(fact: Fact) -> tuple[int, int]:
    """Return the birth rank of a fact; it is unique within a scope."""
    return (fact.seq, fact.place)


class Fold:
    """A mutable fold over commits; `memory()` returns the result.

    Without it, a replay of a million commits would copy the facts a million times.
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
        self.named_ahead = memory.named_ahead
        self.shared = memory.shared
        self.shared_before = memory.shared_before
        self.moved = memory.moved
        self.received = dict(memory.received)
        self.marks = memory.marks
        self.erased = memory.erased
        self.taken = memory.taken
        self._lent = True

    def apply(self, event: Event) -> bool:
        """Apply one event; return whether it changed the document."""
        try:
            effect = _EFFECTS[type(event)]
        except KeyError:
            effect = _EFFECTS[type(event)] = _effect_of(event)
        return effect is not None and effect(self, event)

    def advance(self, seq: int, at: str, kind: CauseKind, events: Sequence[Event]) -> None:
        """Apply a whole commit."""
        self.at = at
        changed = False
        for event in events:
            if self.apply(event):
                changed = True
        self.finish(seq, at, kind, events, changed=changed)

    def finish(self, seq: int, at: str, kind: CauseKind, events: Sequence[Event], *, changed: bool) -> None:
        """Complete a commit whose events were applied; `changed` if one of them changed the document."""
        self.seq = seq
        self.at = at
        if changed or seq == 1:
            self.changed_at = at
        if kind in BARRIERS and not (kind == "redaction" and events and all(map(_expired, events))):
            self.barriers[kind] = seq

    def memory(self) -> Memory:
        """Return the state so far, which does not change any more."""
        self._lent = True
        return Memory(
            self.seq,
            self.at,
            self.changed_at,
            dict(self.facts),
            dict(self.sections),
            self.policy,
            self.configured,
            dict(self.barriers),
            self.named_ahead,
            self.shared,
            self.shared_before,
            self.moved,
            dict(self.received),
            self.marks,
            self.erased,
            self.taken,
        )

    def own_marks(self) -> None:
        """Copy the marks before they are changed, if a memory has them: there may be thousands, and few commits do."""
        if self._lent:
            self.marks, self.erased, self.taken = dict(self.marks), dict(self.erased), dict(self.taken)
            self._lent = False


def evolve(memory: Memory, event: Event) -> Memory:
    """Return the memory after one event; the argument does not change."""
    fold = Fold(memory)
    fold.apply(event)
    return fold.memory()


def _added(fold: Fold, event: FactAdded) -> bool:
    fold.facts[event.fact.id] = event.fact
    _lift(fold, event.fact)
    return True


def _removed(fold: Fold, event: FactRemoved) -> bool:
    if event.marked_after is not None:
        fold.own_marks()
        _mark(fold.marks, mark_key(event.fact.content), Mark(fold.seq + 1, event.marked_after, fold.at))
    if event.said_at is not None:
        fold.own_marks()
        key = mark_key(event.fact.content)
        _mark(fold.taken, key, max(event.said_at, fold.taken.get(key, "")))
    return fold.facts.pop(event.fact.id, None) is not None


def _revised(fold: Fold, event: FactRevised) -> bool:
    fold.facts[event.after.id] = event.after
    if event.marked_after is not None:
        fold.own_marks()
        _mark(fold.marks, mark_key(event.before.content), Mark(fold.seq + 1, event.marked_after, fold.at))
    _lift(fold, event.after)
    return True


def _mark(marks: dict[str, _V], key: str, mark: _V) -> None:
    marks.pop(key, None)
    marks[key] = mark
    while len(marks) > MOST_MARKS:
        del marks[next(iter(marks))]


def _lift(fold: Fold, fact: Fact) -> None:
    # Most memories have no marks, and a replay calls this for every fact.
    if fold.marks and (key := mark_key(fact.content)) in fold.marks:
        fold.own_marks()
        del fold.marks[key]


def _proposed(fold: Fold, event: UpdateProposed) -> bool:
    for fact_id, said in event.repeated.items():
        # An erasure may have taken the fact.
        if (fact := fold.facts.get(fact_id)) is not None:
            fold.facts[fact_id] = msgspec.structs.replace(fact, said=said)
    return False


def _summary(fold: Fold, event: SummaryUpdated) -> bool:
    if event.after == _EMPTY:
        fold.sections.pop(event.section, None)
    else:
        fold.sections[event.section] = event.after
    return event.section in DOCUMENT_SECTIONS


def _shared(fold: Fold, event: SummaryShared) -> bool:
    del event
    if fold.shared != fold.seq + 1:
        fold.shared_before, fold.shared = fold.shared, fold.seq + 1
    return False


def _received(fold: Fold, event: SummariesReceived) -> bool:
    fold.received[event.agent] = event.seq
    return False


def _moved(fold: Fold, event: SectionsMoved) -> bool:
    del event
    fold.moved = True
    return False


def _policy(fold: Fold, event: PolicyChanged) -> bool:
    fold.policy = event.after
    if event.source == "config":
        fold.configured = event.after
    return False


def _ids_reserved(fold: Fold, event: IdsReserved) -> bool:
    fold.named_ahead = max(fold.named_ahead, event.until)
    return False


def _redacted(fold: Fold, event: Redacted) -> bool:
    if event.mark is not None and event.marked_after is not None:
        fold.own_marks()
        _mark(fold.erased, event.mark, Mark(fold.seq + 1, event.marked_after, fold.at))
    if event.fact is not None:
        fold.facts.pop(event.fact, None)
    if event.section is not None:
        fold.sections.pop(event.section, None)
    # This must not depend on what is there now: in a replay, the erased events are gone before their redaction.
    return event.fact is not None or event.section in DOCUMENT_SECTIONS


def _expired(event: Event) -> bool:
    # Expired turns are covered, so no update in flight depends on them. The same holds for a summary that is restated
    # because the summary it was merged into went with such turns, and for the stub of one that was erased later.
    return isinstance(event, SummaryUpdated | Erased) or (isinstance(event, Redacted) and event.what == "expired")


def _effect_of(event: Event) -> _Effect | None:  # noqa: C901, PLR0912 one case for each event
    """Return what an event does to a fold and whether that changed the document; None if it does nothing."""
    match event:
        case FactAdded():
            return _added
        case FactRemoved():
            return _removed
        case FactRevised():
            return _revised
        case SummaryUpdated():
            return _summary
        case SummaryShared():
            return _shared
        case SummariesReceived():
            return _received
        case SectionsMoved():
            return _moved
        case PolicyChanged():
            return _policy
        case IdsReserved():
            return _ids_reserved
        case Redacted():
            return _redacted
        case UpdateProposed():
            return _proposed
        case UpdateEvent() | Erased() | TurnEvent():
            return None
        case _:
            assert_never(event)


_EFFECTS: dict[type, _Effect | None] = {}
"""What `_effect_of` returns, by the type of the event: a replay cannot afford its comparisons."""
