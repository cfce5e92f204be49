"""Taking back: one update, or everything since a moment.

An undo is planned against today's memory and planned whole: what it would write, what it finds superseded (normal), and
what conflicts (blocking). A plan is also what a preview shows; deciding merely refuses a plan with conflicts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from backstory.ledger.core.commands import Revert, RollBack
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import (
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    LedgerEvent,
    PolicyChanged,
    Redacted,
    Section,
    SummaryUpdated,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import told_elsewhere
from backstory.ledger.rules.admission import sweep
from backstory.ledger.rules.ranking import Ranking

__all__ = ["Note", "Undo", "plan_revert", "plan_rollback"]


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something an undo leaves alone, or stumbles over.

    `kind`: gone, back, rewritten, room, policy, erased (superseded); revised, duplicate, threshold, cap (conflicts or,
    for a rollback, what today's policy does not let back in).
    """

    kind: str
    detail: str
    fact: str | None = None
    section: str | None = None


_ERASED = Note("erased", "content of this commit is gone for good, and what it did stays done")


class Undo(msgspec.Struct, frozen=True):
    """A planned undo: the events it would write, with `--force` where there are conflicts."""

    events: tuple[LedgerEvent, ...]
    superseded: tuple[Note, ...] = ()
    conflicts: tuple[Note, ...] = ()


def _core(fact: Fact) -> Fact:
    """A fact without its confirmations, which never block an undo."""
    return msgspec.structs.replace(fact, confirmations=0, confirmed_at=None)


class _Plan:
    """The undo of one commit, event by event, last to first, on working copies of today's memory."""

    def __init__(self, memory: Memory, command: Revert) -> None:
        self.command = command
        self.policy = memory.policy
        self.facts = dict(memory.facts)
        self.sections = dict(memory.sections)
        self.today = memory
        self.restore: list[Fact] = []
        self.evicted: list[Fact] = []
        self.others: list[LedgerEvent] = []
        self.superseded: list[Note] = []
        self.conflicts: list[Note] = []

    def undo(self, event: Event) -> None:
        match event:
            case FactAdded(fact=fact):
                self._take_away(fact)
            case FactRemoved(fact=fact, reason=reason):
                self._bring_back(fact, evicted=reason == "cap")
            case FactRevised():
                self._change_back(event)
            case SummaryUpdated():
                self._rewrite(event)
            case PolicyChanged(before=before, after=after) if before is not None:
                if self.policy == after:
                    self.policy = before
                    self.others.append(PolicyChanged(after, before, "manual"))
                else:
                    self.superseded.append(Note("policy", "the policy has changed again since"))
            case Redacted():
                self.superseded.append(Note("erased", "content is gone for good"))
            case Erased() if _ERASED not in self.superseded:
                self.superseded.append(_ERASED)
            case _:
                pass

    def _take_away(self, fact: Fact) -> None:
        now = self.facts.get(fact.id)
        if now is None:
            self.superseded.append(Note("gone", "has left memory since", fact=fact.id))
            return
        if _core(now) != _core(fact):
            self.conflicts.append(Note("revised", "was changed since; taking it away would lose that", fact=fact.id))
        del self.facts[fact.id]

    def _bring_back(self, fact: Fact, *, evicted: bool) -> None:
        if fact.id in self.facts:
            self.superseded.append(Note("back", "is in memory again", fact=fact.id))
        else:
            self.restore.append(fact)
            if evicted:
                self.evicted.append(fact)

    def _change_back(self, event: FactRevised) -> None:
        now = self.facts.get(event.after.id)
        if now is None:
            self.superseded.append(Note("gone", "has left memory since", fact=event.after.id))
        elif now == event.after:
            self.facts[now.id] = event.before
        elif event.change == "confirmed":
            self.facts[now.id] = msgspec.structs.replace(now, confirmations=max(0, now.confirmations - 1))
        else:
            if _core(now) != _core(event.after):
                self.conflicts.append(
                    Note("revised", "was changed since; changing it back would lose that", fact=now.id)
                )
            self.facts[now.id] = msgspec.structs.replace(
                event.before, confirmations=now.confirmations, confirmed_at=now.confirmed_at
            )

    def _rewrite(self, event: SummaryUpdated) -> None:
        if self.sections.get(event.section, Section()) == event.after:
            self.sections[event.section] = event.before
        else:
            self.superseded.append(Note("rewritten", "has been rewritten since", section=event.section))

    def settle(self) -> Undo:
        """Let the facts back in that may be, and spell the difference as events."""
        self._return(self._keep_keys_apart())
        self._leave_out_for_want_of_room()
        dropped = sweep(self.facts.values(), self._ranking(), by_hand_too=True)
        for drop in dropped:
            self.conflicts.append(Note(drop.rule, f"has no place under the policy: {drop.detail}", fact=drop.fact.id))
            del self.facts[drop.fact.id]
        rules = {drop.fact.id: drop.rule for drop in dropped}
        self._keep_summaries_apart()
        changes = _difference(self.today, self.facts, self.sections, "revert", rules)
        return Undo((*changes, *self.others), tuple(self.superseded), tuple(self.conflicts))

    def _ranking(self) -> Ranking:
        return Ranking(self.policy, self.command.at, self.command.heat)

    def _key(self, fact: Fact) -> str:
        return dedup_key(fact.content, self.policy.dedup_key)

    def _keep_keys_apart(self) -> dict[str, str]:
        """A fact changed back may meet one that took its words meanwhile: the holder stays, the fact stays as it is."""
        holders = {self._key(f): f.id for i, f in self.facts.items() if self.today.facts.get(i) == f}
        for fact_id, fact in list(self.facts.items()):
            holder = holders.setdefault(self._key(fact), fact_id)
            if holder != fact_id:
                self.conflicts.append(Note("duplicate", f"{holder} says this now", fact=fact_id))
                self.facts[fact_id] = self.today.facts[fact_id]
        return holders

    def _keep_summaries_apart(self) -> None:
        """What went into a summary that went into another one meanwhile stays out: that one tells of it."""
        for name in sorted(told_elsewhere(self.today.sections, self.sections)):
            del self.sections[name]
            self.superseded.append(Note("rewritten", "is told by another summary now", section=name))

    def _return(self, holders: dict[str, str]) -> None:
        for fact in self.restore:
            holder = holders.setdefault(self._key(fact), fact.id)
            if holder == fact.id:
                self.facts[fact.id] = fact
            else:
                self.conflicts.append(Note("duplicate", f"{holder} says this now", fact=fact.id))

    def _leave_out_for_want_of_room(self) -> None:
        """An eviction was the cap's doing, not the update's: the evicted return, best first, as far as there is room.

        Without this no update in the middle of a full memory's history could be reverted: later updates have long taken
        the room, and would have evicted the same facts.
        """
        over = len(self.facts) - self.policy.max_facts
        returning = sorted((fact for fact in self.evicted if fact.id in self.facts), key=self._ranking().key)
        for fact in returning[: max(0, over)]:
            del self.facts[fact.id]
            self.superseded.append(Note("room", "was evicted, and there is no room for it today", fact=fact.id))


