"""Tools that change single facts: add, update and delete."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field

from backstory.integrations.tool_arguments import EXPIRES, FROM, SURE, TAGS, UNTIL
from backstory.ledger.core.policy import CATEGORIES
from backstory.mcp.answering import current
from backstory.mcp.budget import ToolReply, cut, quoted
from backstory.mcp.tools.reading import FactId
from backstory.mcp.tools.results import FactResult
from backstory.operations.changing import FactFields
from backstory.results import FactChange

CategoryName: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]
_KIND = f"What kind of fact it is: {', '.join(CATEGORIES)}, or a name of your own."
Confidence: TypeAlias = Annotated[float, Field(ge=0, le=1)]
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


async def memory_add(
    content: Annotated[str, Field(description="The fact: one full sentence that is understood by itself.")],
    category: Annotated[CategoryName, Field(description=_KIND)] = "context",
    confidence: Annotated[Confidence, Field(description=SURE)] = 0.7,
    *,
    valid_from: Annotated[str | None, Field(description=FROM)] = None,
    valid_until: Annotated[str | None, Field(description=UNTIL)] = None,
    expires_at: Annotated[str | None, Field(description=EXPIRES)] = None,
    tags: Annotated[list[str] | None, Field(description=TAGS)] = None,
) -> Annotated[CallToolResult, FactResult]:
    """Remember a new fact about the user, for this conversation and all later ones.

    Use it when the user says something lasting: a preference, a correction, a goal, who they are, what they work
    on. Not for what matters to this conversation alone, and never for secrets.
    """
    stated = FactFields(valid_from=valid_from, valid_until=valid_until, expires_at=expires_at, tags=tags)
    return await current().tool(
        "write", lambda memory: _changed("added", memory.add_fact(content, category, confidence, **stated))
    )


async def memory_update(
    fact_id: FactId,
    content: Annotated[str | None, Field(description="The new text.")] = None,
    category: Annotated[CategoryName | None, Field(description="The new category.")] = None,
    confidence: Annotated[Confidence | None, Field(description=SURE)] = None,
    *,
    valid_from: Annotated[str | None, Field(description=FROM)] = None,
    valid_until: Annotated[str | None, Field(description=UNTIL)] = None,
    expires_at: Annotated[str | None, Field(description=EXPIRES)] = None,
    tags: Annotated[list[str] | None, Field(description=TAGS)] = None,
) -> Annotated[CallToolResult, FactResult]:
    """Change a fact that is outdated, wrong or too vague; what is left out stays as it is.

    Facts that the user entered by hand cannot be changed by you: ask the user to do it.
    """
    stated = FactFields(valid_from=valid_from, valid_until=valid_until, expires_at=expires_at, tags=tags)
    return await current().tool(
        "write", lambda memory: _changed("updated", memory.edit_fact(fact_id, content, category, confidence, **stated))
    )


async def memory_delete(
    fact_id: FactId,
    ended: Annotated[bool, Field(description="It was not wrong: it was true until now, or until a time.")] = False,
    valid_until: Annotated[str | None, Field(description=UNTIL)] = None,
) -> Annotated[CallToolResult, FactResult]:
    """Remove a fact that is wrong or no longer true, or that the user does not want remembered.

    Its history stays and memory_revert brings it back. To erase it for good, the user runs `backstory forget`.
    """
    return await current().tool(
        "write",
        lambda memory: _changed("deleted", memory.remove_fact(fact_id, ended=ended, valid_until=valid_until)),
    )


def _changed(status: Literal["added", "updated", "deleted"], done: FactChange) -> ToolReply:
    fact = done.fact

    def build(items: int, length: int) -> ToolReply:
        result = FactResult(
            fact_id=fact.id,
            status=status,
            content=cut(fact.content, length),
            category=fact.category,
            confidence=fact.confidence,
            commit=done.commit,
            evicted=[gone.id for gone in done.evicted[:items]],
        )
        gone = f" Memory is full: {len(done.evicted)} older facts gave way." if done.evicted else ""
        text = f"{status} {fact.id}: {quoted(result.content)} ({fact.category}, {fact.confidence:.2f})."
        return ToolReply(result, f"{text} It is commit {done.commit}.{gone}")

    return current().budget.fill(len(done.evicted), build)
