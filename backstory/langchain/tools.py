"""Memory tools for a model that manages its own memory: search, add, update, delete and why.

They answer with JSON in the shapes of DeerFlow's tools. Errors are answers, too (`{"error": …}`), since a tool that
raises would end the agent's run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, TypeAlias

import orjson
from langchain.tools import ToolRuntime, tool
from langchain_core.tools import BaseTool

from backstory.integrations.tool_arguments import EXPIRES, FROM, SURE, TAGS, UNTIL
from backstory.ledger.core.errors import RefusedError, UsageError
from backstory.ledger.core.policy import CATEGORIES
from backstory.ledger.core.sanitize import Json, safe_json
from backstory.ledger.core.scope import Scope
from backstory.memory import MemoryHandle
from backstory.operations.changing import FactFields
from backstory.outbox.fail_safe import FailSafeMemory
from backstory.projections.history.audit import Why
from backstory.projections.search.results import Hit
from backstory.results import FactChange

_NOT_NOW = "memory cannot be reached now: go on without it, and do not promise that anything was remembered"
_CATEGORIES = f"{', '.join(CATEGORIES)}, or a name of your own"
_ID = "The fact's id, as memory_search gives it."
_EVIDENCE = 10
_HISTORY = 20

Calls = ToolRuntime[object, Mapping[str, object]]


OpensMemory: TypeAlias = Callable[[Calls], tuple[Scope, Callable[[], MemoryHandle]]]
"""Returns the scope that a tool was called for, and a function that opens its memory.

It raises ScopeError if the run names no user.
"""


def memory_tools(fail_safe: FailSafeMemory, opens: OpensMemory) -> list[BaseTool]:
    """Return the five memory tools."""

    def answer(runtime: Calls, work: Callable[[MemoryHandle], Json]) -> str:
        def result() -> Json:
            try:
                return work(opening())
            except (UsageError, RefusedError) as error:
                return {"error": str(error)}

        try:
            scope, opening = opens(runtime)
        except UsageError as error:
            return orjson.dumps({"error": str(error)}).decode()
        not_now: Json = {"error": _NOT_NOW}
        return orjson.dumps(fail_safe.guarded(scope, "tool", result, not_now)).decode()

    @tool
    def memory_search(
        runtime: Calls,
        query: Annotated[str, "What to look for, in plain words."],
        category: Annotated[str | None, f"Only facts of this category: {_CATEGORIES}."] = None,
        limit: Annotated[int, "How many facts at most."] = 10,
        *,
        valid_at: Annotated[str | None, "Only facts that were true then: 2026, 2026-04, 2026-04-30."] = None,
        include_past: Annotated[bool, "Also facts that were true once and have ended."] = False,
        tags: Annotated[list[str] | None, "Only facts with all of these tags, such as a project."] = None,
    ) -> str:
        """Look up what is remembered about the user: facts, the most fitting first.

        Use it before you answer anything that may depend on what the user told you earlier.
        """
        return answer(
            runtime,
            lambda memory: _found(
                memory.search(
                    query, top_k=limit, category=category, valid_at=valid_at, include_past=include_past, tags=tags
                )
            ),
        )

    @tool
    def memory_add(
        runtime: Calls,
        content: Annotated[str, "The fact: one full sentence that is understood by itself."],
        category: Annotated[str, f"One of {_CATEGORIES}."] = "context",
        confidence: Annotated[float, SURE] = 0.7,
        *,
        valid_from: Annotated[str | None, FROM] = None,
        valid_until: Annotated[str | None, UNTIL] = None,
        expires_at: Annotated[str | None, EXPIRES] = None,
        tags: Annotated[list[str] | None, TAGS] = None,
    ) -> str:
        """Remember a new fact about the user, for this conversation and all later ones.

        Use it when the user says something lasting: a preference, a correction, a goal, who they are, what they work
        on. Not for what matters to this conversation alone.
        """
        stated = FactFields(valid_from=valid_from, valid_until=valid_until, expires_at=expires_at, tags=tags)

        return answer(runtime, lambda memory: _done("added", memory.add_fact(content, category, confidence, **stated)))

    @tool
    def memory_update(
        runtime: Calls,
        fact_id: Annotated[str, _ID],
        content: Annotated[str | None, "The new text."] = None,
        category: Annotated[str | None, f"The new category: one of {_CATEGORIES}."] = None,
        confidence: Annotated[float | None, SURE] = None,
        *,
        valid_from: Annotated[str | None, FROM] = None,
        valid_until: Annotated[str | None, UNTIL] = None,
        expires_at: Annotated[str | None, EXPIRES] = None,
        tags: Annotated[list[str] | None, TAGS] = None,
    ) -> str:
        """Change a fact that is outdated, wrong or too vague; what is left out stays as it is."""
        stated = FactFields(valid_from=valid_from, valid_until=valid_until, expires_at=expires_at, tags=tags)
        return answer(
            runtime,
            lambda memory: _done("updated", memory.edit_fact(fact_id, content, category, confidence, **stated)),
        )

    @tool
    def memory_delete(
        runtime: Calls,
        fact_id: Annotated[str, _ID],
        ended: Annotated[bool, "It was not wrong: it was true until now, or until a time."] = False,
        valid_until: Annotated[str | None, UNTIL] = None,
    ) -> str:
        """Remove a fact that is wrong or no longer true, or that the user does not want remembered."""
        return answer(
            runtime,
            lambda memory: _done("deleted", memory.remove_fact(fact_id, ended=ended, valid_until=valid_until)),
        )

    @tool
    def memory_why(runtime: Calls, fact_id: Annotated[str, _ID]) -> str:
        """Tell where a fact comes from: when it was learned, from which words, and what became of it since."""
        return answer(runtime, lambda memory: _origin(memory.why(fact_id)))

    return [memory_search, memory_add, memory_update, memory_delete, memory_why]


def _done(status: str, change: FactChange) -> Json:
    return {"fact_id": change.fact.id, "status": status}


def _found(hits: Iterable[Hit]) -> Json:
    results: list[Json] = [
        {
            "id": hit.shown_id,
            "content": hit.content,
            "category": hit.category,
            "confidence": hit.confidence,
            "createdAt": hit.created_at,
            "source": hit.source,
            "score": hit.score,
        }
        for hit in hits
    ]
    return {"results": results, "count": len(results)}


def _origin(why: Why) -> Json:
    cause = why.added.cause
    return {
        "fact_id": why.id,
        "content": None if why.fact is None else why.fact.content,
        "live": why.live,
        "added": {"at": why.added.at, "by": cause.model or cause.actor, "kind": cause.kind, "thread": cause.thread},
        "evidence": [
            {"role": one.role, "content": safe_json(one.content, 500), "at": one.at, "thread": one.thread}
            for one in why.evidence[:_EVIDENCE]
        ],
        "history": [{"at": one.at, "what": safe_json(one.detail, 500)} for one in why.history[-_HISTORY:]],
        "removed": None if why.removed is None else {"at": why.removed.at, "reason": why.removed.reason},
    }
