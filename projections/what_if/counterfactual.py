"""A history that might have been: each command decided again on another memory than the one it was decided on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    Extract,
    ImportDocument,
    Proposal,
    RemoveFact,
    Revert,
    RollBack,
    SaveDocument,
    candidates_of,
)
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import RefusedError
from backstory.ledger.core.events import (
    CandidateRejected,
    Edit,
    Erased,
    Event,
    FactAdded,
    FactRemoved,
    FactRevised,
    NewFact,
    PolicyChanged,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import PolicyValue
from backstory.ledger.rules.admission import Dropped, sweep
from backstory.ledger.rules.decide import decide
from backstory.ledger.rules.ranking import Ranking

__all__ = ["Counterfactual", "is_torn"]


class _Targets:
    """The commits that a later undo speaks of; what came of any other need not be kept."""

    def __init__(self, commits: Iterable[Commit]) -> None:
        self.reverted: set[int] = set()
        self.returned_to: set[int] = set()
        for commit in commits:
            target = commit.cause.target
            if target is not None and commit.cause.kind == "revert":
                self.reverted.add(target)
            elif target is not None and commit.cause.kind == "rollback":
                self.returned_to.add(target)


class _History:
    """A history as far as it has been told: the ledger's own, or one that might have been."""

    def __init__(self, targets: _Targets, overrides: Mapping[str, PolicyValue]) -> None:
        self.fold = Fold(Memory())
        self._targets = targets
        self._overrides = dict(overrides)
        self._events: dict[int, tuple[Event, ...]] = {}
        self._memories: dict[int, Memory] = {0: Memory()}

    def command(self, commit: Commit) -> Command | None:
        """Rebuild the command of a commit against this history; None where its recorded outcome stands."""
        command = self._command(commit)
        return command and msgspec.structs.replace(command, heat=commit.cause.heat)

    def _command(self, commit: Commit) -> Command | None:
        cause, at = commit.cause, commit.at
        match cause.kind:
            case "genesis" | "policy":
                changed = next((e for e in commit.events if isinstance(e, PolicyChanged)), None)
                if changed is None:
                    return None
                policy = msgspec.structs.replace(changed.after, **self._overrides)
                return ChangePolicy(at=at, policy=policy, source=changed.source)
            case "extraction":
                return _extraction(commit)
            case "manual":
                return _manual(commit)
            case "import":
                candidates = candidates_of(commit.events, stated=True)
                if cause.action == "save":
                    return SaveDocument(at=at, candidates=candidates)
                return ImportDocument(at=at, candidates=candidates, replace=cause.replace)
            case "clear":
                return Clear(at=at)
            case "revert" if cause.target is not None:
                return Revert(at=at, target=cause.target, events=self._events[cause.target], force=cause.force)
            case "rollback" if cause.target is not None:
                then = self._memories[cause.target]
                return RollBack(at=at, to=cause.target, facts=tuple(then.in_order()), sections=dict(then.sections))
            case _:
                return None

    def take(self, commit: Commit, events: Sequence[Event]) -> None:
        """Go on by one commit, which led to these events here."""
        self.fold.advance(commit.seq, commit.at, commit.cause.kind, events)
        if commit.seq in self._targets.reverted:
            self._events[commit.seq] = tuple(events)
        if commit.seq in self._targets.returned_to:
            self._memories[commit.seq] = self.fold.memory()


def _extraction(commit: Commit) -> Command | None:
    proposed = next((event for event in commit.events if isinstance(event, UpdateProposed)), None)
    if proposed is None:
        return None
    covered = any(isinstance(event, CandidateRejected) and event.rule == "covered" for event in commit.events)
    return Extract(
        at=commit.at,
        thread=commit.cause.thread or "",
        proposal=Proposal(candidates_of(commit.events), proposed.digest, proposed.size),
        basis=proposed.basis,
        shown=proposed.shown,
        stale=proposed.stale,
        covered=covered,
    )


def _manual(commit: Commit) -> Command | None:
    if commit.cause.action == "remove" and commit.cause.fact is not None:
        return RemoveFact(at=commit.at, fact_id=commit.cause.fact)
    for candidate in candidates_of(commit.events):
        if isinstance(candidate, NewFact):
            return AddFact(at=commit.at, fact=candidate)
        if isinstance(candidate, Edit):
            return EditFact(at=commit.at, edit=candidate)
    return None


