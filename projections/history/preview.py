"""What an undo would do, before it is done."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from backstory.ledger.core.commands import Revert, RollBack
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.events import LedgerEvent, Redacted
from backstory.ledger.core.memory import Memory
from backstory.ledger.rules.undo import Note, Undo, plan_revert, plan_rollback

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


def revert_command(commit: Commit, *, force: bool = False, seen: int | None = None) -> Revert:
    """Make the command that undoes a commit; `seen` is where the ledger stood when that was read.

    Raises:
        UsageError: it is the genesis.
    """
    if commit.seq == 1:
        raise UsageError("commit 1 is the genesis: there is nothing before it to go back to")
    return Revert(at="", target=commit.seq, events=commit.events, force=force, seen=seen)


def rollback_command(then: Memory, to: int, *, seen: int | None = None) -> RollBack:
    """Make the command that brings back the facts and sections of an earlier memory.

    `seen` is where the ledger stood when that memory was read.
    """
    return RollBack(at="", to=to, facts=tuple(then.in_order()), sections=dict(then.sections), seen=seen)


def preview_revert(memory: Memory, command: Revert, since: Iterable[Commit] = ()) -> UndoResult:
    """Show what a revert would write, what it finds superseded, and what blocks it.

    `since` are commits after the one to revert: their redactions say what of it is erased.
    """
    plan = plan_revert(memory, command)
    named = _erased(since, command.target, command.target)
    if named:
        others = [note for note in plan.superseded if note.kind != "erased"]
        plan = msgspec.structs.replace(plan, superseded=(*others, *named))
    return UndoResult.of(plan)


def preview_rollback(memory: Memory, command: RollBack, since: Iterable[Commit] = ()) -> UndoResult:
    """Show what a rollback would write, and what would not come back: erased since, or kept out by today's policy.

    `since` are commits after the one to go back to: their redactions say what was erased of what was known then.
    """
    plan = plan_rollback(memory, command)
    return UndoResult.of(msgspec.structs.replace(plan, superseded=(*plan.superseded, *_erased(since, 1, command.to))))


def _erased(since: Iterable[Commit], first: int, last: int) -> list[Note]:
    """Name each fact and section of which something in these commits was erased later on, once."""
    found: dict[tuple[str | None, str | None], Note] = {}
    for commit in since:
        for event in commit.events if commit.seq > last else ():
            if isinstance(event, Redacted) and first <= event.seq <= last and (event.fact or event.section):
                detail = f"was erased by commit {commit.seq}; what it was then does not come back"
                found.setdefault((event.fact, event.section), Note("erased", detail, event.fact, event.section))
    return list(found.values())
