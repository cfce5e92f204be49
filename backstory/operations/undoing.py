"""Undoing of one update or many: what is superseded lives again, and what was shared is undone where it went.

A preview is made of the events that a revert or a rollback would write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from backstory.aio import in_thread
from backstory.ledger.core.commands import Revert, RollBack
from backstory.ledger.core.commit import Cause, Commit, Head
from backstory.ledger.core.errors import NotFoundError, UsageError
from backstory.ledger.core.events import FactRemoved, LedgerEvent, Redacted, SummariesReceived, SummaryShared
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import parse_moment
from backstory.ledger.learning.sharing import deliver
from backstory.ledger.rules.undo import Note, plan_revert, plan_rollback
from backstory.operations.changing import WITH_USER
from backstory.projections.history.times import At
from backstory.projections.index.index import ScopeIndex
from backstory.services.services import Operations, ScopeServices


class ClearedAgent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent whose memory was cleared with its user's.

    Attributes:
        agent: the agent.
        seq: the commit of the clear in the agent's ledger.
        facts: how many facts it took.
        undo: the undo of it, or its preview; None where only the user's was asked for.
    """

    agent: str
    seq: int
    facts: int
    undo: UndoResult | None = None


class UndoResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an undo or of its preview; `commit` is None where nothing was written.

    `users` is the undo in the user's memory of the sections that an agent's commit shared with it, if it did.
    `agents` are those whose memories were cleared with the user's, where it is a clear that is undone.
    """

    commit: int | None
    events: tuple[LedgerEvent, ...]
    superseded: tuple[Note, ...]
    conflicts: tuple[Note, ...]
    users: UndoResult | None = None
    agents: tuple[ClearedAgent, ...] = ()


def revert_command(
    commit: Commit, *, undone: Commit | None = None, force: bool = False, seen: int | None = None
) -> Revert:
    """Return the command that undoes a commit.

    Args:
        commit: the commit to undo.
        undone: the commit that it has reverted, where it is a revert.
        force: whether to undo it despite conflicts.
        seen: the seq of the ledger's head when the commit was read.

    Raises:
        UsageError: It is the genesis.
    """
    if commit.seq == 1:
        raise UsageError("commit 1 is the genesis and cannot be reverted: choose a later commit")
    events, at = ((), "") if undone is None else (undone.events, undone.at)
    return Revert(at="", target=commit.seq, events=commit.events, force=force, seen=seen, undone=events, undone_at=at)


def _undone_by(logs: ScopeIndex, commit: Commit) -> Commit | None:
    """Return the commit that another one has reverted."""
    target = commit.cause.target
    return logs.commit(target) if commit.cause.kind == "revert" and target is not None else None


def rollback_command(then: Memory, *, seen: int | None = None) -> RollBack:
    """Return the command that restores the facts and sections of an earlier memory.

    Args:
        then: the earlier memory.
        seen: the seq of the ledger's head when the memory was read.
    """
    return RollBack(at="", to=then.seq, facts=tuple(then.in_order()), sections=dict(then.sections), seen=seen)


def preview_undo(memory: Memory, command: Revert | RollBack, since: Iterable[Commit] = ()) -> UndoResult:
    """Return what an undo would write, what is superseded or not restored, and what conflicts.

    Args:
        memory: the memory at the ledger's head.
        command: the revert or the rollback.
        since: the commits after the one to revert, or to roll back to; their redactions name what was erased.
    """
    if isinstance(command, RollBack):
        plan = plan_rollback(memory, command)
        superseded = (*plan.superseded, *_erased(since, 1, command.to))
    else:
        plan = plan_revert(memory, command)
        named = _erased(since, command.target, command.target)
        superseded = (*(note for note in plan.superseded if not named or note.kind != "erased"), *named)
    return UndoResult(None, plan.events, superseded, plan.conflicts)


def _erased(since: Iterable[Commit], first: int, last: int) -> list[Note]:
    """Return a note for each fact and section with content in these commits that was erased later."""
    found: dict[tuple[str | None, str | None], Note] = {}
    for commit in since:
        for event in commit.events if commit.seq > last else ():
            if isinstance(event, Redacted) and first <= event.seq <= last and (event.fact or event.section):
                detail = f"was erased by commit {commit.seq} and cannot be restored"
                found.setdefault((event.fact, event.section), Note("erased", detail, event.fact, event.section))
    return list(found.values())


class Undoing(Operations):
    """What undoes updates; see `MemoryHandle`."""

    # Undoing.

    def revert(
        self, seq: int | str = "HEAD", *, dry_run: bool = False, force: bool = False, with_agents: bool = False
    ) -> UndoResult:
        """Undo what is still in force of one update; what it superseded lives again.

        Args:
            seq: A commit, by its number, `HEAD` for the last, `HEAD~1`, or the beginning of its hash.
            dry_run: Write nothing.
            force: Undo in spite of conflicts with later work.
            with_agents: Of a clear of the user and all agents, undo the agents', too. If one of them conflicts, nothing
                is written.

        Returns:
            The events; of such a clear also the `agents` that were cleared. Where later work conflicts nothing is
            written: `commit` is None, and `conflicts` gives the reasons.

        Raises:
            NotFoundError: There is no such commit.
            UsageError: It is the genesis, or no commit.
        """
        services = self._services
        services.must_stand()
        logs = services.logs(services.writer)
        seen = logs.last()
        commit = logs.commit(_to_undo(services, seq))
        command = revert_command(commit, undone=_undone_by(logs, commit), force=force, seen=seen)
        cleared = _cleared_with(services, commit)
        if not with_agents or not cleared:
            undone = _revert_one(services, command, dry_run=dry_run)
            return msgspec.structs.replace(undone, agents=cleared)
        parts = [_revert_of_agent(services, agent, force=force) for agent in cleared]
        *theirs, own = _revert_all([*parts, (services, command)], dry_run=dry_run)
        agents = [msgspec.structs.replace(agent, undo=undo) for agent, undo in zip(cleared, theirs, strict=True)]
        return msgspec.structs.replace(own, agents=tuple(agents))

    def rollback(self, to: At, *, dry_run: bool = False) -> UndoResult:
        """Bring back the facts and sections of an earlier moment, under today's policy.

        Args:
            to: A commit, or a time that is no whole day; see docs/reference/times.md.
            dry_run: Write nothing.

        Returns:
            The events, and the commit.

        Raises:
            NotFoundError: The ledger has no such commit.
            UsageError: `to` is neither a commit nor a time, is in the future, or is a whole day.
        """
        services = self._services
        services.must_stand()
        writer = services.writer
        seen = writer.memory().seq
        if str(to).strip().upper() in ("HEAD", "HEAD~0"):
            raise UsageError(
                "HEAD is the present: name an earlier commit or a time, or undo the last commit with `revert HEAD`"
            )
        then = services.logs(writer).memory_at(services.times(writer).cut("to", to, whole_days=False))
        command = rollback_command(then, seen=seen)
        return _undo(services, command, services.cause("rollback", target=then.seq), dry_run=dry_run)

    arevert = in_thread(revert)
    arollback = in_thread(rollback)


def _to_undo(services: ScopeServices, seq: int | str) -> int:
    target = services.times(services.writer).commit("the commit to undo", seq)
    if target <= 1 and str(seq).strip().casefold().startswith("head"):
        raise NotFoundError(
            "nothing was learned yet, so there is nothing to revert: `record` a conversation and `extract` it first"
        )
    return target


def _cleared_with(services: ScopeServices, commit: Commit) -> tuple[ClearedAgent, ...]:
    """Return the agents from whose memories something went with a clear of their user's."""
    if commit.cause.kind != "clear" or services.scope.agent is not None:
        return ()
    found = []
    for writer in services.agents():
        for theirs in services.logs(writer).newest():
            if theirs.at < commit.at:
                break
            cause = theirs.cause
            if (cause.kind, cause.action, cause.target) == ("clear", WITH_USER, commit.seq):
                facts = sum(isinstance(event, FactRemoved) for event in theirs.events)
                found += [ClearedAgent(writer.scope.agent or "", theirs.seq, facts)] if theirs.events else []
                break
    return tuple(found)


