"""Ledger check: whether the rules of this project could have written each commit.

The chain has no key, so a forged commit can have a valid hash. This check folds the ledger and compares each commit
with the memory before it. It checks only what holds in every version of the rules: an event carries what it replaced,
and a memory obeys its policy. It does not decide commits again: after a change of the rules an honest ledger would look
forged, and the ledger does not record everything that a command held.

After an erasure, the facts and sections that the redactions name are unknown until a later event states them. The check
skips these, and after damage or an unexplained stub it stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import CONSOLIDATIONS
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    TOOL_SOURCE,
    Erased,
    ErasureEvent,
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    FactRevised,
    IdsReserved,
    PolicyChanged,
    Redacted,
    Section,
    SectionEvent,
    SettingEvent,
    SharingEvent,
    SummariesReceived,
    SummaryShared,
    SummaryUpdated,
    TurnEvent,
    UpdateEvent,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.core.summaries import SummaryKey
from backstory.ledger.rules.admission import given_id, is_reserved
from backstory.ledger.rules.merge import FIRST_MERGED
from backstory.projections.integrity.invariants import CHANGES, EVENTS, REASONS, UNDO, DedupKeys
from backstory.projections.integrity.stream_check import LaterReferences, StreamCheck

_MODELS = ("extraction", "summary")
_COVERING = ("extraction", "manual")


class _Restorable(msgspec.Struct):
    """The content that an undo may restore: the events of a reverted commit, or the memory of a rollback's target."""

    events: tuple[Event, ...] = ()
    facts: dict[str, Fact] = {}
    sections: dict[str, Section] = {}
    unknown: frozenset[str] = frozenset()
    unknown_sections: frozenset[str] = frozenset()


_EMPTY = Section()


