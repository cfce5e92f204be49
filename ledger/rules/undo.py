"""Rules for an undo: revert one commit, or roll back to an earlier one.

An undo is planned as a whole against the current memory: the events to write, what later commits have superseded (which
is normal), and conflicts (which block it). A preview shows the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import Revert, RollBack
from backstory.ledger.core.dedup import dedup_key, mark_key
from backstory.ledger.core.errors import ConflictError
from backstory.ledger.core.events import (
    Erased,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    IdsReserved,
    LedgerEvent,
    PolicyChanged,
    Redacted,
    Section,
    SharingEvent,
    SummaryUpdated,
    TurnEvent,
    UpdateEvent,
)
from backstory.ledger.core.kinds import RemovalReason
from backstory.ledger.core.memory import Memory, has_lapsed
from backstory.ledger.core.moments import stated_time
from backstory.ledger.core.summaries import overlapping_summaries
from backstory.ledger.rules.admission import sweep
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.text.tags import joined_tags


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact, section or policy that an undo leaves as it is, or that conflicts with it.

    `kind` is gone, back, rewritten, room, policy, expired or erased if it is superseded; revised, duplicate, threshold
    or cap if it is a conflict, or, for a rollback, if the current policy does not let it back in.
    """

    kind: str
    detail: str
    fact: str | None = None
    section: str | None = None


_LAPSED = "was true or remembered until then, and does not come back"
_ERASED = Note("erased", "content of this commit is gone for good, and what it did stays done")


class Undo(msgspec.Struct, frozen=True):
    """A planned undo; if there are conflicts, `events` are what a forced undo writes."""

    events: tuple[LedgerEvent, ...]
    superseded: tuple[Note, ...] = ()
    conflicts: tuple[Note, ...] = ()


def _unconfirmed(fact: Fact) -> Fact:
    """Return a fact without what confirmations and repetitions change, which never block an undo."""
    tags = fact.tags if fact.by_hand else ()
    return msgspec.structs.replace(fact, confirmations=0, confirmed_at=None, said=None, tags=tags)


def _tags_before(now: Fact, event: FactRevised) -> tuple[str, ...]:
    """Return a fact's tags without those that a revision gave it, and with those that it took."""
    before, after = event.before.tags, event.after.tags
    kept = (tag for tag in now.tags if tag in before or tag not in after)
    return joined_tags(kept, (tag for tag in before if tag not in after))


