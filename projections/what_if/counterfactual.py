"""What-if: decides the whole history again under another policy; writes nothing.

Each command of a ledger is decided again on the memory that the commits before it have led to (`Counterfactual`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import (
    AddFact,
    ChangePolicy,
    Clear,
    Command,
    EditFact,
    Expire,
    Extract,
    ImportDocument,
    Proposal,
    RemoveFact,
    Revert,
    RollBack,
    SaveDocument,
    ShareSummaries,
    candidates_of,
)
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import RefusedError
from backstory.ledger.core.events import (
    CandidateRejected,
    Edit,
    Erased,
    ErasureEvent,
    Event,
    FactAdded,
    FactEvent,
    FactRemoved,
    FactRevised,
    IdsReserved,
    NewFact,
    NewSummary,
    PolicyChanged,
    Removal,
    SectionEvent,
    SummariesReceived,
    TurnEvent,
    UpdateEvent,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy, PolicyValue, check_policy
from backstory.ledger.engines.port import EventStore
from backstory.ledger.log.commits import read_commits
from backstory.ledger.rules.admission import commit_named, sweep
from backstory.ledger.rules.decide import decide
from backstory.ledger.rules.document import GONE
from backstory.ledger.rules.ranking import Ranking


class _History:
    """A history up to some commit: the recorded one, or a counterfactual one.

    It keeps the outcomes of the `targets` only: the commits that a later revert or rollback refers to, by its kind.
    """

    def __init__(self, targets: Mapping[str, set[int | None]], overrides: Mapping[str, PolicyValue]) -> None:
        self.fold = Fold(Memory())
        self._targets = targets
        self._overrides = dict(overrides)
        self._events: dict[int, tuple[Event, ...]] = {}
        self._reverted: dict[int, Commit] = {}
        """The commits among them, by seq."""
        self._memories: dict[int, Memory] = {0: Memory()}

    def command(self, commit: Commit) -> Command | None:
        """Rebuild the command of a commit for this history; None where the recorded outcome applies."""
        cause, at = commit.cause, commit.at
        command: Command
        match cause.kind:
            case "genesis" | "policy":
                changed = next((e for e in commit.events if isinstance(e, PolicyChanged)), None)
                if changed is None:
                    return None
                policy = msgspec.structs.replace(changed.after, **self._overrides)
                command = ChangePolicy(at=at, policy=policy, source=changed.source)
            case "revert" if cause.target is not None:
                command = self._revert(at, cause.target, force=cause.force)
            case "rollback" if cause.target is not None:
                then = self._memories[cause.target]
                command = RollBack(at=at, to=cause.target, facts=tuple(then.in_order()), sections=dict(then.sections))
            case _:
                return command_of(commit)
        return _completed(command, commit)

    def _revert(self, at: str, target: int, *, force: bool) -> Revert:
        cause = self._reverted[target].cause
        undone = self._reverted.get(cause.target or 0) if cause.kind == "revert" else None
        command = Revert(at=at, target=target, events=self._events[target], force=force)
        if undone is None:
            return command
        return msgspec.structs.replace(command, undone=self._events[undone.seq], undone_at=undone.at)

    def advance(self, commit: Commit, events: Sequence[Event]) -> None:
        """Advance by one commit, with the events it has in this history."""
        self.fold.advance(commit.seq, commit.at, commit.cause.kind, events)
        if commit.seq in self._targets["revert"]:
            self._events[commit.seq] = tuple(events)
            self._reverted[commit.seq] = msgspec.structs.replace(commit, events=())
        if commit.seq in self._targets["rollback"]:
            self._memories[commit.seq] = self.fold.memory()


def command_of(commit: Commit) -> Command | None:
    """Rebuild the command of a commit from the commit alone; None where that takes its history, or is not recorded."""
    command = _command_alone(commit)
    return command and _completed(command, commit)


def _completed(command: Command, commit: Commit) -> Command:
    seen = commit.cause.transcript
    return msgspec.structs.replace(command, heat=commit.cause.heat, transcript=None if seen is None else seen.seq)


def _command_alone(commit: Commit) -> Command | None:
    cause, at = commit.cause, commit.at
    match cause.kind:
        case "extraction":
            return _extraction(commit)
        case "share":
            return _shared(commit)
        case "manual":
            return _manual(commit)
        case "import":
            candidates = candidates_of(commit.events, stated=True)
            if cause.action == "save":
                return SaveDocument(at=at, candidates=candidates)
            gone = tuple(_gone(commit))
            return ImportDocument(at=at, candidates=candidates, replace=cause.replace, insist=cause.insist, gone=gone)
        case "clear":
            return Clear(at=at)
        case "expiry":
            return Expire(at=at)
        case "genesis" | "policy" | "revert" | "rollback":
            return None
        case "summary" | "redaction" | "erased" | "record" | "withdrawal" | "restore":
            return None


def _gone(commit: Commit) -> Iterator[str]:
    """Yield the ids that an import did not keep for a reason that does not depend on the policy.

    The fact that had an id is gone; or, before reasons were recorded, a later commit might have given it.
    """
    for event in commit.events:
        stated = event.proposed.get("id") if isinstance(event, FactAdded) else None
        if isinstance(event, FactAdded) and isinstance(stated, str):
            before_reasons = event.detail is None and commit_named(stated) >= commit.seq
            if event.detail == GONE or before_reasons:
                yield stated


def _extraction(commit: Commit) -> Command | None:
    proposed = commit.first(UpdateProposed)
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
        users=proposed.users,
        said_again=proposed.said_again,
        answered=proposed.answered,
        cited=proposed.cited,
    )


def _shared(commit: Commit) -> Command | None:
    received = commit.first(SummariesReceived)
    if received is None or received.cut or any(isinstance(event, UpdateFailed) for event in commit.events):
        # What an agent moved is decided by the user's memory, and of what came too late nothing was kept.
        return None
    candidates = candidates_of(commit.events, stated=True)
    sections = tuple(candidate for candidate in candidates if isinstance(candidate, NewSummary))
    return ShareSummaries(
        at=commit.at,
        agent=received.agent,
        seq=received.seq,
        basis=received.basis,
        summaries=sections,
        thread=received.thread,
    )


def _manual(commit: Commit) -> Command | None:
    cause, at = commit.cause, commit.at
    if cause.action == "remove" and cause.fact is not None:
        return _removal(commit, cause.fact)
    for candidate in candidates_of(commit.events):
        if isinstance(candidate, NewFact):
            return AddFact(at=at, fact=candidate, by_model=cause.by_model, thread=cause.thread)
        if isinstance(candidate, Edit):
            return EditFact(at=at, edit=candidate, by_model=cause.by_model)
    return None


def _removal(commit: Commit, fact_id: str) -> RemoveFact:
    """Return the command that removed a fact, or said when it ends."""
    command = RemoveFact(at=commit.at, fact_id=fact_id, by_model=commit.cause.by_model)
    for event in commit.events:
        if isinstance(event, FactRemoved) and event.reason == "ended":
            return msgspec.structs.replace(command, ended=True, valid_until=event.valid_until)
        if isinstance(event, FactRevised) and event.change == "ending":
            return msgspec.structs.replace(command, ended=True, valid_until=event.after.valid_until)
        asked = event.candidate if isinstance(event, CandidateRejected) else None
        if isinstance(asked, Removal):
            return msgspec.structs.replace(command, ended=asked.ended, valid_until=asked.valid_until)
    return command


class _Recorded(_History):
    """The recorded history; finds the commits that cannot be decided again because of an erasure."""

    def __init__(self, targets: Mapping[str, set[int | None]]) -> None:
        super().__init__(targets, {})
        self._torn = False

    def keeps_outcome(self, commit: Commit) -> bool:
        """Whether a commit keeps its recorded outcome, because it, or what it was decided on, was erased.

        Deciding such a commit again gives other events: an erased fact no longer takes room or blocks a duplicate.
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