class LedgerCheck:
    """Folds the ledger and reports each commit that the rules cannot have written.

    For each commit the first broken rule is reported. `fold` is the memory after the commits taken so far.
    """

    def __init__(self, check: StreamCheck, scope: Scope) -> None:
        self.fold = Fold(Memory())
        self._check = check
        self._streams = (scope.stream(LEDGER), scope.stream(TRANSCRIPT))
        self._later = LaterReferences(check.store, check.stream)
        self._sure = True
        self._unknown: set[str] = set()
        self._unknown_sections: set[str] = set()
        self._keys = DedupKeys(self.fold.facts)
        self._undone: dict[tuple[str, int], _Restorable] = {("rollback", 0): _Restorable()}
        self._summarized: dict[tuple[str, int], int] = {}

    def take(self, commit: Commit) -> None:
        """Check a commit and apply it."""
        self._sure = self._sure and not self._check.damaged
        fold, kind = self.fold, commit.cause.kind
        holds = set(map(type, commit.events))
        before = len(fold.facts)
        violation = self._check_commit(commit, holds) if self._sure else None
        changed = False
        for index, event in enumerate(commit.events):
            if isinstance(event, Erased):
                self._lose(commit.seq, index)
            elif violation is None and self._sure:
                violation = self._check_event(commit, event)
            changed = fold.apply(event) or changed
            self._learn(event)
        duplicates = self._keys.duplicates()
        if violation is None and self._sure:
            violation = self._check_memory(commit, before, holds, duplicates)
        fold.finish(commit.seq, commit.at, kind, commit.events, changed=changed)
        self._remember(commit)
        if violation is not None and self._sure:
            self._check.impossible(commit, violation)

    # Unknown content.

    def _lose(self, seq: int, index: int) -> None:
        """Note a stub: its fact or section is unknown from now on."""
        subject = self._later.subject(seq, index)
        if subject is None:
            self._sure = False
            return
        fact, section = subject
        if fact is not None:
            self._unknown.add(fact)
            self._keys.drop(fact)
        if section is not None:
            self._unknown_sections.add(section)

    # An event about a fact or a section states all of it, so it is known from then on.

    def _learn(self, event: Event) -> None:
        match event:
            case FactAdded(fact=fact) | FactRevised(after=fact):
                self._unknown.discard(fact.id)
                self._keys.put(fact, self.fold.policy.dedup_key)
            case FactRemoved(fact=fact):
                self._unknown.discard(fact.id)
                self._keys.drop(fact.id)
            case SummaryUpdated(section=section):
                self._unknown_sections.discard(section)
            case Redacted(fact=fact_id, section=section):
                if fact_id is not None:
                    self._unknown.discard(fact_id)
                    self._keys.drop(fact_id)
                if section is not None:
                    self._unknown_sections.discard(section)
            case PolicyChanged(after=policy):
                known = [fact for fact in self.fold.facts.values() if fact.id not in self._unknown]
                self._keys.rebuild(known, policy.dedup_key)
            case SharingEvent() | UpdateEvent() | IdsReserved() | Erased() | TurnEvent():
                pass
            case _:
                assert_never(event)

    def _remember(self, commit: Commit) -> None:
        """Keep the content that later undos refer to, up to the last of them."""
        seq, later = commit.seq, self._later
        if ("revert", seq) in later.undone:
            subjects = [later.subject(seq, i) for i, event in enumerate(commit.events) if isinstance(event, Erased)]
            facts = frozenset(fact for fact, _ in filter(None, subjects) if fact is not None)
            sections = frozenset(section for _, section in filter(None, subjects) if section is not None)
            self._undone["revert", seq] = _Restorable(commit.events, unknown=facts, unknown_sections=sections)
        if ("rollback", seq) in later.undone:
            facts, sections = frozenset(self._unknown), frozenset(self._unknown_sections)
            then = _Restorable((), dict(self.fold.facts), dict(self.fold.sections), facts, sections)
            self._undone["rollback", seq] = then
        cause = commit.cause
        if later.undone.get(undo := (cause.kind, cause.target or 0)) == seq:
            self._undone.pop(undo, None)
        if cause.summarized is not None and cause.thread is not None:
            place = (cause.thread, cause.level)
            self._summarized[place] = max(cause.summarized.last, self._summarized.get(place, 0))

    # The commit as a whole.

    def _check_commit(self, commit: Commit, holds: set[type]) -> str | None:
        if commit.at < self.fold.at:
            return f"is dated {commit.at}, before the commit it follows ({self.fold.at})"
        if commit.cause.kind == "erased":
            return None
        violation = self._check_cause(commit)
        if violation is None and not holds <= EVENTS[commit.cause.kind]:
            other = min(form.__name__ for form in holds - EVENTS[commit.cause.kind])
            return f"holds a {other}, which commits of its kind do not"
        return violation or self._check_answer(commit, holds)

    def _check_cause(self, commit: Commit) -> str | None:
        cause, seq = commit.cause, commit.seq
        if (cause.kind == "genesis") != (seq == 1):
            return "is no genesis, and the first commit is one" if seq == 1 else "is a second genesis"
        if cause.kind not in EVENTS:
            return "is of a kind that a ledger does not have"
        if cause.by_model and cause.kind != "manual":
            return "is a model's change of a single fact, which commits of its kind are not"
        if cause.insist and cause.kind != "import":
            return "insists on facts, which only imports do"
        if cause.kind in ("genesis", "policy") and sum(isinstance(e, PolicyChanged) for e in commit.events) != 1:
            return "does not say which policy it puts in force"
        if cause.turns is not None and (cause.kind not in _COVERING or cause.thread is None):
            return "covers turns, which only updates of a thread do"
        if cause.summarized is not None and (cause.kind != "summary" or cause.thread is None):
            return "sums up turns, which only summaries of a thread do"
        if cause.kind in ("revert", "rollback") and not (cause.target is not None and 0 <= cause.target < seq):
            return f"undoes commit {cause.target}, which is no earlier commit"
        return None

    def _check_answer(self, commit: Commit, holds: set[type]) -> str | None:
        """Check an update against the memory that the model was shown."""
        if commit.cause.kind != "extraction":
            return None
        proposed = commit.first(UpdateProposed)
        changes = not holds.isdisjoint({*UNDO, SummaryShared})
        if proposed is None:
            return "changes memory without an answer of a model" if changes and Erased not in holds else None
        if not 0 <= proposed.basis < commit.seq:
            return f"answers a question on commit {proposed.basis}, which is no earlier commit"
        seq, kind = max(((seq, kind) for kind, seq in self.fold.barriers.items()), default=(0, ""))
        if seq > proposed.basis and (changes or commit.cause.turns is not None):
            return f"uses an answer asked for on commit {proposed.basis}, although a {kind} came at commit {seq}"
        return None

    def _check_memory(
        self, commit: Commit, before: int, holds: set[type], duplicates: tuple[str, str] | None
    ) -> str | None:
        """Check the memory after a commit against the policy in force."""
        if duplicates is not None:
            return f"leaves two facts that say the same, {duplicates[0]} and {duplicates[1]}"
        fold, policy = self.fold, self.fold.policy
        changed = PolicyChanged in holds
        if changed or len(fold.facts) > before:
            known = len(fold.facts) - sum(fact_id in fold.facts for fact_id in self._unknown)
            if known > policy.max_facts:
                return f"leaves {known} facts in memory, where the policy in force allows {policy.max_facts}"
        threshold = policy.fact_confidence_threshold
        for fact in list(fold.facts.values()) if changed else _stated_facts(commit.events):
            weak = fact.confidence < threshold and not fact.by_hand
            if weak and fact.id not in self._unknown and fold.facts.get(fact.id) == fact:
                return f"leaves fact {fact.id} of confidence {fact.confidence:g}, under the threshold of {threshold:g}"
        return None

    # One event.

    def _check_event(self, commit: Commit, event: Event) -> str | None:
        match event:
            case FactAdded():
                return self._check_addition(commit, event)
            case FactRemoved():
                return self._check_removal(commit, event)
            case FactRevised():
                return self._check_revision(commit, event)
            case SummaryUpdated():
                return self._check_summary(commit, event)
            case SummariesReceived():
                return self._check_received(commit, event)
            case PolicyChanged():
                return self._check_policy(commit, event)
            case Redacted(stream=stream) if stream not in self._streams:
                return f"erases in {stream}, which belongs to another scope"
            case SharingEvent() | UpdateEvent() | IdsReserved() | ErasureEvent() | TurnEvent():
                return None
            case _:
                assert_never(event)

    def _check_addition(self, commit: Commit, event: FactAdded) -> str | None:
        fact, kind = event.fact, commit.cause.kind
        if fact.id in self.fold.facts and fact.id not in self._unknown:
            return f"adds fact {fact.id}, which exists already"
        if kind in ("revert", "rollback"):
            return self._check_return(commit, fact)
        if kind == "redaction":
            named = any(isinstance(other, Redacted) and other.fact == fact.id for other in commit.events)
            return None if named else f"restates fact {fact.id}, of which it erases nothing"
        return None if kind == "erased" else _check_birth(commit, event)

    def _check_return(self, commit: Commit, fact: Fact) -> str | None:
        """Check a fact that an undo restores."""
        then = self._restorable(commit)
        if then is None or fact.id in then.unknown:
            return None
        if commit.cause.kind == "rollback":
            known = _alike(then.facts.get(fact.id), fact)
        else:
            known = any(isinstance(event, FactRemoved) and _alike(event.fact, fact) for event in then.events)
        return None if known else f"restores fact {fact.id}, which commit {commit.cause.target} does not have so"

    def _restorable(self, commit: Commit) -> _Restorable | None:
        """Return the content that an undo may restore; None where it is unknown."""
        return self._undone.get((commit.cause.kind, commit.cause.target or 0))

    def _check_removal(self, commit: Commit, event: FactRemoved) -> str | None:
        fact, kind = event.fact, commit.cause.kind
        if (violation := self._check_before(fact, "removes")) is not None:
            return violation
        if _is_by_model(commit.cause) and fact.by_hand:
            return f"removes fact {fact.id}, which a person entered and no model removes"
        reasons = REASONS.get("tool" if commit.cause.by_model else kind)
        if reasons is not None and event.reason not in reasons:
            return f"removes fact {fact.id} with the reason {event.reason}, which commits of its kind do not have"
        if kind == "revert" and event.reason in ("revert", "ended"):
            then = self._restorable(commit)
            added = then is None or any(isinstance(e, FactAdded) and e.fact.id == fact.id for e in then.events)
            if then is not None and not added and fact.id not in then.unknown:
                return f"takes back fact {fact.id}, which commit {commit.cause.target} did not add"
        return None

    def _check_before(self, fact: Fact, what: str) -> str | None:
        """Check the previous state of a fact that an event names."""
        if fact.id in self._unknown:
            return None
        stands = self.fold.facts.get(fact.id)
        if stands is None:
            return f"{what} fact {fact.id}, which does not exist"
        return None if _alike(stands, fact) else f"{what} fact {fact.id} in a state that differs from memory"

    def _check_revision(self, commit: Commit, event: FactRevised) -> str | None:
        before, after, kind = event.before, event.after, commit.cause.kind
        if (violation := self._check_before(before, "revises")) is not None:
            return violation
        if after.id != before.id:
            return f"revises fact {before.id} into another one, {after.id}"
        if _is_by_model(commit.cause) and (before.by_hand or after.by_hand):
            return f"revises fact {before.id}, which a person entered and no model changes"
        if kind in CHANGES and event.change not in CHANGES[kind]:
            return f"revises fact {before.id} as {event.change}, which commits of its kind do not"
        if event.change in _MAY_CHANGE and _without(before, event.change) != _without(after, event.change):
            return f"changes more of fact {before.id} than being {event.change} does"
        if kind == "manual" and not (after.by_hand or commit.cause.by_model):
            return f"edits fact {before.id} by hand and does not make it a person's"
        return self._check_restoring(commit, event) if kind in ("revert", "rollback") else None

    def _check_restoring(self, commit: Commit, event: FactRevised) -> str | None:
        if commit.cause.kind == "rollback":
            return self._check_return(commit, event.after)
        then = self._restorable(commit)
        if then is None or event.after.id in then.unknown:
            return None
        # A fact that was removed and added again under its id is restored by one event; later confirmations stay, and
        # so do later tags.
        earlier = [fact for e in then.events if (fact := _before(e)) is not None and fact.id == event.after.id]
        known = [_unrepeated(fact) for fact in (*earlier, event.before)]
        if earlier and _unrepeated(event.after) in known:
            return None
        return f"restores fact {event.after.id} to a state that it did not have before commit {commit.cause.target}"

    def _check_summary(self, commit: Commit, event: SummaryUpdated) -> str | None:
        name, kind = event.section, commit.cause.kind
        if name not in self._unknown_sections and event.before != self.fold.sections.get(name, _EMPTY):
            return f"rewrites section {name} from a text that was not in it"
        if kind in ("extraction", "import", "share") and name not in DOCUMENT_SECTIONS:
            return f"writes section {name}, which the document does not have"
        if kind == "clear" and event.after != _EMPTY:
            return f"writes section {name}, and a clear empties them"
        if kind == "summary":
            return self._check_thread_summary(commit, event)
        if kind in ("revert", "rollback"):
            return self._check_section_back(commit, event)
        return None

    def _check_thread_summary(self, commit: Commit, event: SummaryUpdated) -> str | None:
        cause, summed = commit.cause, SummaryKey.of(event.section)
        if cause.summarized is None or cause.thread is None or summed is None:
            return f"writes section {event.section}, which is not a summary of turns"
        new = SummaryKey(cause.thread, cause.level, cause.summarized)
        if event.after == _EMPTY:
            return None if new.holds(summed) else f"removes section {event.section}, which it does not replace"
        if summed != new:
            return f"writes section {event.section}, and summarises {new.section}"
        if new.turns.first <= self._summarized.get((new.thread, new.level), 0):
            return f"summarises turns from {new.turns.first} on, which an earlier summary covers"
        return None

    def _check_section_back(self, commit: Commit, event: SummaryUpdated) -> str | None:
        then, name = self._restorable(commit), event.section
        if then is None or name in then.unknown_sections:
            return None
        if commit.cause.kind == "rollback":
            known = then.sections.get(name, _EMPTY) == event.after
        else:
            updates = (e for e in then.events if isinstance(e, SummaryUpdated) and e.section == name)
            known = any(e.before == event.after for e in updates)
        return None if known else f"restores a text of {name} that commit {commit.cause.target} does not have"

    def _check_received(self, commit: Commit, event: SummariesReceived) -> str | None:
        received = self.fold.received.get(event.agent, 0)
        if event.cut:
            return None if event.seq < received else f"cuts agent {event.agent} off after all that was received of it"
        if event.seq <= received:
            return f"receives sections of commit {event.seq} of agent {event.agent} a second time"
        if not 0 <= event.basis < commit.seq:
            return f"receives sections made on commit {event.basis}, which is no earlier commit"
        return None

    def _check_policy(self, commit: Commit, event: PolicyChanged) -> str | None:
        if commit.cause.kind == "genesis":
            return None if event.before is None else "names a policy before it"
        if event.before != self.fold.policy:
            return "changes a policy that was not in force"
        then = self._restorable(commit) if commit.cause.kind == "revert" else None
        if then is not None and not any(isinstance(e, PolicyChanged) and e.before == event.after for e in then.events):
            return f"restores a policy that commit {commit.cause.target} did not replace"
        return None


