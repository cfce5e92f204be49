"""What an undo would do, before it is done."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ledger.commands import Revert, RollBack
from ledger.commit import Commit
from ledger.errors import NotFoundError, UsageError
from ledger.events import LedgerEvent
from ledger.memory import Memory
from ledger.undo import Note, Undo, plan_revert, plan_rollback

__all__ = ["UndoResult", "preview_revert", "preview_rollback", "revert_command", "rollback_command"]


class UndoResult(msgspec.Struct, frozen=True):
    """What an undo did, or would do: `commit` is None where nothing was written."""

    commit: int | None
    events: tuple[LedgerEvent, ...]
    superseded: tuple[Note, ...]
    conflicts: tuple[Note, ...]

    @classmethod
    def of(cls, plan: Undo, commit: int | None = None) -> UndoResult:
        """Spell a plan, and the commit that carried it out."""
        return cls(commit, plan.events, plan.superseded, plan.conflicts)


def revert_command(commits: Sequence[Commit], target: int, *, force: bool = False) -> Revert:
    """Make the command that undoes a commit.

    Raises:
        NotFoundError: there is no such commit.
        UsageError: it is the genesis.
    """
    if target == 1 and commits:
        raise UsageError("commit 1 is the genesis: there is nothing before it to go back to")
    if not 1 <= target <= len(commits):
        raise NotFoundError(f"there is no commit {target}: the ledger ends at {len(commits)}")
    events = commits[target - 1].events
    return Revert(at="", target=target, events=events, force=force)


def rollback_command(then: Memory, to: int) -> RollBack:
    """Make the command that brings back the facts and sections of an earlier memory."""
    return RollBack(at="", to=to, facts=tuple(then.in_order()), sections=dict(then.sections))


def preview_revert(memory: Memory, command: Revert) -> UndoResult:
    """Show what a revert would write, what it finds superseded, and what blocks it."""
    return UndoResult.of(plan_revert(memory, command))


def preview_rollback(memory: Memory, command: RollBack) -> UndoResult:
    """Show what a rollback would write, and what today's policy would not let back in."""
    return UndoResult.of(plan_rollback(memory, command))
