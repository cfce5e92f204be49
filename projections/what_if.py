"""What if another policy had been in force: the whole history decided again; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ledger.admission import sweep
from ledger.commands import (
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
    candidates_of,
)
from ledger.commit import Commit
from ledger.decide import decide
from ledger.errors import RefusedError
from ledger.events import (
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
from ledger.memory import Fold, Memory
from ledger.policy import PolicyValue
from ledger.ranking import Ranking

__all__ = ["decide_again"]


class _History:
    """The alternative history as far as it has been decided."""

    def __init__(self, commits: Sequence[Commit], overrides: Mapping[str, PolicyValue]) -> None:
        self.overrides = dict(overrides)
        self.wanted = {c.cause.target for c in commits if c.cause.kind == "rollback"}
        self.events: dict[int, tuple[Event, ...]] = {}
        self.memories: dict[int, Memory] = {0: Memory()}

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
                policy = msgspec.structs.replace(changed.after, **self.overrides)
                return ChangePolicy(at=at, policy=policy, source=changed.source)
            case "extraction":
                return _extraction(commit)
            case "manual":
                return _manual(commit)
            case "import":
                candidates = candidates_of(commit.events, stated=True)
                return ImportDocument(at=at, candidates=candidates, replace=cause.replace)
            case "clear":
                return Clear(at=at)
            case "revert" if cause.target is not None:
                return Revert(at=at, target=cause.target, events=self.events[cause.target], force=cause.force)
            case "rollback" if cause.target is not None:
                then = self.memories[cause.target]
                return RollBack(at=at, to=cause.target, facts=tuple(then.in_order()), sections=dict(then.sections))
            case _:
                return None


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

    def __init__(self, commits: Sequence[Commit]) -> None:
        super().__init__(commits, {})
        self.fold = Fold(Memory())
        self.torn = False

    def stands(self, commit: Commit) -> bool:
        """Whether a commit's recorded outcome stands, since it, or what it was decided on, was erased.

        Deciding it on what is left leads elsewhere then: a fact that took room, or said the same, is missing.
        """
        self.torn = self.torn or any(isinstance(event, Erased) for event in commit.events)
        if not self.torn:
            return False
        if any(isinstance(event, Erased) for event in commit.events):
            return True
        command = self.command(commit)
        if command is None:
            return True
        try:
            return decide(self.fold.memory(), command) != commit.events
        except RefusedError:
            return True

    def take(self, commit: Commit) -> None:
        """Go on by one commit."""
        self.fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        self.events[commit.seq] = commit.events
        if commit.seq in self.wanted:
            self.memories[commit.seq] = self.fold.memory()


def _carried_over(commit: Commit, memory: Memory, recorded: Fold, overrides: Mapping[str, PolicyValue]) -> list[Event]:
    """Return what of a recorded outcome can happen to another memory than the one it happened to, under its policy."""
    fold = Fold(memory)
    events: list[Event] = []
    for told in commit.events:
        event, there = told, True
        match event:
            case PolicyChanged(after=policy):
                event = msgspec.structs.replace(event, after=msgspec.structs.replace(policy, **overrides))
            case FactAdded(fact=fact) if commit.cause.kind == "redaction":
                # Said again is what was there; where it was not there, it does not come by an erasure.
                there = fact.id in memory.facts or fact.id not in recorded.facts
            case FactRevised(after=fact):
                there = fact.id in fold.facts or fact.id not in recorded.facts
            case _:
                pass
        if there:
            events.append(event)
            fold.apply(event)
    after = fold.memory()
    ranking = Ranking(after.policy, commit.at, commit.cause.heat)
    dropped = sweep(after.facts.values(), ranking, by_hand_too=False)
    return events + [FactRemoved(drop.fact, drop.rule, detail=drop.detail) for drop in dropped]


def decide_again(
    commits: Iterable[Commit],
    overrides: Mapping[str, PolicyValue],
    *,
    progress: Callable[[int], None] | None = None,
) -> Memory:
    """Decide every commit's command again, with `overrides` in every policy, and return the memory it leads to.

    An undo, a removal or an edit that the alternative memory refuses changes nothing there. What was erased cannot be
    decided again, nor what was decided on it; there the recorded outcome stands. `progress` is told each seq.
    """
    commits = list(commits)
    history, recorded = _History(commits, overrides), _Recorded(commits)
    fold = Fold(Memory())
    memory = fold.memory()
    for commit in commits:
        command = history.command(commit)
        events: Sequence[Event] = commit.events
        if recorded.stands(commit):
            events = _carried_over(commit, memory, recorded.fold, overrides)
        elif command is not None:
            try:
                events = decide(memory, command)
            except RefusedError:
                events = ()
        recorded.take(commit)
        fold.advance(commit.seq, commit.at, commit.cause.kind, events)
        memory = fold.memory()
        history.events[commit.seq] = tuple(events)
        if commit.seq in history.wanted:
            history.memories[commit.seq] = memory
        if progress is not None:
            progress(commit.seq)
    return memory