class _Recorded(_History):
    """The history as it stands in the ledger, by which it is told what an erasure has made undecidable."""

    def __init__(self, targets: _Targets) -> None:
        super().__init__(targets, {})
        self._torn = False

    def stands(self, commit: Commit) -> bool:
        """Whether a commit's recorded outcome stands, since it, or what it was decided on, was erased.

        Deciding it on what is left leads elsewhere then: a fact that took room, or said the same, is missing.
        """
        erased = is_torn(commit)
        self._torn = self._torn or erased
        if erased or not self._torn:
            return erased
        command = self.command(commit)
        if command is None:
            return True
        try:
            return decide(self.fold.memory(), command) != commit.events
        except RefusedError:
            return True


def is_torn(commit: Commit) -> bool:
    """Whether content of a commit was erased."""
    return any(isinstance(event, Erased) for event in commit.events)


def _swept(fold: Fold, commit: Commit) -> list[Dropped]:
    """Return the facts that may not stay together under the policy in force after a commit."""
    return sweep(fold.facts.values(), Ranking(fold.policy, commit.at, commit.cause.heat), by_hand_too=False)


class Counterfactual:
    """A history that might have been, beside the recorded one; commits are put to it in order.

    `overrides` are in every policy of it. `memory` is what it has led to, `recorded` what the ledger has led to.
    """

    def __init__(self, commits: Iterable[Commit], overrides: Mapping[str, PolicyValue]) -> None:
        targets = _Targets(commits)
        self._overrides = overrides
        self._history = _History(targets, overrides)
        self._recorded = _Recorded(targets)
        self.memory = Memory()

    @property
    def recorded(self) -> Memory:
        """The memory of the ledger as far as it was put to this."""
        return self._recorded.fold.memory()

    def decide(self, commit: Commit) -> Sequence[Event]:
        """Decide the next commit's command again, on this history's memory.

        Nothing comes of a command that is refused outright here; where the recorded outcome stands, what of it can
        happen here does.

        Raises:
            ConfigError: a policy of its time and the overrides do not go together.
        """
        if self._recorded.stands(commit):
            return self._carried_over(commit)
        command = self._history.command(commit)
        if command is None:
            return commit.events
        try:
            return decide(self.memory, command)
        except RefusedError:
            return ()

    def take(self, commit: Commit, events: Sequence[Event]) -> None:
        """Go on by one commit, which led to these events here."""
        self._recorded.take(commit, commit.events)
        self._history.take(commit, events)
        self.memory = self._history.fold.memory()

    def _carried_over(self, commit: Commit) -> list[Event]:
        """Return what of a recorded outcome can happen to another memory than the one it happened to, by its policy."""
        memory, recorded = self.memory, self._recorded.fold.facts
        fold = Fold(memory)
        events: list[Event] = []
        for told in commit.events:
            event, there = told, True
            match event:
                case PolicyChanged():
                    event = self._overridden(event)
                case FactAdded(fact=fact) if commit.cause.kind == "redaction":
                    # Said again is what was there; where it was not there, it does not come by an erasure.
                    there = fact.id in memory.facts or fact.id not in recorded
                case FactRevised(after=fact):
                    there = fact.id in fold.facts or fact.id not in recorded
                case _:
                    pass
            if there:
                events.append(event)
                fold.apply(event)
        dropped = _swept(fold, commit)
        if dropped:
            # What was erased may have kept two facts apart: where the recorded memory, folded without it, breaks the
            # recorded policy in the same way, this policy has no part in it.
            as_recorded = Fold(self._recorded.fold.memory())
            for event in commit.events:
                as_recorded.apply(event)
            spared = {drop.fact.id for drop in _swept(as_recorded, commit)}
            dropped = [drop for drop in dropped if drop.fact.id not in spared]
        return events + [FactRemoved(drop.fact, drop.rule, detail=drop.detail) for drop in dropped]

    def _overridden(self, event: PolicyChanged) -> PolicyChanged:
        before = event.before and msgspec.structs.replace(event.before, **self._overrides)
        after = msgspec.structs.replace(event.after, **self._overrides)
        return msgspec.structs.replace(event, before=before, after=after)
