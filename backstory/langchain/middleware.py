"""The middleware: memory goes into every call of the model, and what was said goes into memory."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ContextT
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime

from backstory import checks
from backstory.home import Backstory
from backstory.langchain.closing import Closing
from backstory.langchain.identity import Identity, MemoryScope
from backstory.langchain.recording import Recorder
from backstory.langchain.run import Run, RunState, RunUpdate, part_of
from backstory.langchain.system_message import with_block
from backstory.langchain.threads import run_in_thread
from backstory.langchain.tools import Calls, memory_tools
from backstory.ledger.core.errors import ScopeError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.memory import MemoryHandle
from backstory.outbox.fail_safe import FailSafeMemory

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike

__all__ = ["BackstoryMiddleware"]

_log = logging.getLogger(__name__)


class BackstoryMiddleware(AgentMiddleware[RunState, ContextT]):
    """Gives an agent of `create_agent` a memory: `middleware=[BackstoryMiddleware()]`.

    Before every call of the model the block of memory is put at the end of the system message. What was said is
    recorded when a run begins and when it ends; the answer never waits for what is learned from it. A fault of memory
    is logged, counted, shown by `status`, and never breaks an answer. One serves any number of agents and threads.
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
        model: ModelLike | None = None,
        config: str | Path | Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        """Take a home that is open, or open one.

        `home` is a Backstory, which stays the caller's to close, or the folder of a home, which is opened with
        `model`, `config` and `settings` as by `Backstory.open`, and closed by `close` or when the process ends; without
        it the home is where configuration says. `scope="global"` gives everybody one memory. `user_id` is for runs that
        name no user; `agent_name` gives this agent a memory of its own. `mode` is "middleware", or "tool" for a model
        that manages memory by itself; else configuration says. `max_tokens` bounds the block. Without `record` an agent
        is given memory and nothing it is told goes there: for one whose prompts no person writes.

        Raises:
            ConfigError: as `Backstory.open`.
            ScopeError: a user id or agent name that cannot be one.
            UsageError: something else than a home, or settings for one that is open already.
        """
        super().__init__()
        if scope not in ("user", "global"):
            raise UsageError(f"scope is {scope!r}; it is user or global")
        if mode not in (None, "middleware", "tool"):
            raise UsageError(f"mode is {mode!r}; it is middleware or tool")
        if max_tokens is not None:
            checks.whole("max_tokens", max_tokens, 1, "a whole number of tokens")
        self._identity = Identity(scope, user_id, agent_name)
        self._max_tokens = max_tokens
        self._closing = None
        if isinstance(home, Backstory):
            if model is not None or config is not None or settings:
                raise UsageError("the home is open already: give model, config and settings to Backstory.open")
            self.backstory = home
        elif home is None or isinstance(home, str | Path):
            opening: Callable[..., Backstory] = Backstory.open
            self.backstory = opening(home, config=config, model=model, mode=mode, **settings)
            self._closing = Closing(self.backstory)
            weakref.finalize(self, self._closing.unused).atexit = False
        else:
            raise UsageError(f"home must be a Backstory or the folder of a home, got {type(home).__name__}")
        stated = self.backstory.config.settings
        if scope == "global" and stated.strict_user_scope:
            raise ScopeError('strict_user_scope is on, so nobody may share a memory: leave scope="global" out')
        self._by_tools = (mode or stated.mode) == "tool"
        self._records = record and not self._by_tools
        self._deliveries = FailSafeMemory(self.backstory)
        self._recorder = Recorder(self._deliveries)
        if self._by_tools and stated.enabled:
            self.tools = memory_tools(self._deliveries, self._opens)
        if self._records and stated.enabled and self.backstory.model is None:
            _log.warning(
                "what is said is recorded in %s and not learned from, for no model is configured: set OPENAI_API_KEY, "
                "or give BackstoryMiddleware a model=, as the agent's own",
                self.backstory.home,
            )

    def before_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate:
        """Find out whose run it is, and record what its conversation says so far.

        Raises:
            ScopeError: nobody says who the user is.
        """
        config = _config()
        who = self._identity.of(runtime.context, part_of(config, "configurable"))
        if not self._records:
            run = Run(who.thread or "", who.scope.user, who.scope.agent, records=False)
        else:
            try:
                run = self._recorder.begin(who, state, Run.within(state, self.name), config)
            except Exception as error:  # noqa: BLE001 what is wrong with memory must not break an answer
                self.backstory.faults.note(who.scope, "record", error)
                run = Run(who.thread or "", who.scope.user, who.scope.agent, records=False)
        return run.put(state, self.name)

    async def abefore_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate:
        """See `before_agent`."""
        return await run_in_thread(self.before_agent, state, runtime)

    def wrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], ModelResponse],
    ) -> ModelResponse:
        """Put the block of memory into the system message, in place of any that is there."""
        return handler(self._with_memory(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse]],
    ) -> ModelResponse:
        """See `wrap_model_call`."""
        return await handler(await run_in_thread(self._with_memory, request))

    def after_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate | None:  # noqa: ARG002 the run says
        """Record what the run has said."""
        run = Run.within(state, self.name)
        if run is None or not run.records:
            return None
        try:
            return self._recorder.end(run, state).put(state, self.name)
        except Exception as error:  # noqa: BLE001 what is wrong with memory must not break an answer
            self.backstory.faults.note(run.scope, "record", error)
            return None

    async def aafter_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate | None:
        """See `after_agent`."""
        return await run_in_thread(self.after_agent, state, runtime)

    def _with_memory(self, request: ModelRequest[ContextT]) -> ModelRequest[ContextT]:
        run = self._run(request.state, request.runtime.context, _config())
        # Whatever else there is says nothing about what the talk is about, and may be something nobody can read.
        talk = [message for message in request.messages if isinstance(message, HumanMessage | AIMessage)]

        def block() -> str | None:
            memory = self.backstory.memory(run.user, run.agent)
            thread = run.thread or None
            return memory.context(talk, self._max_tokens, thread=thread, facts=not self._by_tools).text

        text = self._deliveries.guarded(run.scope, "inject", block, None)
        message = request.system_message if text is None else with_block(request.system_message, text)
        return request if message is request.system_message else request.override(system_message=message)

    def _run(self, state: Mapping[str, object], context: object, config: Mapping[str, object]) -> Run:
        """The run that is going on: as it began, or, where nothing is known of that, as whoever calls says."""
        run = Run.within(state, self.name)
        if run is None:
            who = self._identity.of(context, part_of(config, "configurable"))
            run = Run(who.thread or "", who.scope.user, who.scope.agent, records=False)
        return run

    def _opens(self, runtime: Calls) -> tuple[Scope, Callable[[], MemoryHandle]]:
        run = self._run(runtime.state, runtime.context, runtime.config)
        name = run.agent or part_of(runtime.config, "metadata").get("lc_agent_name")
        actor = f"agent:{name}" if name else "agent"
        return run.scope, lambda: self.backstory.memory(run.user, run.agent).by(actor, run.thread or None)

    def flush(self, timeout: float = 30.0) -> bool:
        """Record what waits because memory failed; True when nothing waits any more, within `timeout` seconds."""
        return self._deliveries.flush(timeout)

    def close(self) -> None:
        """Record what waits, and close the home if this middleware has opened it; closing again does nothing."""
        if self._closing is not None:
            self._closing.now()
        else:
            self._deliveries.close(self.backstory.config.settings.shutdown_flush_timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _config() -> Mapping[str, object]:
    try:
        return dict(get_config())
    except RuntimeError:  # outside a graph
        return {}
