"""Check of what the ledger's commits say: could the rules of this project have written them?

The chain has no key: a commit written by hand can have the right hash. So the ledger is folded, and each commit is held
against the memory that it follows. What is checked holds in every version of the rules: an event carries what it
replaced, and a memory obeys its policy. Commits are not decided again: a rule that was changed since would make an
honest ledger look forged, and the answer to a model's proposal is not all that a command holds.

Where content was erased, the facts and sections that the redactions name are unknown from the stub until an event says
them again; nothing is concluded about these, and everything about the others. Behind damage, or a stub that no
redaction names, nothing is concluded at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from backstory.ledger.core.commands import CONSOLIDATIONS
from backstory.ledger.core.commit import UNREADABLE, Commit, decode
from backstory.ledger.core.dedup import dedup_key
from backstory.ledger.core.errors import StoreError
from backstory.ledger.core.events import (
    DOCUMENT_SECTIONS,
    CandidateRejected,
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
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.core.summaries import SummaryKey
from backstory.ledger.log.store import EventStore
from backstory.ledger.rules.merge import FIRST_MERGED
from backstory.projections.integrity.stream_check import StreamCheck

__all__ = ["NOT_OURS", "LedgerCheck"]

NOT_OURS = "its hash is right, but no rule writes that"
"""How the message of each such problem ends."""

_UNDO = frozenset[type]((FactAdded, FactRemoved, FactRevised, SummaryUpdated))
_EVENTS: Mapping[str, frozenset[type]] = MappingProxyType(
    {
        kind: frozenset({Erased, *events})
        for kind, events in {
            "genesis": (PolicyChanged,),
            "extraction": (*_UNDO, UpdateProposed, CandidateRejected, UpdateFailed),
            "summary": (SummaryUpdated, UpdateFailed),
            "manual": (FactAdded, FactRemoved, FactRevised, CandidateRejected, UpdateFailed),
            "import": (*_UNDO, CandidateRejected),
            "revert": (*_UNDO, PolicyChanged),
            "rollback": (*_UNDO,),
            "clear": (FactRemoved, SummaryUpdated),
            "policy": (FactRemoved, PolicyChanged),
            "redaction": (Redacted, FactAdded, SummaryUpdated),
        }.items()
    }
)
"""What a commit of each kind may hold."""

_SWEPT = ("threshold", "duplicate", "cap")
_REASONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "extraction": ("model", "stale", "consolidated", "cap"),
        "manual": ("hand", "cap"),
        "import": ("import", "cap"),
        "revert": ("revert", *_SWEPT),
        "rollback": ("rollback",),
        "clear": ("clear",),
        "policy": _SWEPT,
    }
)
"""Why facts leave memory by a commit of each kind."""

_CHANGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "extraction": ("confirmed", "extended"),
        "manual": ("edited",),
        "import": ("edited",),
        "revert": ("restored",),
        "rollback": ("restored",),
    }
)
_MODELS = ("extraction", "summary")
_COVERING = ("extraction", "manual")
_OUR_ID = re.compile(r"fact_(\d+)_.+", re.ASCII | re.DOTALL)
_NOTED = re.compile(rb'\{"v":\d+,"seq":\d+,"at":"[^"]*","cause":\{"kind":"(?:redaction|revert|rollback)"')


class _Foresight:
    """What later commits say of earlier ones: which stubs were what, and which commits are undone."""

    def __init__(self, store: EventStore, stream: str) -> None:
        self._erased: dict[tuple[int, int], tuple[str | None, str | None]] = {}
        self.reverted: dict[int, int] = {}
        """The last revert of each commit that is reverted."""
        self.returned_to: dict[int, int] = {}
        names: dict[str | None, str | None] = {}
        for commit in _noted(store, stream):
            target = commit.cause.target
            if target is not None and commit.cause.kind == "revert":
                self.reverted[target] = commit.seq
            elif target is not None and commit.cause.kind == "rollback":
                self.returned_to[target] = commit.seq
            for event in commit.events:
                if isinstance(event, Redacted) and event.stream == stream and event.seq < commit.seq:
                    subject = (names.setdefault(event.fact, event.fact), names.setdefault(event.section, event.section))
                    self._erased.setdefault((event.seq, event.index), subject)

    def subject(self, seq: int, index: int) -> tuple[str | None, str | None] | None:
        """Return the fact and the section that an erased event was about; None where no redaction names it."""
        return self._erased.get((seq, index))


def _noted(store: EventStore, stream: str) -> Iterator[Commit]:
    """Yield the redactions and undos; a line that cannot be read is told by the pass itself."""
    for record in store.read(stream):
        if _NOTED.match(record.line) is not None:
            try:
                yield decode(record.line)
            except (*UNREADABLE, StoreError):
                continue


class _Then(msgspec.Struct):
    """What an undo may bring back: the events of the commit it reverts, or the memory it rolls back to."""

    events: tuple[Event, ...] = ()
    facts: dict[str, Fact] = {}
    sections: dict[str, Section] = {}
    unknown: frozenset[str] = frozenset()
    unknown_sections: frozenset[str] = frozenset()


_NOTHING = _Then()
_EMPTY = Section()


class LedgerCheck:
    """Folds the ledger and notes in its check each commit that nothing but a forger could have written.

    Of one commit the first broken rule is told. `fold` is the memory as far as the commits were taken.
    """

    def __init__(self, check: StreamCheck, scope: Scope) -> None:
        self.fold = Fold(Memory())
        self._check = check
        self._streams = (scope.stream(LEDGER), scope.stream(TRANSCRIPT))
        self._foresight = _Foresight(check.store, check.stream)
        self._sure = True
        self._unknown: set[str] = set()
        self._unknown_sections: set[str] = set()
        self._keys = _Keys(self.fold.facts)
        self._reverted: dict[int, _Then] = {}
        self._returned_to: dict[int, _Then] = {0: _NOTHING}
        self._summarized: dict[tuple[str, int], int] = {}

    def take(self, commit: Commit) -> None:
        """Judge a commit, and take it in."""
        self._sure = self._sure and not self._check.damaged
        fold, kind = self.fold, commit.cause.kind
        holds = set(map(type, commit.events))
        before = len(fold.facts)
        odd = self._odd_commit(commit, holds) if self._sure else None
        changed = False
        for index, event in enumerate(commit.events):
            form = type(event)
            if form is Erased:
                self._lose(commit.seq, index)
            elif odd is None and self._sure and (judge := _JUDGES.get(form)) is not None:
                odd = judge(self, commit, event)
            changed = fold.apply(event) or changed
            if (learn := _LESSONS.get(form)) is not None:
                learn(self, event)
        twins = self._keys.twins()
        if odd is None and self._sure:
            odd = self._odd_memory(commit, before, holds, twins)
        fold.finish(commit.seq, commit.at, kind, commit.events, changed=changed)
        self._remember(commit)
        if odd is not None and self._sure:
            told = f"commit {commit.seq} ({kind}) {odd}; {NOT_OURS}"
            self._check.found("impossible", self._check.lines, self._check.byte, told)

    # What is known.

    def _lose(self, seq: int, index: int) -> None:
        """Take in a stub: what it was about is unknown from here on."""
        subject = self._foresight.subject(seq, index)
        if subject is None:
            self._sure = False
            return
        fact, section = subject
        if fact is not None:
            self._unknown.add(fact)
            self._keys.drop(fact)
        if section is not None:
            self._unknown_sections.add(section)

    # Whatever speaks of a fact or a section says all of it: from then on it is known.

    def _learn_fact(self, fact: Fact) -> None:
        if self._unknown:
            self._unknown.discard(fact.id)
        self._keys.put(fact, self.fold.policy.dedup_key)

    def _learn_addition(self, event: FactAdded) -> None:
        self._learn_fact(event.fact)

    def _learn_revision(self, event: FactRevised) -> None:
        self._learn_fact(event.after)

    def _learn_absence(self, fact_id: str) -> None:
        self._unknown.discard(fact_id)
        self._keys.drop(fact_id)

    def _learn_removal(self, event: FactRemoved) -> None:
        self._learn_absence(event.fact.id)

    def _learn_summary(self, event: SummaryUpdated) -> None:
        self._unknown_sections.discard(event.section)

    def _learn_redaction(self, event: Redacted) -> None:
        if event.fact is not None:
            self._learn_absence(event.fact)
        if event.section is not None:
            self._unknown_sections.discard(event.section)

    def _learn_policy(self, event: PolicyChanged) -> None:
        known = [fact for fact in self.fold.facts.values() if fact.id not in self._unknown]
        self._keys.renew(known, event.after.dedup_key)

    def _remember(self, commit: Commit) -> None:
        """Keep what later undos speak of, as long as they do."""
        seq, later = commit.seq, self._foresight
        if seq in later.reverted:
            subjects = [later.subject(seq, i) for i, event in enumerate(commit.events) if isinstance(event, Erased)]
            facts = frozenset(fact for fact, _ in filter(None, subjects) if fact is not None)
            sections = frozenset(section for _, section in filter(None, subjects) if section is not None)
            self._reverted[seq] = _Then(commit.events, unknown=facts, unknown_sections=sections)
        if seq in later.returned_to:
            facts, sections = frozenset(self._unknown), frozenset(self._unknown_sections)
            self._returned_to[seq] = _Then((), dict(self.fold.facts), dict(self.fold.sections), facts, sections)
        target = commit.cause.target or 0
        if later.reverted.get(target) == seq:
            self._reverted.pop(target, None)
        if later.returned_to.get(target) == seq and target:
            self._returned_to.pop(target, None)
        cause = commit.cause
        if cause.summarized is not None and cause.thread is not None:
            place = (cause.thread, cause.level)
            self._summarized[place] = max(cause.summarized.last, self._summarized.get(place, 0))

    # The commit as a whole.

    def _odd_commit(self, commit: Commit, holds: set[type]) -> str | None:
        if commit.at < self.fold.at:
            return f"is dated {commit.at}, before the commit it follows ({self.fold.at})"
        if commit.cause.kind == "erased":
            return None
        odd = self._odd_cause(commit)
        if odd is None and not holds <= _EVENTS[commit.cause.kind]:
            other = min(form.__name__ for form in holds - _EVENTS[commit.cause.kind])
            return f"holds a {other}, which commits of its kind do not"
        return odd or self._odd_answer(commit, holds)

    def _odd_cause(self, commit: Commit) -> str | None:
        cause, seq = commit.cause, commit.seq
        if (cause.kind == "genesis") != (seq == 1):
            return "is no genesis, and the first commit is one" if seq == 1 else "is a second genesis"
        if cause.kind not in _EVENTS:
            return "is of a kind that a ledger does not have"
        if cause.kind in ("genesis", "policy") and sum(isinstance(e, PolicyChanged) for e in commit.events) != 1:
            return "does not say which policy it puts in force"
        if cause.turns is not None and (cause.kind not in _COVERING or cause.thread is None):
            return "covers turns, which only updates of a thread do"
        if cause.summarized is not None and (cause.kind != "summary" or cause.thread is None):
            return "sums up turns, which only summaries of a thread do"
        if cause.kind in ("revert", "rollback") and not (cause.target is not None and 0 <= cause.target < seq):
            return f"undoes commit {cause.target}, which is none before it"
        return None

    def _odd_answer(self, commit: Commit, holds: set[type]) -> str | None:
        """Judge an update by the memory that the model was asked on."""
        if commit.cause.kind != "extraction":
            return None
        proposed = next((event for event in commit.events if isinstance(event, UpdateProposed)), None)
        changes = not holds.isdisjoint(_UNDO)
        if proposed is None:
            return "changes memory without an answer of a model" if changes and Erased not in holds else None
        if not 0 <= proposed.basis < commit.seq:
            return f"answers what was asked on commit {proposed.basis}, which is none before it"
        seq, kind = max(((seq, kind) for kind, seq in self.fold.barriers.items()), default=(0, ""))
        if seq > proposed.basis and (changes or commit.cause.turns is not None):
            return f"uses an answer asked for on commit {proposed.basis}, although a {kind} came at commit {seq}"
        return None

    def _odd_memory(self, commit: Commit, before: int, holds: set[type], twins: tuple[str, str] | None) -> str | None:
        """Judge the memory that a commit leads to by the policy in force."""
        if twins is not None:
            return f"leaves two facts that say the same, {twins[0]} and {twins[1]}"
        fold, policy = self.fold, self.fold.policy
        changed = PolicyChanged in holds
        if changed or len(fold.facts) > before:
            known = len(fold.facts) - sum(fact_id in fold.facts for fact_id in self._unknown)
            if known > policy.max_facts:
                return f"leaves {known} facts in memory, where the policy in force allows {policy.max_facts}"
        threshold = policy.fact_confidence_threshold
        for fact in list(fold.facts.values()) if changed else _facts_said(commit.events):
            weak = fact.confidence < threshold and not fact.by_hand
            if weak and fact.id not in self._unknown and fold.facts.get(fact.id) == fact:
                return f"leaves fact {fact.id} of confidence {fact.confidence:g}, under the threshold of {threshold:g}"
        return None

    # One event.

    def _odd_addition(self, commit: Commit, event: FactAdded) -> str | None:
        fact, kind = event.fact, commit.cause.kind
        if fact.id in self.fold.facts and fact.id not in self._unknown:
            return f"adds fact {fact.id}, which is there already"
        if kind in ("revert", "rollback"):
            return self._odd_return(commit, fact)
        if kind == "redaction":
            named = any(isinstance(other, Redacted) and other.fact == fact.id for other in commit.events)
            return None if named else f"says fact {fact.id} again, of which it erases nothing"
        return None if kind == "erased" else _odd_birth(commit, event)

    def _odd_return(self, commit: Commit, fact: Fact) -> str | None:
        """Judge a fact that an undo brings back, by adding or restoring it."""
        then = self._then(commit)
        if then is None or fact.id in then.unknown:
            return None
        if commit.cause.kind == "rollback":
            known = then.facts.get(fact.id) == fact
        else:
            known = any(isinstance(event, FactRemoved) and event.fact == fact for event in then.events)
        return None if known else f"brings back fact {fact.id}, which commit {commit.cause.target} does not have so"

    def _then(self, commit: Commit) -> _Then | None:
        """Return what an undo may bring back; None where nobody can tell."""
        known = self._returned_to if commit.cause.kind == "rollback" else self._reverted
        return known.get(commit.cause.target or 0)

    def _odd_removal(self, commit: Commit, event: FactRemoved) -> str | None:
        fact, kind = event.fact, commit.cause.kind
        if (odd := self._odd_before(fact, "removes")) is not None:
            return odd
        if kind in _MODELS and fact.by_hand:
            return f"removes fact {fact.id}, which a person entered and no model removes"
        if kind in _REASONS and event.reason not in _REASONS[kind]:
            return f"removes fact {fact.id} with the reason {event.reason}, which commits of its kind do not have"
        if kind == "revert" and event.reason == "revert":
            then = self._then(commit)
            added = then is None or any(isinstance(e, FactAdded) and e.fact.id == fact.id for e in then.events)
            if then is not None and not added and fact.id not in then.unknown:
                return f"takes back fact {fact.id}, which commit {commit.cause.target} did not add"
        return None

    def _odd_before(self, fact: Fact, what: str) -> str | None:
        """Judge the fact that an event says was there."""
        if fact.id in self._unknown:
            return None
        stands = self.fold.facts.get(fact.id)
        if stands is None:
            return f"{what} fact {fact.id}, which is not there"
        return None if stands == fact else f"{what} fact {fact.id} as it was not: memory says something else of it"

    def _odd_revision(self, commit: Commit, event: FactRevised) -> str | None:
        before, after, kind = event.before, event.after, commit.cause.kind
        if (odd := self._odd_before(before, "revises")) is not None:
            return odd
        if after.id != before.id:
            return f"revises fact {before.id} into another one, {after.id}"
        if kind in _MODELS and (before.by_hand or after.by_hand):
            return f"revises fact {before.id}, which a person entered and no model changes"
        if kind in _CHANGES and event.change not in _CHANGES[kind]:
            return f"revises fact {before.id} as {event.change}, which commits of its kind do not"
        if event.change in _MAY_CHANGE and _without(before, event.change) != _without(after, event.change):
            return f"changes more of fact {before.id} than being {event.change} does"
        if kind == "manual" and not after.by_hand:
            return f"edits fact {before.id} by hand and does not make it a person's"
        return self._odd_restoring(commit, event) if kind in ("revert", "rollback") else None

    def _odd_restoring(self, commit: Commit, event: FactRevised) -> str | None:
        if commit.cause.kind == "rollback":
            return self._odd_return(commit, event.after)
        then = self._then(commit)
        if then is None or event.after.id in then.unknown:
            return None
        # What was removed and came anew under the same id is changed back in one event; confirmations since stay.
        said = [fact for e in then.events if (fact := _before(e)) is not None and fact.id == event.after.id]
        known = [_without(fact, "confirmed") for fact in (*said, event.before)]
        if said and _without(event.after, "confirmed") in known:
            return None
        return f"changes fact {event.after.id} back to what it was not before commit {commit.cause.target}"

    def _odd_summary(self, commit: Commit, event: SummaryUpdated) -> str | None:
        name, kind = event.section, commit.cause.kind
        if name not in self._unknown_sections and event.before != self.fold.sections.get(name, _EMPTY):
            return f"rewrites section {name} from a text that was not in it"
        if kind in ("extraction", "import") and name not in DOCUMENT_SECTIONS:
            return f"writes section {name}, which is none of the document's"
        if kind == "clear" and event.after != _EMPTY:
            return f"writes section {name}, and a clear empties them"
        if kind == "summary":
            return self._odd_thread_summary(commit, event)
        if kind in ("revert", "rollback"):
            return self._odd_section_back(commit, event)
        return None

    def _odd_thread_summary(self, commit: Commit, event: SummaryUpdated) -> str | None:
        cause, told = commit.cause, SummaryKey.of(event.section)
        if cause.summarized is None or cause.thread is None or told is None:
            return f"writes section {event.section}, which tells of no turns that it sums up"
        new = SummaryKey(cause.thread, cause.level, cause.summarized)
        if event.after == _EMPTY:
            return None if new.holds(told) else f"takes away section {event.section}, which it does not tell again"
        if told != new:
            return f"writes section {event.section}, and sums up {new.section}"
        if new.turns.first <= self._summarized.get((new.thread, new.level), 0):
            return f"sums up turns from {new.turns.first} on, which an earlier summary tells"
        return None

    def _odd_section_back(self, commit: Commit, event: SummaryUpdated) -> str | None:
        then, name = self._then(commit), event.section
        if then is None or name in then.unknown_sections:
            return None
        if commit.cause.kind == "rollback":
            known = then.sections.get(name, _EMPTY) == event.after
        else:
            told = (e for e in then.events if isinstance(e, SummaryUpdated) and e.section == name)
            known = any(e.before == event.after for e in told)
        return None if known else f"brings back a text of {name} that commit {commit.cause.target} does not have"

    def _odd_policy(self, commit: Commit, event: PolicyChanged) -> str | None:
        if commit.cause.kind == "genesis":
            return None if event.before is None else "says that a policy was in force before it"
        if event.before != self.fold.policy:
            return "changes a policy that was not in force"
        then = self._then(commit) if commit.cause.kind == "revert" else None
        if then is not None and not any(isinstance(e, PolicyChanged) and e.before == event.after for e in then.events):
            return f"puts a policy back that commit {commit.cause.target} did not replace"
        return None

    def _odd_redaction(self, commit: Commit, event: Redacted) -> str | None:
        del commit
        return None if event.stream in self._streams else f"erases in {event.stream}, which is another scope's"


_JUDGES: Mapping[type, Callable[..., str | None]] = MappingProxyType(
    {
        FactAdded: LedgerCheck._odd_addition,  # noqa: SLF001 the class's own
        FactRemoved: LedgerCheck._odd_removal,  # noqa: SLF001
        FactRevised: LedgerCheck._odd_revision,  # noqa: SLF001
        SummaryUpdated: LedgerCheck._odd_summary,  # noqa: SLF001
        PolicyChanged: LedgerCheck._odd_policy,  # noqa: SLF001
        Redacted: LedgerCheck._odd_redaction,  # noqa: SLF001
    }
)

_LESSONS: Mapping[type, Callable[..., None]] = MappingProxyType(
    {
        FactAdded: LedgerCheck._learn_addition,  # noqa: SLF001
        FactRemoved: LedgerCheck._learn_removal,  # noqa: SLF001
        FactRevised: LedgerCheck._learn_revision,  # noqa: SLF001
        SummaryUpdated: LedgerCheck._learn_summary,  # noqa: SLF001
        PolicyChanged: LedgerCheck._learn_policy,  # noqa: SLF001
        Redacted: LedgerCheck._learn_redaction,  # noqa: SLF001
    }
)

_MAY_CHANGE: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "confirmed": {"confirmations": 0, "confirmed_at": None},
        "extended": {"expected_valid_days": None},
    }
)
"""The fields that each of a model's changes may touch."""