_MAY_CHANGE: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "confirmed": {"confirmations": 0, "confirmed_at": None, "said": None},
        "extended": {"expected_valid_days": None},
        "ending": {"valid_until": None, "by_hand": False},
        "tagged": {"tags": ()},
    }
)
"""The fields that each of a model's changes may touch."""


def _alike(one: Fact | None, other: Fact) -> bool:
    """Whether two states of a fact are one; when its words were repeated may have gone with an erased answer."""
    return one is not None and msgspec.structs.replace(one, said=other.said) == other


def _without(fact: Fact, change: str) -> Fact:
    return msgspec.structs.replace(fact, **_MAY_CHANGE[change])


def _unrepeated(fact: Fact) -> Fact:
    return _without(_without(fact, "confirmed"), "tagged")


def _before(event: Event) -> Fact | None:
    """Return the fact that an event removes or revises."""
    match event:
        case FactRemoved(fact=fact) | FactRevised(before=fact):
            return fact
        case FactAdded() | SectionEvent() | UpdateEvent() | SettingEvent() | ErasureEvent() | TurnEvent():
            return None
        case _:
            assert_never(event)


def _stated_facts(events: Iterable[Event]) -> list[Fact]:
    added = [event.fact for event in events if type(event) is FactAdded]
    return added + [event.after for event in events if type(event) is FactRevised]


