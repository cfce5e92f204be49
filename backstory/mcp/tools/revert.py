"""Tool that undoes a change of memory once the person agreed, or a code from a dry run confirms it.

A client that can show a form asks the person itself. For any other, a first call changes nothing and returns a code.
Both hold for the memory as it was shown: if it has changed since, nothing is undone.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import BaseModel, Field

from backstory.ledger.core.errors import ConflictError, WrongExpectedVersionError
from backstory.ledger.rules.undo import Note
from backstory.mcp.answering import ToolFailure, can_ask, current, result_of
from backstory.mcp.budget import ToolReply, cut, quoted
from backstory.mcp.tools.reading import DATA
from backstory.mcp.tools.results import Change, RevertResult, line_of, of_events, shortened
from backstory.memory import MemoryHandle
from backstory.operations.undoing import UndoResult

UNDOES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_SHOWN = 20
_SHOWN_LENGTH = 300
_OUTDATED = (
    "the memory has changed since these changes were shown, so nothing was undone: call memory_revert again, which "
    "shows what it would change now"
)
_WRONG = (
    "this confirm does not hold: it is not the one that memory_revert gave for this change, or the memory has changed "
    "since; nothing was undone. Call memory_revert with seq alone, show the person what would change, and pass the "
    "confirm that it returns"
)


class Consent(BaseModel):
    """The answer of the person."""

    undo: bool = Field(title="Undo these changes", description="Yes: memory becomes what is shown. No: it stays.")


class Plan(msgspec.Struct, frozen=True):
    """What an undo would change, and the code that holds for it; or why it cannot be planned."""

    seq: int
    at: int = 0
    undo: UndoResult | None = None
    changes: tuple[Change, ...] = ()
    code: str = ""
    problem: str = ""

    @property
    def conflicts(self) -> list[Note]:
        """What stands against it."""
        return [note for undo in _parts(self.undo) for note in undo.conflicts]

    @property
    def can_be_done(self) -> bool:
        """Whether there is anything to undo, and nothing against it."""
        return bool(self.changes) and not self.conflicts


def _parts(undo: UndoResult | None) -> list[UndoResult]:
    """Return what is undone in the memory, and in the user's beside it."""
    return [part for part in (undo, undo and undo.users) if part is not None]


async def _plan(seq: int | str) -> Plan:
    try:
        # Who may not write must not learn here what would change.
        return await current().work("write", lambda memory: _planned(memory, seq))
    except ToolFailure as failure:
        return Plan(0, problem=str(failure))


async def _consent(planned: Annotated[Plan, Resolve(_plan)]) -> Elicit[Consent] | None:
    return Elicit(_question(planned), Consent) if planned.can_be_done and can_ask() else None


async def memory_revert(
    seq: Annotated[  # noqa: ARG001 the SDK gives it to `_plan`
        int | str,
        Field(description="The number of the change, as memory_history gives it, or HEAD for the last one, HEAD~1."),
    ],
    planned: Annotated[Plan, Resolve(_plan)],
    asked: Annotated[ElicitationResult[Consent], Resolve(_consent)],
    confirm: Annotated[
        str | None,
        Field(description="The code from a first call. Pass it only after the person agreed to what it showed."),
    ] = None,
) -> Annotated[CallToolResult, RevertResult]:
    """Undo one change of memory; what it replaced is remembered again.

    The person is asked first and sees what would change. Where the client cannot ask, a call without `confirm`
    changes nothing: show its result to the person, and only if they agree call again with the `confirm` from it.
    """
    answering = current()
    if planned.problem:
        return answering.failed(planned.problem)
    if not planned.can_be_done:
        return result_of(_not_done(planned))
    was_asked = isinstance(asked, AcceptedElicitation) and asked.data is not None
    if not isinstance(asked, AcceptedElicitation) or (was_asked and not asked.data.undo):
        return result_of(_reply(planned, "declined", "The person did not agree, so nothing was undone."))
    if not was_asked and confirm is None:
        told = (
            "Nothing was undone yet. Show these changes to the person; only if they agree call memory_revert again "
            f"with seq={planned.seq} and confirm={planned.code}."
        )
        return result_of(_reply(planned, "preview", told, confirm=planned.code))
    if not was_asked and not answering.codes.holds(planned.code, confirm or ""):
        return answering.failed(_WRONG)
    return await answering.tool("write", lambda memory: _reverted(memory, planned), agreed=was_asked)


def _planned(memory: MemoryHandle, named: int | str) -> Plan:
    head = memory.head()
    seq = memory.seq_of(named)
    undo = memory.revert(seq, dry_run=True)
    return Plan(
        seq=seq,
        at=head.seq,
        undo=undo,
        changes=tuple(of_events(event for part in _parts(undo) for event in part.events)),
        code=current().codes.code(memory.scope, seq, head, undo),
    )


def _reverted(memory: MemoryHandle, planned: Plan) -> ToolReply:
    head = memory.head()
    if _planned(memory, planned.seq).code != planned.code:
        raise ConflictError(_OUTDATED)
    try:
        done = memory.expecting(head).revert(planned.seq)
    except WrongExpectedVersionError as error:
        raise ConflictError(_OUTDATED) from error
    if done.commit is None:
        raise ConflictError(_OUTDATED)
    told = f"Commit {planned.seq} is undone, by commit {done.commit}; memory_revert of that one brings it back."
    return _reply(planned, "reverted", told, commit=done.commit)


def _not_done(planned: Plan) -> ToolReply:
    if planned.conflicts:
        told = (
            f"Commit {planned.seq} was not undone, since this would overwrite later changes. Undo those first, or the "
            f"person runs `backstory revert {planned.seq} --force`."
        )
        return _reply(planned, "conflict", told)
    return _reply(planned, "nothing_to_undo", f"Nothing of commit {planned.seq} is in force any more.")


def _reply(
    planned: Plan,
    status: str,
    told: str,
    *,
    commit: int | None = None,
    confirm: str | None = None,
) -> ToolReply:
    left_alone = [note for undo in _parts(planned.undo) for note in undo.superseded]

    def build(items: int, length: int) -> ToolReply:
        shown = shortened(planned.changes[:items], length)
        result = RevertResult.model_validate(
            {
                "status": status,
                "seq": planned.seq,
                "commit": commit,
                "changes": shown,
                "left_alone": [cut(_noted(note), length) for note in left_alone[:_SHOWN]],
                "conflicts": [cut(_noted(note), length) for note in planned.conflicts[:_SHOWN]],
                "confirm": confirm,
                "left_out": len(planned.changes) - items,
            }
        )
        lines = [told, *([DATA] if shown else []), *map(line_of, shown)]
        lines += [f"left alone: {note}" for note in result.left_alone]
        lines += [f"conflict: {note}" for note in result.conflicts]
        if result.left_out:
            lines.append(f"and {result.left_out} more changes")
        return ToolReply(result, "\n".join(lines))

    return current().budget.fill(len(planned.changes), build)


def _question(planned: Plan) -> str:
    lines = [line_of(change) for change in shortened(planned.changes[:_SHOWN], _SHOWN_LENGTH)]
    if len(planned.changes) > _SHOWN:
        lines.append(f"and {len(planned.changes) - _SHOWN} more changes")
    return "\n".join(
        [f"Undo commit {planned.seq} of your memory, which is at commit {planned.at} now? It would change:", *lines]
    )


def _noted(note: Note) -> str:
    return f"{note.fact or note.section or note.kind} {quoted(note.detail)}"