def _swept(fold: Fold, commit: Commit) -> list[FactRemoved]:
    """Return the removals of the facts that the policy in force after a commit does not let stay."""
    return sweep(fold.facts.values(), Ranking(fold.policy, commit.at, commit.cause.heat), by_hand_too=False)


class Counterfactual:
    """A counterfactual history beside the recorded one; takes the ledger's commits in order.

    `overrides` apply to every policy of the history. `memory` is its memory so far, `recorded` the ledger's.
    """

    def __init__(self, commits: Iterable[Commit], overrides: Mapping[str, PolicyValue]) -> None:
        targets: defaultdict[str, set[int | None]] = defaultdict(set)
        for commit in commits:
            targets[commit.cause.kind].add(commit.cause.target)
        self._overrides = overrides
        self._history = _History(targets, overrides)
        self._recorded = _Recorded(targets)
        self.memory = Memory()

    @property
    def recorded(self) -> Memory:
        """The recorded memory after the commits taken so far."""
        return self._recorded.fold.memory()

    def decide(self, commit: Commit) -> Sequence[Event]:
        """Decide the next commit's command again, on this history's memory.

        Returns:
            Its events; none where the command is refused outright. Where the recorded outcome is kept, those of its
            events that apply to this memory.

        Raises:
            ConfigError: The overrides contradict another value of a recorded policy.
        """
        if self._recorded.keeps_outcome(commit):
            return self._carried_over(commit)
        command = self._history.command(commit)
        if command is None:
            return commit.events
        # What has lapsed here may be in no recorded memory, so no recorded commit takes it out before this one.
        memory = self.memory if isinstance(command, Expire) else self.memory.standing_at(commit.at)
        try:
            return decide(memory, command)
        except RefusedError:
            return ()

    def advance(self, commit: Commit, events: Sequence[Event]) -> None:
        """Advance by one commit, with the events it has in this history."""
        self._recorded.advance(commit, commit.events)
        self._history.advance(commit, events)
        self.memory = self._history.fold.memory()

    def _carried_over(self, commit: Commit) -> list[Event]:
        """Return the recorded events that apply to this memory, and the removals that its policy then requires."""
        memory, recorded = self.memory, self._recorded.fold.facts
        fold = Fold(memory)
        events: list[Event] = []
        for recorded_event in commit.events:
            event, applies = recorded_event, True
            match recorded_event:
                case PolicyChanged():
                    event = self._overridden(recorded_event)
                case FactAdded(fact=fact) if commit.cause.kind == "redaction":
                    # An erasure restates facts that exist; it must not add one that this history does not have.
                    applies = fact.id in memory.facts or fact.id not in recorded
                case FactRevised(after=fact):
                    applies = fact.id in fold.facts or fact.id not in recorded
                case FactEvent() | SectionEvent() | UpdateEvent() | IdsReserved() | ErasureEvent() | TurnEvent():
                    pass
                case _:
                    assert_never(recorded_event)
            if applies:
                events.append(event)
                fold.apply(event)
        dropped = _swept(fold, commit)
        if dropped:
            # An erasure may leave facts that break the recorded policy, too. Those are not removed here.
            as_recorded = Fold(self._recorded.fold.memory())
            for event in commit.events:
                as_recorded.apply(event)
            spared = {drop.fact.id for drop in _swept(as_recorded, commit)}
            dropped = [drop for drop in dropped if drop.fact.id not in spared]
        return events + dropped

    def _overridden(self, event: PolicyChanged) -> PolicyChanged:
        before = event.before and msgspec.structs.replace(event.before, **self._overrides)
        after = msgspec.structs.replace(event.after, **self._overrides)
        return msgspec.structs.replace(event, before=before, after=after)