def _is_by_model(cause: Cause) -> bool:
    return cause.kind in _MODELS or cause.by_model


def _check_birth(commit: Commit, event: FactAdded) -> str | None:
    """Check a new fact: its id gives its commit and its place in the proposal."""
    fact, cause, place = event.fact, commit.cause, event.place or ""
    last = place.rpartition("/")[2]
    number = int(last) if last.isdecimal() else -1
    number += FIRST_MERGED if place.startswith(CONSOLIDATIONS) else 0
    if fact.seq != commit.seq or fact.place != number:
        return f"adds fact {fact.id} with the place {fact.place} of commit {fact.seq}, which is not its place"
    own = {given_id(fact.seq, fact.place), given_id(fact.seq, fact.place, second=True)}
    if fact.id not in own and (cause.kind != "import" or is_reserved(fact.id, commit.seq - 1)):
        return f"adds fact {fact.id}, an id that its commit cannot give"
    if cause.kind == "import":
        return None
    if fact.by_hand == _is_by_model(cause):
        return f"adds fact {fact.id} as {'a person' if fact.by_hand else 'a model'}'s, which it is not"
    source = "manual" if fact.by_hand else cause.thread
    if fact.source != (source or (TOOL_SOURCE if cause.by_model else None)):
        return f"adds fact {fact.id} as learned from {fact.source}, which it was not"
    return None
