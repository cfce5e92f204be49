"""Memory of runs: opens the home, identifies runs, records them and reads the block; used by middleware and nodes."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from langchain_core.messages import AIMessage, HumanMessage

from backstory import checks
from backstory.home import Backstory
from backstory.integrations.closing import Closing
from backstory.integrations.identity import Identity, check_scope, present_config
from backstory.langchain.recording import RunRecorder
from backstory.langchain.run import Run, RunState, RunUpdate, part_of
from backstory.ledger.concurrency.recent import Recent
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.scope import MemoryScope, Scope
from backstory.ledger.text.tags import read_tags
from backstory.operations.recording import consider_warned
from backstory.outbox.fail_safe import FailSafeMemory

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike
    from backstory.projections.context import Context

_log = logging.getLogger(__name__)
_RUNS = 4_096


class RunMemory:
    """The memory of the runs of one middleware, or of one pair of nodes. Safe for threads.

    Attributes:
        backstory: The home.
        by_tools: Whether the model manages memory with tools.
        fail_safe: Reads and records without raising a fault of memory.

    Args:
        owner: The name under which the state of an agent keeps a run; errors name it.
        home: An open home, or a folder, or None for the configured one.
        scope: As for `Identity`.
        user_id: As for `Identity`.
        agent_name: As for `Identity`.
        mode: `middleware` or `tool`; None for the configured one.
        max_tokens: Maximum size of a block; None for the configured one.
        record: Whether to record runs.
        tags: The tags of what is recorded, and of the facts in a block; None for all.
        model: As for `Backstory.open`.
        config: As for `Backstory.open`.
        settings: As for `Backstory.open`.

    Raises:
        ConfigError: As `Backstory.open`.
        ScopeError: A user id or an agent name is invalid, or a shared memory is forbidden.
        UsageError: `home` has the wrong type, or is open and settings are given; or a tag is none.
    """

    def __init__(
        self,
        owner: str,
        home: Backstory | str | Path | None,
        *,
        scope: MemoryScope,
        user_id: str | None,
        agent_name: str | None,
        mode: Literal["middleware", "tool"] | None,
        max_tokens: int | None,
        record: bool,
        tags: Sequence[str] | None,
        model: ModelLike | None,
        config: str | Path | Mapping[str, object] | None,
        settings: Mapping[str, object],
    ) -> None:
        check_scope(scope, strict=False)
        if mode not in (None, "middleware", "tool"):
            raise UsageError(f"mode must be middleware or tool, got {mode!r}")
        if max_tokens is not None:
            checks.whole("max_tokens", max_tokens, 1, "a whole number of tokens")
        self._owner = owner
        self._identity = Identity(scope, user_id, agent_name)
        self._max_tokens = max_tokens
        self._tags = read_tags(tags or ())
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
        check_scope(scope, strict=stated.strict_user_scope)
        self.by_tools = (mode or stated.mode) == "tool"
        self._records = record and not self.by_tools
        self.fail_safe = FailSafeMemory(self.backstory)
        self._recorder = RunRecorder(self.fail_safe, self._tags)
        self._given: Recent[tuple[Scope, str], dict[str, object]] = Recent(_RUNS)
        """What the answers of the runs under way are given, as their turns note it."""
        # The first block needs it; by then it may be there.
        self.backstory.warm(timeout=0)
        if self._records and stated.enabled and self.backstory.model is None:
            _log.warning(
                "conversations are recorded in %s, but no facts are extracted, since no model is configured: set "
                "OPENAI_API_KEY, or give %s a model=, such as the agent's own",
                self.backstory.home,
                owner,
            )
            consider_warned(self.backstory.home)

    def begin(self, state: RunState, context: object) -> Run:
        """Identify the present run, and record its conversation so far.

        Args:
            state: The state of the agent.
            context: The runtime context of the run.

        Returns:
            The run, to be kept in the state.

        Raises:
            ScopeError: The run names no user.
        """
        config = present_config()
        run = self._unrecorded(context, config)
        if self._records:
            try:
                who = self._identity.of(context, part_of(config, "configurable"))
                run = self._recorder.begin(who, state, Run.within(state, self._owner), config)
            except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
                self.backstory.faults.note(run.scope, "record", error)
        return run

    def end(self, state: RunState) -> Run | None:
        """Record the messages that the run added; None if nothing has changed."""
        run = Run.within(state, self._owner)
        if run is None or not run.records:
            return None
        try:
            return self._recorder.end(run, state, self._given.pop((run.scope, run.thread), {}))
        except Exception as error:  # noqa: BLE001 a fault of memory must not break an answer
            self.backstory.faults.note(run.scope, "record", error)
            return None

    def put(self, run: Run, state: RunState) -> RunUpdate:
        """Return the state update that keeps a run."""
        return run.put(state, self._owner)

    def run(self, state: Mapping[str, object], context: object, config: Mapping[str, object]) -> Run:
        """Return the present run from the state; without one, a run identified by the call.

        Raises:
            ScopeError: The run names no user.
        """
        return Run.within(state, self._owner) or self._unrecorded(context, config)

    def block(self, run: Run, messages: Sequence[object]) -> Context | None:
        """Return the context block for the messages of a run, and remember what the answer of the run is given.

        It is None where memory cannot be read.
        """
        # Other messages do not show the topic, and may be unreadable.
        spoken = [message for message in messages if isinstance(message, HumanMessage | AIMessage)]

        def block() -> Context | None:
            memory = self.backstory.memory_of(run.scope)
            return memory.context(
                spoken, self._max_tokens, thread=run.thread or None, facts=not self.by_tools, tags=self._tags
            )

        made = self.fail_safe.guarded(run.scope, "inject", block, None)
        self._given.put((run.scope, run.thread), {} if made is None else made.note())
        return made

    def _unrecorded(self, context: object, config: Mapping[str, object]) -> Run:
        who = self._identity.of(context, part_of(config, "configurable"))
        return Run(who.thread or "", who.scope.user, who.scope.agent, records=False)

    def flush(self, timeout: float) -> bool:
        """Retry queued deliveries; return whether none is left within `timeout` seconds."""
        return self.fail_safe.flush(timeout)

    def close(self) -> None:
        """Retry queued deliveries, and close the home if it was opened here. A second call does nothing."""
        if self._closing is not None:
            self._closing.now()
        else:
            self.fail_safe.flush(self.backstory.config.settings.shutdown_flush_timeout_seconds)


class HasRunMemory:
    """A part of a graph that keeps memory through a RunMemory."""

    _memory: RunMemory

    @property
    def backstory(self) -> Backstory:
        """The home."""
        return self._memory.backstory

    def flush(self, timeout: float = 30.0) -> bool:
        """Retry queued deliveries; return whether none is left within `timeout` seconds."""
        return self._memory.flush(timeout)

    def close(self) -> None:
        """Retry queued deliveries, and close the home if it was opened here. A second call does nothing."""
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