class _RevertPlan:
    """The undo of one commit, built event by event on copies of the current memory."""

    def __init__(self, memory: Memory, command: Revert) -> None:
        self.command = command
        self.current = memory
        self.policy = memory.policy
        self.facts = dict(memory.facts)
        self.sections = dict(memory.sections)
        self.returning: list[Fact] = []
        self.past: list[Fact] = []
        """Those that the commit added and ended at once; to undo that is to say that they were wrong."""
        self.ends = {e.fact.id: e for e in command.undone if isinstance(e, FactRemoved) and e.reason == "ended"}
        """The ends that the commit had undone, by fact."""
        self.ended: list[Fact] = []
        """Those that the commit took back although they had ended; to undo that is to end them again."""
        self.evicted: list[Fact] = []
        """Those of `returning` that the cap had evicted."""
        self.policy_events: list[LedgerEvent] = []
        self.superseded: list[Note] = []
        self.conflicts: list[Note] = []

    def undo(self, event: Event) -> None:
        match event:
            case FactAdded(fact=fact):
                self._undo_add(fact)
            case FactRemoved():
                self._undo_removal(event)
            case FactRevised():
                self._undo_revision(event)
            case SummaryUpdated():
                self._undo_summary(event)
            case PolicyChanged(before=before, after=after) if before is not None:
                if self.policy == after:
                    self.policy = before
                    self.policy_events.append(PolicyChanged(after, before, "manual"))
                else:
                    self.superseded.append(Note("policy", "the policy has changed again since"))
            case Redacted():
                self.superseded.append(Note("erased", "content is gone for good"))
            case Erased() if _ERASED not in self.superseded:
                self.superseded.append(_ERASED)
            case PolicyChanged() | Erased() | SharingEvent() | UpdateEvent() | IdsReserved() | TurnEvent():
                pass
            case _:
                assert_never(event)

    def _is_added(self, fact: Fact) -> bool:
        """Whether the commit to undo adds a fact."""
        return any(isinstance(event, FactAdded) and event.fact.id == fact.id for event in self.command.events)

    def _undo_add(self, fact: Fact) -> None:
        now = self.facts.get(fact.id)
        if now is None:
            if fact not in self.past and fact not in self.ended:
                self.superseded.append(Note("gone", "has left memory since", fact=fact.id))
            return
        if _unconfirmed(now) != _unconfirmed(fact):
            self.conflicts.append(Note("revised", "was changed since; taking it away would lose that", fact=fact.id))
        del self.facts[fact.id]

    def _undo_removal(self, event: FactRemoved) -> None:
        fact = event.fact
        if event.reason == "ended" and self._is_added(fact):
            self.past.append(fact)
        elif event.reason == "revert" and fact.id in self.ends and self._is_added(fact):
            self.ended.append(fact)
        elif fact.id in self.facts:
            self.superseded.append(Note("back", "is in memory again", fact=fact.id))
        else:
            self.returning.append(fact)
            if event.reason == "cap":
                self.evicted.append(fact)

    def _undo_revision(self, event: FactRevised) -> None:
        now = self.facts.get(event.after.id)
        if now is None:
            self.superseded.append(Note("gone", "has left memory since", fact=event.after.id))
        elif now == event.after:
            self.facts[now.id] = event.before
        elif event.change == "confirmed":
            self.facts[now.id] = msgspec.structs.replace(now, confirmations=max(0, now.confirmations - 1))
        elif event.change == "tagged":
            self.facts[now.id] = msgspec.structs.replace(now, tags=_tags_before(now, event))
        else:
            if _unconfirmed(now) != _unconfirmed(event.after):
                self.conflicts.append(
                    Note("revised", "was changed since; changing it back would lose that", fact=now.id)
                )
            self.facts[now.id] = msgspec.structs.replace(
                event.before,
                confirmations=now.confirmations,
                confirmed_at=now.confirmed_at,
                tags=_tags_before(now, event),
            )

    def _undo_summary(self, event: SummaryUpdated) -> None:
        if self.sections.get(event.section, Section()) == event.after:
            self.sections[event.section] = event.before
        else:
            self.superseded.append(Note("rewritten", "has been rewritten since", section=event.section))

    def finish(self) -> Undo:
        """Apply the policy to the facts that return, and return the difference to the current memory as events."""
        self._return_facts(self._drop_duplicate_revisions())
        self._drop_lapsed()
        self._drop_evicted_over_cap()
        dropped = sweep(self.facts.values(), self._ranking(), by_hand_too=True)
        for drop in dropped:
            self.conflicts.append(Note(drop.reason, f"has no place under the policy: {drop.detail}", fact=drop.fact.id))
            del self.facts[drop.fact.id]
        rules = {drop.fact.id: drop.reason for drop in dropped}
        self._drop_overlapping_summaries()
        changes = _difference(
            self.current, self.facts, self.sections, "revert", rules, marked_after=self.command.transcript
        )
        changes = [self._ended_again(event) for event in changes]
        for fact in self.past:
            changes += [FactAdded(fact), FactRemoved(fact, "revert", marked_after=self.command.transcript)]
        for fact in self.ended:
            changes += [FactAdded(fact), self._end_of(fact)]
        return Undo((*changes, *self.policy_events), tuple(self.superseded), tuple(self.conflicts))

    def _ended_again(self, event: LedgerEvent) -> LedgerEvent:
        """Return an event; of a fact that the commit had brought back although it had ended, that it ends again."""
        if isinstance(event, FactRemoved) and event.reason == "revert" and event.fact.id in self.ends:
            return self._end_of(event.fact)
        return event

    def _end_of(self, fact: Fact) -> FactRemoved:
        end = self.ends[fact.id]
        # What states no end has ended with the commit that said so.
        until = end.valid_until or fact.valid_until or stated_time(self.command.undone_at)
        marked = None if end.marked_after is None else self.command.transcript
        return FactRemoved(fact, "ended", note=end.note, marked_after=marked, valid_until=until)

    def _ranking(self) -> Ranking:
        return Ranking(self.policy, self.command.at, self.command.heat)

    def _key(self, fact: Fact) -> str:
        return dedup_key(fact.content, self.policy.dedup_key)

    def _drop_duplicate_revisions(self) -> dict[str, str]:
        """Leave a fact as it is if another fact now has its old text; return the facts that stay, by dedup key."""
        holders = {self._key(f): f.id for i, f in self.facts.items() if self.current.facts.get(i) == f}
        for fact_id, fact in list(self.facts.items()):
            holder = holders.setdefault(self._key(fact), fact_id)
            if holder != fact_id:
                self.conflicts.append(Note("duplicate", f"{holder} says this now", fact=fact_id))
                self.facts[fact_id] = self.current.facts[fact_id]
        return holders

    def _drop_overlapping_summaries(self) -> None:
        """Leave out the summaries whose turns another summary covers by now."""
        for name in sorted(overlapping_summaries(self.current.sections, self.sections)):
            del self.sections[name]
            self.superseded.append(Note("rewritten", "is covered by another summary now", section=name))

    def _return_facts(self, holders: dict[str, str]) -> None:
        for fact in self.returning:
            holder = holders.setdefault(self._key(fact), fact.id)
            if holder == fact.id:
                self.facts[fact.id] = fact
            else:
                self.conflicts.append(Note("duplicate", f"{holder} says this now", fact=fact.id))

    def _drop_lapsed(self) -> None:
        """Leave out what would come back although its time is over."""
        for fact_id, fact in list(self.facts.items()):
            now = self.current.facts.get(fact_id)
            if now == fact or not has_lapsed(fact, self.command.at):
                continue
            self.superseded.append(Note("expired", _LAPSED, fact=fact_id))
            if now is None:
                del self.facts[fact_id]
            else:
                self.facts[fact_id] = now

    def _drop_evicted_over_cap(self) -> None:
        """Return the facts that the cap had evicted only as far as there is room, the highest ranked first.

        Later updates would have evicted the same facts. So lack of room for them is no conflict: otherwise no earlier
        update of a full memory could be reverted.
        """
        over = len(self.facts) - self.policy.max_facts
        returning = sorted((fact for fact in self.evicted if fact.id in self.facts), key=self._ranking().key)
        for fact in returning[: max(0, over)]:
            del self.facts[fact.id]
            self.superseded.append(Note("room", "was evicted, and there is no room for it today", fact=fact.id))


