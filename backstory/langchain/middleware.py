"""LangChain middleware: adds the context block to each model call, and records the conversation of each run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ContextT
from langgraph.runtime import Runtime

from backstory.home import Backstory
from backstory.integrations.identity import present_config
from backstory.integrations.threads import run_in_thread
from backstory.langchain.run import RunState, RunUpdate, part_of
from backstory.langchain.run_memory import HasRunMemory, RunMemory
from backstory.langchain.system_message import with_block, with_found
from backstory.langchain.tools import Calls, memory_tools
from backstory.ledger.core.scope import MemoryScope, Scope
from backstory.memory import MemoryHandle

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike


class BackstoryMiddleware(HasRunMemory, AgentMiddleware[RunState, ContextT]):
    """Memory for an agent of `create_agent`: `middleware=[BackstoryMiddleware()]`.

    It adds the context block to each model call: what stands to the end of the system message, and what the question
    finds directly before it, so that prompt caches hold. It records the conversation at the begin and at the end of
    each run; extraction happens later, in the background. A fault of memory is logged, counted and shown by `status`,
    and never breaks an answer. One instance serves any number of agents and threads.
    """

    state_schema = RunState

    def __init__(
        self,
        home: Backstory | str | Path | None = None,
        *,
        scope: MemoryScope = "user",
        user_id: str | None = None,
        agent_name: str | None = None,
        mode: Literal["middleware", "tool"] | None = None,
        max_tokens: int | None = None,
        record: bool = True,
        tags: Sequence[str] | None = None,
        model: ModelLike | None = None,
        config: str | Path | Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        """Use an open home, or open one.

        Args:
            home: An open Backstory, which the caller closes, or the folder of a home, which `close` or the end of the
                process closes. Default: the home that the configuration names.
            scope: "user" for one memory per user, "global" for one memory of all users.
            user_id: The user of runs that name none.
            agent_name: Gives this agent its own memory.
            mode: "middleware", or "tool" for a model that manages memory with tools. Default: the configuration's.
            max_tokens: Maximum size of the context block. Default: the configuration's.
            record: Whether to record conversations. Turn it off for an agent whose prompts no person writes.
            tags: What the runs are about, such as a project: what is recorded gets them, and of the facts with tags
                only those with all of these are in the block.
            model: As for `Backstory.open`.
            config: As for `Backstory.open`.
            settings: As for `Backstory.open`.

        Raises:
            ConfigError: As `Backstory.open`.
            ScopeError: A user id or an agent name is invalid.
            UsageError: `home` has the wrong type, or is open and settings are given; or a tag is none.
        """
        super().__init__()
        self._memory = RunMemory(
            self.name,
            home,
            scope=scope,
            user_id=user_id,
            agent_name=agent_name,
            mode=mode,
            max_tokens=max_tokens,
            record=record,
            tags=tags,
            model=model,
            config=config,
            settings=settings,
        )
        if self._memory.by_tools and self.backstory.config.settings.enabled:
            self.tools = memory_tools(self._memory.fail_safe, self._opens)

    def before_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate:
        """Identify the run, and record its conversation so far.

        Raises:
            ScopeError: The run names no user.
        """
        return self._memory.put(self._memory.begin(state, runtime.context), state)

    async def abefore_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate:
        """See `before_agent`."""
        return await run_in_thread(self.before_agent, state, runtime)

    def wrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], ModelResponse],
    ) -> ModelResponse:
        """Put the context block into the messages; it replaces an earlier block."""
        return handler(self._with_memory(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse]],
    ) -> ModelResponse:
        """See `wrap_model_call`."""
        return await handler(await run_in_thread(self._with_memory, request))

    def after_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate | None:  # noqa: ARG002 the run says
        """Record the messages that the run added."""
        return self._memory.end(state)

    async def aafter_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate | None:
        """See `after_agent`."""
        return await run_in_thread(self.after_agent, state, runtime)

    def _with_memory(self, request: ModelRequest[ContextT]) -> ModelRequest[ContextT]:
        run = self._memory.run(request.state, request.runtime.context, present_config())
        block = self._memory.block(run, request.messages)
        if block is None:
            return request
        messages = with_found(request.messages, block.found) if block.found else None
        # Without a question to put it before, what was found goes to the rest.
        system = with_block(request.system_message, block.text if messages is None else block.standing)
        if system is not request.system_message:
            request = request.override(system_message=system)
        return request if messages is None else request.override(messages=messages)

    def _opens(self, runtime: Calls) -> tuple[Scope, Callable[[], MemoryHandle]]:
        run = self._memory.run(runtime.state, runtime.context, runtime.config)
        name = run.agent or part_of(runtime.config, "metadata").get("lc_agent_name")
        actor = f"agent:{name}" if name else "agent"
        return run.scope, lambda: self.backstory.memory_of(run.scope).by(actor, run.thread or None, by_model=True)
