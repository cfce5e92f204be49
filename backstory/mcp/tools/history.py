"""Tools that read the history of memory: its changes, and the difference between two moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from mcp_types import CallToolResult
from pydantic import Field

from backstory.mcp.answering import current
from backstory.mcp.budget import ToolReply, cut, name_of, quoted
from backstory.mcp.tools.reading import DATA, ThreadWanted
from backstory.mcp.tools.results import CommitItem, DiffResult, HistoryResult, line_of, of_diff, shortened
from backstory.memory import MemoryHandle
from backstory.projections.history.views import LogEntry

_MOST = 100
_MOMENT = (
    "The number of a change, as memory_history gives it, or HEAD for the last one, HEAD~1; or a time: ISO 8601, or "
    "`3d ago`."
)


async def memory_history(
    fact_id: Annotated[str | None, Field(description="Only changes of this fact.")] = None,
    thread: ThreadWanted = None,
    since: Annotated[int | str | None, Field(description=f"Only from here on. {_MOMENT}")] = None,
    before: Annotated[int | None, Field(ge=1, description="Only older ones: the `next` of an answer.")] = None,
    limit: Annotated[int, Field(ge=1, le=_MOST, description="How many at most.")] = 10,
) -> Annotated[CallToolResult, HistoryResult]:
    """List how memory changed, the newest first: when, by whom, and what.

    Use it to find the number of a change, for memory_diff and memory_revert.
    """
    return await current().tool(
        "read",
        lambda memory: history_of(memory, limit, fact_id=fact_id, thread=thread, since=since, before=before),
    )


async def memory_diff(
    a: Annotated[int | str, Field(description=f"The earlier moment. {_MOMENT}")],
    b: Annotated[int | str | None, Field(description=f"The later moment; now unless given. {_MOMENT}")] = None,
    after: Annotated[int, Field(ge=0, description="Leave out this many: the `next` of an answer.")] = 0,
    limit: Annotated[int, Field(ge=1, le=_MOST, description="How many changes at most.")] = 50,
) -> Annotated[CallToolResult, DiffResult]:
    """Compare memory at two moments: facts that were added, removed or changed, and sections that differ."""
    return await current().tool("read", lambda memory: _difference(memory, a, b, after=after, limit=limit))


def history_of(
    memory: MemoryHandle,
    limit: int,
    *,
    fact_id: str | None = None,
    thread: str | None = None,
    since: int | str | None = None,
    before: int | None = None,
) -> ToolReply:
    """Return the changes of memory, the newest first, as many as fit."""
    # One more than the limit shows whether there are older ones.
    entries = memory.log(limit=limit + 1, fact=fact_id, thread=thread, since=since, before=before)
    shown = entries[:limit]

    def build(items: int, length: int) -> ToolReply:
        commits = [_commit(entry, length) for entry in shown[:items]]
        following = shown[items - 1].seq if items and len(entries) > items else None
        if not items and entries:
            following = entries[0].seq + 1
        result = HistoryResult(commits=commits, count=items, next=following)
        return ToolReply(result, _history_text(result))

    return current().budget.fill(len(shown), build)


def _commit(entry: LogEntry, length: int) -> CommitItem:
    cause = entry.cause
    return CommitItem(
        seq=entry.seq,
        at=entry.at,
        kind=cause.kind,
        by=cause.model or cause.actor,
        thread=cause.thread,
        summary=cut(entry.summary, length),
        reverts=cause.target if cause.kind == "revert" else None,
    )


def _history_text(result: HistoryResult) -> str:
    if not result.commits:
        return "No change of memory matches."
    lines = [f"{DATA} Changes of memory, the newest first:"]
    for one in result.commits:
        what = f"{one.kind} of {one.reverts}" if one.reverts is not None else one.kind
        by = f" by {name_of(one.by)}" if one.by else ""
        thread = f", conversation {name_of(one.thread)}" if one.thread else ""
        lines.append(f"- commit {one.seq}, {one.at}, {what}{by}{thread}: {quoted(one.summary)}")
    if result.next is not None:
        lines.append(f"There are older ones: call it again with before={result.next}.")
    return "\n".join(lines)


def _difference(memory: MemoryHandle, a: int | str, b: int | str | None, *, after: int, limit: int) -> ToolReply:
    if b is None:
        newest: Sequence[LogEntry] = memory.log(limit=1)
        b = newest[0].seq if newest else 0
    changes = of_diff(memory.diff(a, b))
    page = changes[after : after + limit]
    first, second = name_of(str(a)), name_of(str(b))

    def build(items: int, length: int) -> ToolReply:
        following = after + items if after + items < len(changes) else None
        result = DiffResult(
            a=first,
            b=second,
            changes=shortened(page[:items], length),
            count=items,
            total=len(changes),
            next=following,
        )
        lines = [f"{DATA} {len(changes)} changes from {first} to {second}:"] if changes else []
        lines += [line_of(change) for change in result.changes]
        if following is not None:
            lines.append(f"{len(changes) - following} more: call it again with after={following}.")
        return ToolReply(result, "\n".join(lines) or f"Memory at {first} and at {second} is the same.")

    return current().budget.fill(len(page), build)
