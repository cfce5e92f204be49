"""Undo preview: the events that a revert or a rollback would write."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from backstory.ledger.core.commands import Revert, RollBack
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import LedgerEvent, Redacted
from backstory.ledger.core.memory import Memory
from backstory.ledger.rules.undo import Note, Undo, plan_revert, plan_rollback


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

    @classmethod
    def of(cls, plan: Undo, commit: int | None = None) -> UndoResult:
        """Return the result of a plan, carried out by a commit or not yet."""
        return cls(commit, plan.events, plan.superseded, plan.conflicts)


def revert_command(commit: Commit, *, force: bool = False, seen: int | None = None) -> Revert:
    """Return the command that undoes a commit.

    Args:
        commit: the commit to undo.
        force: whether to undo it despite conflicts.
        seen: the seq of the ledger's head when the commit was read.

    Raises:
        UsageError: it is the genesis.
    """
    if commit.seq == 1:
        raise UsageError("commit 1 is the genesis and cannot be reverted: choose a later commit")
    return Revert(at="", target=commit.seq, events=commit.events, force=force, seen=seen)


def rollback_command(then: Memory, to: int, *, seen: int | None = None) -> RollBack:
    """Return the command that restores the facts and sections of an earlier memory.

    Args:
        then: the earlier memory.
        to: its seq.
        seen: the seq of the ledger's head when the memory was read.
    """
    return RollBack(at="", to=to, facts=tuple(then.in_order()), sections=dict(then.sections), seen=seen)


def preview_revert(memory: Memory, command: Revert, since: Iterable[Commit] = ()) -> UndoResult:
    """Return what a revert would write, what is superseded, and what conflicts.

    Args:
        memory: the memory at the ledger's head.
        command: the revert.
        since: the commits after the one to revert; their redactions name what of it was erased.
    """
    plan = plan_revert(memory, command)
    named = _erased(since, command.target, command.target)
    if named:
        others = [note for note in plan.superseded if note.kind != "erased"]
        plan = msgspec.structs.replace(plan, superseded=(*others, *named))
    return UndoResult.of(plan)


def preview_rollback(memory: Memory, command: RollBack, since: Iterable[Commit] = ()) -> UndoResult:
    """Return what a rollback would write, and what is not restored: erased content, and facts that the policy refuses.

    Args:
        memory: the memory at the ledger's head.
        command: the rollback.
        since: the commits after the one to roll back to; their redactions name what was erased.
    """
    plan = plan_rollback(memory, command)
    return UndoResult.of(msgspec.structs.replace(plan, superseded=(*plan.superseded, *_erased(since, 1, command.to))))


def _erased(since: Iterable[Commit], first: int, last: int) -> list[Note]:
    """Return a note for each fact and section with content in these commits that was erased later."""
    found: dict[tuple[str | None, str | None], Note] = {}
    for commit in since:
        for event in commit.events if commit.seq > last else ():
            if isinstance(event, Redacted) and first <= event.seq <= last and (event.fact or event.section):
                detail = f"was erased by commit {commit.seq} and cannot be restored"
                found.setdefault((event.fact, event.section), Note("erased", detail, event.fact, event.section))
    return list(found.values())
