"""LangChain middleware: adds the context block to each model call, and records the conversation of each run."""

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
from backstory.langchain.identity import Identity
from backstory.langchain.recording import Recorder
from backstory.langchain.run import Run, RunState, RunUpdate, part_of
from backstory.langchain.system_message import with_block
from backstory.langchain.threads import run_in_thread
from backstory.langchain.tools import Calls, memory_tools
from backstory.ledger.core.errors import ScopeError, UsageError
from backstory.ledger.core.scope import MemoryScope, Scope
from backstory.memory import MemoryHandle
from backstory.outbox.fail_safe import FailSafeMemory

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike

_log = logging.getLogger(__name__)


class BackstoryMiddleware(AgentMiddleware[RunState, ContextT]):
    """Memory for an agent of `create_agent`: `middleware=[BackstoryMiddleware()]`.

    It appends the context block to the system message of each model call. It records the conversation at the begin and
    at the end of each run; extraction happens later, in the background. A fault of memory is logged, counted and shown
    by `status`, and never breaks an answer. One instance serves any number of agents and threads.
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
            model: As for `Backstory.open`.
            config: As for `Backstory.open`.
            settings: As for `Backstory.open`.

        Raises:
            ConfigError: As `Backstory.open`.
            ScopeError: A user id or an agent name is invalid.
            UsageError: `memory` has the wrong type, or is open and settings are given.
        """
        super().__init__()
        if scope not in ("user", "global"):
            raise UsageError(f"scope must be user or global, got {scope!r}")
        if mode not in (None, "middleware", "tool"):
            raise UsageError(f"mode must be middleware or tool, got {mode!r}")
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
            weakref.finalize(self, self._closing.in_background).atexit = False
        else:
            raise UsageError(f"home must be a Backstory or the folder of a home, got {type(home).__name__}")
        stated = self.backstory.config.settings
        if scope == "global" and stated.strict_user_scope:
            raise ScopeError('strict_user_scope is on and forbids a shared memory: leave out scope="global"')
        self._by_tools = (mode or stated.mode) == "tool"
        self._records = record and not self._by_tools
        self._fail_safe = FailSafeMemory(self.backstory)
        self._recorder = Recorder(self._fail_safe)
        if self._by_tools and stated.enabled:
            self.tools = memory_tools(self._fail_safe, self._opens)
        if self._records and stated.enabled and self.backstory.model is None:
            _log.warning(
                "conversations are recorded in %s, but no facts are extracted, since no model is configured: set "
                "OPENAI_API_KEY, or give BackstoryMiddleware a model=, such as the agent's own",
                self.backstory.home,
            )

    def before_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate:
        """Identify the run, and record its conversation so far.

        Raises:
            ScopeError: The run names no user.
        """
        config = _config()
        who = self._identity.of(runtime.context, part_of(config, "configurable"))
        run = Run(who.thread or "", who.scope.user, who.scope.agent, records=False)
        if self._records:
            try:
                run = self._recorder.begin(who, state, Run.within(state, self.name), config)
            except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
                self.backstory.faults.note(who.scope, "record", error)
        return run.put(state, self.name)

    async def abefore_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate:
        """See `before_agent`."""
        return await run_in_thread(self.before_agent, state, runtime)

    def wrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], ModelResponse],
    ) -> ModelResponse:
        """Put the context block into the system message; it replaces an earlier block."""
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
        run = Run.within(state, self.name)
        if run is None or not run.records:
            return None
        try:
            return self._recorder.end(run, state).put(state, self.name)
        except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
            self.backstory.faults.note(run.scope, "record", error)
            return None

    async def aafter_agent(self, state: RunState, runtime: Runtime[ContextT]) -> RunUpdate | None:
        """See `after_agent`."""
        return await run_in_thread(self.after_agent, state, runtime)

    def _with_memory(self, request: ModelRequest[ContextT]) -> ModelRequest[ContextT]:
        run = self._run(request.state, request.runtime.context, _config())
        # Other messages do not show the topic, and may be unreadable.
        spoken = [message for message in request.messages if isinstance(message, HumanMessage | AIMessage)]

        def block() -> str | None:
            memory = self.backstory.memory_of(run.scope)
            thread = run.thread or None
            return memory.context(spoken, self._max_tokens, thread=thread, facts=not self._by_tools).text

        text = self._fail_safe.guarded(run.scope, "inject", block, None)
        message = request.system_message if text is None else with_block(request.system_message, text)
        return request if message is request.system_message else request.override(system_message=message)

    def _run(self, state: Mapping[str, object], context: object, config: Mapping[str, object]) -> Run:
        """Return the present run from the state; without one, a run identified by the call."""
        run = Run.within(state, self.name)
        if run is None:
            who = self._identity.of(context, part_of(config, "configurable"))
            run = Run(who.thread or "", who.scope.user, who.scope.agent, records=False)
        return run

    def _opens(self, runtime: Calls) -> tuple[Scope, Callable[[], MemoryHandle]]:
        run = self._run(runtime.state, runtime.context, runtime.config)
        name = run.agent or part_of(runtime.config, "metadata").get("lc_agent_name")
        actor = f"agent:{name}" if name else "agent"
        return run.scope, lambda: self.backstory.memory_of(run.scope).by(actor, run.thread or None)

    def flush(self, timeout: float = 30.0) -> bool:
        """Retry queued deliveries; return whether none is left within `timeout` seconds."""
        return self._fail_safe.flush(timeout)

    def close(self) -> None:
        """Retry queued deliveries, and close the home if this middleware opened it. A second call does nothing."""
        if self._closing is not None:
            self._closing.now()
        else:
            self._fail_safe.flush(self.backstory.config.settings.shutdown_flush_timeout_seconds)

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