def _without(fact: Fact, change: str) -> Fact:
    return msgspec.structs.replace(fact, **_MAY_CHANGE[change])


def _before(event: Event) -> Fact | None:
    """Return the fact that an event says was there before it."""
    match event:
        case FactRemoved(fact=fact) | FactRevised(before=fact):
            return fact
        case _:
            return None


def _facts_said(events: Iterable[Event]) -> list[Fact]:
    added = [event.fact for event in events if type(event) is FactAdded]
    return added + [event.after for event in events if type(event) is FactRevised]


def _odd_birth(commit: Commit, event: FactAdded) -> str | None:
    """Judge a fact that is new: it bears the number of its commit, and of its place in what was proposed."""
    fact, cause, place = event.fact, commit.cause, event.place or ""
    last = place.rpartition("/")[2]
    number = int(last) if last.isdecimal() else -1
    number += FIRST_MERGED if place.startswith(CONSOLIDATIONS) else 0
    if fact.seq != commit.seq or fact.place != number:
        return f"adds fact {fact.id} as born at place {fact.place} of commit {fact.seq}, which is not where it stands"
    if fact.id != f"fact_{fact.seq}_{fact.place}" and (cause.kind != "import" or _is_for_later(fact.id, commit.seq)):
        return f"adds fact {fact.id}, an id that its commit cannot give"
    if cause.kind == "import":
        return None
    if fact.by_hand != (cause.kind == "manual"):
        return f"adds fact {fact.id} as {'a person' if fact.by_hand else 'a model'}'s, which it is not"
    if fact.source != ("manual" if fact.by_hand else cause.thread):
        return f"adds fact {fact.id} as learned from {fact.source}, which it was not"
    return None