def _difference(
    current: Memory,
    facts: dict[str, Fact],
    sections: dict[str, Section],
    reason: RemovalReason,
    rules: Mapping[str, RemovalReason] | None = None,
    *,
    marked_after: int | None,
) -> list[LedgerEvent]:
    """Return the events that lead from the current memory to these facts and sections.

    A removed fact has `reason` and leaves a mark, or has the rule that `rules` holds for its id.
    """
    events: list[LedgerEvent] = [
        FactRemoved(fact, rules[fact.id])
        if rules and fact.id in rules
        else FactRemoved(fact, reason, marked_after=marked_after)
        for fact in current.facts.values()
        if fact.id not in facts
    ]
    events += [
        _restored(now, facts[now.id], marked_after)
        for now in current.facts.values()
        if now.id in facts and facts[now.id] != now
    ]
    events += [FactAdded(fact) for fact in facts.values() if fact.id not in current.facts]
    for name in sorted({*current.sections, *sections}):
        before, after = current.section(name), sections.get(name, Section())
        if before != after:
            events.append(SummaryUpdated(name, before, after))
    return events


def _restored(now: Fact, then: Fact, marked_after: int | None) -> FactRevised:
    same = mark_key(now.content) == mark_key(then.content)
    return FactRevised(now, then, "restored", marked_after=None if same else marked_after)


def _check_erasures(memory: Memory, command: Revert | RollBack) -> None:
    if command.seen is not None and memory.barriers.get("redaction", 0) > command.seen:
        raise ConflictError("content was erased while the undo was planned; nothing was written, try again")
    if command.seen is not None and memory.seq < command.seen:
        # It would bring back what was removed.
        raise ConflictError("memory was removed while the undo was planned; nothing was written, try again")


def plan_revert(memory: Memory, command: Revert) -> Undo:
    """Plan the undo of one commit.

    Facts that it added leave, facts that it removed return, and a section that still has its text goes back to the text
    before. Superseded are facts and sections that a later commit removed, brought back or rewrote, evicted facts for
    which there is no room, and erased content. Conflicts are a fact revised since (except for confirmations), a text
    that another fact has now, a confidence below the current threshold, and a full memory. A forced undo keeps the fact
    that has the text now, leaves out facts below the threshold, and evicts by rank.

    Raises:
        ConflictError: Content was erased after the command was made, so the command may hold erased content.
    """
    _check_erasures(memory, command)
    plan = _RevertPlan(memory, command)
    # An erasure restates what stays, which was there before. To undo that would lose it and bring back nothing.
    erasure = any(isinstance(event, Redacted) for event in command.events)
    for event in command.events[:1] if erasure else reversed(command.events):
        plan.undo(event)
    return plan.finish()


def revert(memory: Memory, command: Revert) -> tuple[LedgerEvent, ...]:
    """Return the events that undo one commit.

    Raises:
        ConflictError: The plan has conflicts and the command is not forced; or as `plan_revert`.
    """
    plan = plan_revert(memory, command)
    if plan.conflicts and not command.force:
        first = plan.conflicts[0]
        more = f" and {len(plan.conflicts) - 1} more" if len(plan.conflicts) > 1 else ""
        raise ConflictError(
            f"commit {command.target} cannot be reverted as it is: {first.fact} {first.detail}{more}; "
            "look with --dry-run, then --force"
        )
    return plan.events


def plan_rollback(memory: Memory, command: RollBack) -> Undo:
    """Plan the return to the facts and sections of an earlier commit, under the current policy.

    Facts that the current policy does not let back in are listed as superseded. Nothing conflicts, because everything
    since then is undone.

    Raises:
        ConflictError: As `plan_revert`.
    """
    _check_erasures(memory, command)
    lapsed = [fact for fact in command.facts if has_lapsed(fact, command.at)]
    standing = [fact for fact in command.facts if not has_lapsed(fact, command.at)]
    dropped = sweep(standing, Ranking(memory.policy, command.at, command.heat), by_hand_too=True)
    dropped_ids = {drop.fact.id for drop in dropped}
    facts = {fact.id: fact for fact in standing if fact.id not in dropped_ids}
    notes = (
        *(Note("expired", _LAPSED, fact=fact.id) for fact in lapsed),
        *(
            Note(drop.reason, f"today's policy does not let it back in: {drop.detail}", fact=drop.fact.id)
            for drop in dropped
        ),
    )
    changes = _difference(memory, facts, dict(command.sections), "rollback", marked_after=command.transcript)
    return Undo(tuple(changes), notes)
