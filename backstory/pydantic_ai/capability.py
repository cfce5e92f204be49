"""Capability of Pydantic AI: records what a run says, and adds the context block to each call of its model."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Self, cast
from uuid import uuid4

from pydantic_ai import AgentRunResult, DeferredToolRequests, RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler, WrapRunHandler
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    TextPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import AgentDepsT
from pydantic_core import to_json

from backstory.home import Backstory
from backstory.integrations.host_memory import HostMemory
from backstory.integrations.identity import Identity, RunIdentity, check_scope
from backstory.integrations.prompt_block import GAP, text_after_block
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.scope import MemoryScope, Scope
from backstory.projections.context import Context

_NAMED_BY = (
    'give one in its deps (deps.user_id), in its metadata (agent.run(…, metadata={"user_id": …})), or as '
    "BackstoryMemory(user_id=…)"
)


class BackstoryMemory(AbstractCapability[AgentDepsT]):
    """Memory for an agent: `Agent(…, capabilities=[BackstoryMemory(bs)])`.

    Each call of the model gets the context block; the question is recorded at the begin of a run, the final answer at
    its end. What a call gets never enters the history. A fault of memory is logged, counted and shown by `status`, and
    never breaks a run. One instance serves any number of agents, users and conversations.
    """

    def __init__(
        self,
        home: Backstory,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
        scope: MemoryScope = "user",
        max_tokens: int | None = None,
        record: bool = True,
    ) -> None:
        """Use an open home.

        Args:
            home: An open home, which the caller closes.
            user_id: The user of runs that name none in their deps or metadata.
            agent_name: Gives this agent its own memory.
            scope: "user" for one memory per user, "global" for one memory of all users.
            max_tokens: Maximum size of the context block. Default: the configuration's.
            record: Whether to record. Turn it off where no person writes the prompts, as for an agent that is the tool
                of another.

        Raises:
            ScopeError: A name is invalid, or a shared memory is forbidden.
            UsageError: A value has the wrong type.
        """
        self._memory = HostMemory(home, max_tokens)
        check_scope(scope, strict=home.config.settings.strict_user_scope)
        self._identity = Identity(scope, user_id, agent_name, named_by=_NAMED_BY)
        self._records = record
        self._run = RunIdentity(Scope())
        self._given: dict[str, object] = {}
        """What the answer of the run under way is given, as its turn notes it."""

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: an agent's spec cannot hold an open home."""
        return None

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> Self:
        """Return a capability for one run.

        Raises:
            ScopeError: The run names no user.
        """
        named = {"thread_id": ctx.conversation_id or ctx.run_id or uuid4().hex, **(ctx.metadata or {})}
        one = copy.copy(self)
        one._run, one._given = self._identity.of(ctx.deps, named), {}  # noqa: SLF001 its own
        return one

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[object]:
        """Record the question, run, and record the final answer."""
        run_id = ctx.run_id or uuid4().hex
        await self._record(run_id, "user", _question(ctx))
        result = await handler()
        await self._record(run_id, "assistant", _answer(result.output))
        return result

    async def wrap_model_request(
        self,
        ctx: RunContext[AgentDepsT],  # noqa: ARG002 the run is known
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Put the context block into what the model gets; the history stays as it is."""
        run, spoken = self._run, _spoken(request_context.messages)
        block = await run_in_thread(self._memory.block, run.scope, spoken, run.thread)
        if block is not None:
            self._given = block.note()
            messages = _with_block(request_context.messages, block)
            request_context = dataclasses.replace(request_context, messages=messages)
        return await handler(request_context)

    def flush(self, timeout: float = 30.0) -> bool:
        """Retry queued deliveries; return whether none is left within `timeout` seconds."""
        return self._memory.flush(timeout)

    async def _record(self, run_id: str, role: str, words: str) -> None:
        if self._records:
            run, record = self._run, self._memory.record_words
            await run_in_thread(record, run.scope, run.thread or run_id, (role, words), run_id, self._given)


def _question(ctx: RunContext[AgentDepsT]) -> str:
    """Return what the user says in a run: its prompt, or the end of its history where it has none."""
    if ctx.prompt is not None:
        return _words(ctx.prompt)
    last = ctx.messages[-1] if ctx.messages else None
    return _said_in(last) if isinstance(last, ModelRequest) else ""


def _answer(output: object) -> str:
    """Return a final answer as text: a structured one as JSON; none where the run waits for its tools."""
    if isinstance(output, str):
        return output
    return "" if output is None or isinstance(output, DeferredToolRequests) else to_json(output, fallback=str).decode()


def _words(content: str | Sequence[UserContent]) -> str:
    if isinstance(content, str):
        return content
    texts = (item.content if isinstance(item, TextContent) else item for item in content)
    return "\n".join(text for text in texts if isinstance(text, str))


def _said_in(message: ModelMessage) -> str:
    """Return the words of a person, or of an answer, in a message."""
    if isinstance(message, ModelRequest):
        return "\n".join(_words(part.content) for part in message.parts if isinstance(part, UserPromptPart))
    return "".join(part.content for part in message.parts if isinstance(part, TextPart))


def _spoken(messages: Sequence[ModelMessage]) -> Iterator[dict[str, str]]:
    for message in messages:
        if words := _said_in(message):
            yield {"role": "user" if isinstance(message, ModelRequest) else "assistant", "content": words}


def _with_block(messages: Sequence[ModelMessage], block: Context) -> list[ModelMessage]:
    """Return messages with what stands behind the system prompt, and what was found before the newest question."""
    changed = list(messages)
    found = block.found and _put_found(changed, block.found)
    standing = block.standing if found or not block.found else block.text
    begin = next((n for n, message in enumerate(changed) if isinstance(message, ModelRequest)), None)
    if not standing or begin is None:
        return changed
    first = cast("ModelRequest", changed[begin])
    behind = next((n for n, part in enumerate(first.parts) if not isinstance(part, SystemPromptPart)), len(first.parts))
    parts = [*first.parts[:behind], SystemPromptPart(standing), *first.parts[behind:]]
    changed[begin] = dataclasses.replace(first, parts=parts)
    return changed


def _put_found(messages: list[ModelMessage], found: str) -> bool:
    """Put this part of a block before the newest question; return False where there is none."""
    for n in reversed(range(len(messages))):
        message = messages[n]
        if not isinstance(message, ModelRequest):
            continue
        for at, part in enumerate(message.parts):
            if isinstance(part, UserPromptPart):
                said = part.content
                content = text_after_block(said, found) if isinstance(said, str) else [f"{found}{GAP}", *said]
                parts = [*message.parts[:at], dataclasses.replace(part, content=content), *message.parts[at + 1 :]]
                messages[n] = dataclasses.replace(message, parts=parts)
                return True
    return False