def _revert_of_agent(services: ScopeServices, cleared: ClearedAgent, *, force: bool) -> tuple[ScopeServices, Revert]:
    """Return the revert, in an agent's memory, of the clear that went with its user's."""
    writer = next(writer for writer in services.agents() if writer.scope.agent == cleared.agent)
    agent = msgspec.structs.replace(services, own=writer, expected=None, key=None)
    logs = services.logs(writer)
    return agent, revert_command(logs.commit(cleared.seq), force=force, seen=logs.last())


def _revert_one(services: ScopeServices, command: Revert, *, dry_run: bool) -> UndoResult:
    """Revert one commit, and the sections of the user's memory that it shared."""
    if services.users is None or not any(isinstance(event, SummaryShared) for event in command.events):
        return _revert(services, command, dry_run=dry_run)
    users = msgspec.structs.replace(services, own=services.users, user=None, expected=None)
    if not dry_run:
        deliver(services.writer)
    received = _revert_of_sections(users, services.scope.agent, command)
    parts = [] if received is None else [(users, received)]
    *theirs, own = _revert_all([*parts, (services, command)], dry_run=dry_run)
    return msgspec.structs.replace(own, users=theirs[0] if theirs else None)


def _revert_all(parts: Sequence[tuple[ScopeServices, Revert]], *, dry_run: bool) -> list[UndoResult]:
    """Revert commits of several memories, all of them or none.

    The memory that was asked about comes last: if this is interrupted, it can be repeated. Where another writer causes
    a conflict meanwhile, what was undone by then is put back.
    """
    results = [_revert(services, command, dry_run=True) for services, command in parts]
    if dry_run or any(plan.conflicts and not command.force for plan, (_, command) in zip(results, parts, strict=True)):
        return results
    for number, (services, command) in enumerate(parts):
        if not results[number].events and number < len(parts) - 1:
            continue
        results[number] = _revert(services, command, dry_run=False)
        if results[number].commit is None:
            for place, (other, _) in enumerate(parts[:number]):
                results[place] = _put_back(other, results[place])
            break
    return results