def _is_for_later(fact_id: str, seq: int) -> bool:
    """Whether this commit or a later one could give this id to a fact of its own."""
    found = _OUR_ID.fullmatch(fact_id)
    return found is not None and int(found[1]) >= seq


class _Keys:
    """What the facts that are known say, so that two that say the same are found without looking through all."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._facts = facts
        self._key_of: dict[str, str] = {}
        self._ids: dict[str, list[str]] = {}
        self._fresh: set[str] = set()

    def put(self, fact: Fact, notion: str) -> None:
        """Take in what a fact says now."""
        key = dedup_key(fact.content, notion)
        if self._key_of.get(fact.id) != key:
            self.drop(fact.id)
            self._key_of[fact.id] = key
            self._ids.setdefault(key, []).append(fact.id)
            self._fresh.add(key)

    def drop(self, fact_id: str) -> None:
        """Let go of a fact."""
        key = self._key_of.pop(fact_id, None)
        if key is not None:
            self._ids[key].remove(fact_id)
            if not self._ids[key]:
                del self._ids[key]

    def renew(self, facts: list[Fact], notion: str) -> None:
        """Take in all facts anew, since what counts as the same is another thing now."""
        self._key_of, self._ids = {}, {}
        for fact in facts:
            self.put(fact, notion)

    def twins(self) -> tuple[str, str] | None:
        """Return two facts of which one came or changed since the last look, and that say the same."""
        fresh, self._fresh = self._fresh, set()
        found = next((ids for key in fresh if len(ids := self._ids.get(key, [])) > 1), None)
        return None if found is None else (found[0], found[1])