def _difference(
    today: Memory,
    facts: dict[str, Fact],
    sections: dict[str, Section],
    reason: str,
    rules: Mapping[str, str] | None = None,
) -> list[LedgerEvent]:
    """Spell what leads from today's memory to these facts and sections: removals, changes, returns, sections."""
    events: list[LedgerEvent] = [
        FactRemoved(fact, (rules or {}).get(fact.id, reason)) for fact in today.facts.values() if fact.id not in facts
    ]
    events += [
        FactRevised(now, facts[now.id], "restored")
        for now in today.facts.values()
        if now.id in facts and facts[now.id] != now
    ]
    events += [FactAdded(fact) for fact in facts.values() if fact.id not in today.facts]
    for name in sorted({*today.sections, *sections}):
        before, after = today.section(name), sections.get(name, Section())
        if before != after:
            events.append(SummaryUpdated(name, before, after))
    return events


def _must_be_fresh(memory: Memory, command: Revert | RollBack) -> None:
    if command.seen is not None and memory.barriers.get("redaction", 0) > command.seen:
        raise ConflictError("something was erased while this was being planned; nothing was written: ask once more")


def plan_revert(memory: Memory, command: Revert) -> Undo:
    """Plan the undo of one commit.

    What it added and nobody changed goes, what it removed returns, a section that still holds its text goes back.
    Superseded: what later commits already took away, brought back or rewrote, what was evicted for room that later
    commits have taken, and what was erased. Conflicts: a fact changed since (confirmations aside), words another fact
    holds now, a confidence under today's threshold, no room. With force the holder of the words stays, a fact under
    the threshold stays away, and the cap evicts by rank.

    Raises:
        ConflictError: something was erased after the command was made; it may hold that.
    """
    _must_be_fresh(memory, command)
    plan = _Plan(memory, command)
    # What an erasure says again was there before it: taking the erasure back would lose that, and bring nothing back.
    erasure = any(isinstance(event, Redacted) for event in command.events)
    for event in command.events[:1] if erasure else reversed(command.events):
        plan.undo(event)
    return plan.settle()


def plan_rollback(memory: Memory, command: RollBack) -> Undo:
    """Plan the return to the facts and sections of an earlier commit, under today's policy.

    What today's policy does not let back in is listed as superseded; nothing conflicts, for everything since is undone.

    Raises:
        ConflictError: as `plan_revert`.
    """
    _must_be_fresh(memory, command)
    ranking = Ranking(memory.policy, command.at, command.heat)
    dropped = sweep(command.facts, ranking, by_hand_too=True)
    gone = {drop.fact.id for drop in dropped}
    facts = {fact.id: fact for fact in command.facts if fact.id not in gone}
    notes = tuple(
        Note(drop.rule, f"today's policy does not let it back in: {drop.detail}", fact=drop.fact.id) for drop in dropped
    )
    return Undo(tuple(_difference(memory, facts, dict(command.sections), "rollback")), notes)