_WEIGHTS = {"eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight"}


class WhatIfRun:
    """The commits of a ledger up to a seq; each iteration reads them from the log."""

    def __init__(self, store: EventStore, stream: str, until: int) -> None:
        self._store = store
        self._stream = stream
        self._until = until

    def __iter__(self) -> Iterator[Commit]:
        return takewhile(lambda commit: commit.seq <= self._until, read_commits(self._store, self._stream))


def overrides_for(changes: Mapping[str, PolicyValue], policy: Policy) -> dict[str, PolicyValue]:
    """Return the values to override in every policy of a history so that `changes` of `policy` apply to it.

    The weights of the hybrid ranking add up to 1: where one is given, the others are those of `policy`.

    Raises:
        ConfigError: A value is outside its range.
    """
    changed = check_policy(msgspec.structs.replace(policy, **changes))
    weights = _WEIGHTS if _WEIGHTS & changes.keys() else set()
    return {name: getattr(changed, name) for name in {*changes, *weights}}


def decide_again(
    commits: Iterable[Commit],
    overrides: Mapping[str, PolicyValue],
    *,
    progress: Callable[[int], None] | None = None,
) -> Memory:
    """Decide every commit's command again, with `overrides` in every policy.

    The result is the memory of a ledger that had these policies from the start and got the same commands and answers.
    It differs from such a ledger where a command would have been refused outright: an undo with conflicts and without
    force, the removal of a fact that the other policy kept out, a policy too small for the facts entered by hand. Such
    a command changes nothing here, but keeps its seq, so later facts have other ids than in such a ledger. A fact that
    has lapsed stays in the result, to be hidden by `Memory.standing_at`, unless a recorded commit takes it out. Answers
    refer to the facts that the model was shown, and evictions count the recorded uses.

    Erased content, and commits decided on it, cannot be decided again: they keep their recorded outcome.

    Args:
        commits: the ledger's commits; iterated twice.
        overrides: values for every policy.
        progress: called with each seq.

    Returns:
        The memory at the end.

    Raises:
        ConfigError: An override is outside its range, or contradicts another value of a recorded policy.
    """
    history_commits = list(commits) if isinstance(commits, Iterator) else commits
    history = Counterfactual(history_commits, overrides)
    for commit in history_commits:
        history.advance(commit, history.decide(commit))
        if progress is not None:
            progress(commit.seq)
    return history.memory