def _put_back(services: ScopeServices, undone: UndoResult) -> UndoResult:
    """Revert a revert; return its result as if it had been a dry run."""
    if undone.commit is None:
        return undone
    logs = services.logs(services.writer)
    commit = logs.commit(undone.commit)
    again = revert_command(commit, undone=_undone_by(logs, commit), force=True)
    _revert(services, again, dry_run=False)
    return msgspec.structs.replace(undone, commit=None)


def _revert_of_sections(users: ScopeServices, agent: str | None, command: Revert) -> Revert | None:
    """Return the revert, in the user's memory, of what it received from the commit to undo; None if it did not yet."""
    logs = users.logs(users.writer)
    seen = logs.last()
    for commit in logs.newest(1):
        for event in commit.events:
            if isinstance(event, SummariesReceived) and event.agent == agent and event.seq <= command.target:
                if event.cut and event.seq == command.target:
                    continue
                known = event.seq == command.target
                return revert_command(commit, force=command.force, seen=seen) if known else None
    return None


def _revert(services: ScopeServices, command: Revert, *, dry_run: bool) -> UndoResult:
    cause = services.cause("revert", target=command.target, force=command.force)
    return _undo(services, command, cause, dry_run=dry_run)


def _undo(services: ScopeServices, command: Revert | RollBack, cause: Cause, *, dry_run: bool) -> UndoResult:
    """Plan an undo on the newest head, and commit it there, at the same moment, unless it is a dry run or conflicts."""
    writer = services.writer
    if not dry_run:
        services = services.with_policy_in_force()

    def undo(head: Head) -> UndoResult:
        memory = writer.memory()
        erased = memory.barriers.get("redaction", 0) > (cause.target or 0)
        dated = writer.dated(command)
        plan = preview_undo(memory, dated, services.commits(writer) if erased else ())
        if dry_run or (plan.conflicts and not cause.force):
            return plan
        # At the moment of the plan: what lapses in between would be in one of them alone.
        at = parse_moment(dated.at)
        commit = writer.commit(command, cause, at=at, expected=services.expected or head.hash)
        return msgspec.structs.replace(plan, commit=commit.seq, events=commit.events)

    return services.on_newest(undo)
