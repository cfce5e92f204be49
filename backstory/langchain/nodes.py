"""Nodes for a graph of LangGraph: one before the model that reads and records memory, one after it that records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, cast

from langchain.agents.middleware.types import ContextT
from langchain_core.messages import AnyMessage, SystemMessage
from langgraph.graph import MessagesState
from langgraph.runtime import Runtime

from backstory.home import Backstory
from backstory.integrations.prompt_block import GAP
from backstory.integrations.threads import run_in_thread
from backstory.langchain.run import Plain, RunState, RunUpdate
from backstory.langchain.run_memory import HasRunMemory, RunMemory
from backstory.langchain.system_message import with_block, with_found
from backstory.ledger.core.errors import UsageError
from backstory.ledger.core.scope import MemoryScope

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike


class MemoryState(MessagesState):
    """The state of a graph with `MemoryNodes`; extend it with fields of your own.

    Attributes:
        memory: The part of the context block for the system message, "" for an empty memory.
        memory_found: The part for directly before the newest question, "" where nothing is found.
        backstory_runs: What the nodes keep about a run. It names messages by their ids, and other users by a digest.
    """

    memory: NotRequired[str]
    memory_found: NotRequired[str]
    backstory_runs: NotRequired[Plain]


class MemoryNodes(HasRunMemory):
    """Memory for a graph of your own: add `before` as a node before the model, and `after` as the last one.

    `before` records the question and puts the context block into the state, as `memory` and `memory_found`; the node
    that calls the model gives it the messages of `prompt`. `after` records the answer. Users, threads, faults and what
    is recorded are those of `BackstoryMiddleware`. One instance serves any number of graphs and threads, in `invoke`
    and `ainvoke`: LangGraph runs `before` and `after` in threads there, and `abefore` and `aafter` are for graphs of
    async nodes.
    """

    def __init__(
        self,
        home: Backstory | str | Path | None = None,
        *,
        scope: MemoryScope = "user",
        user_id: str | None = None,
        agent_name: str | None = None,
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
            max_tokens: Maximum size of the context block. Default: the configuration's.
            record: Whether to record conversations. Turn it off for a graph whose prompts no person writes.
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
        self._memory = RunMemory(
            type(self).__name__,
            home,
            scope=scope,
            user_id=user_id,
            agent_name=agent_name,
            mode="middleware",  # the nodes give a model no tools
            max_tokens=max_tokens,
            record=record,
            tags=tags,
            model=model,
            config=config,
            settings=settings,
        )

    def before(self, state: MemoryState, runtime: Runtime[ContextT]) -> dict[str, str | Plain]:
        """Record the conversation so far, and read the context block for it.

        Raises:
            ScopeError: The run names no user.
        """
        mine = _run_state(state)
        run = self._memory.begin(mine, runtime.context)
        # An earlier block must not stay in the state where memory cannot be read.
        block = self._memory.block(run, mine["messages"])
        parts = ("", "") if block is None else (block.standing, block.found)
        return {"memory": parts[0], "memory_found": parts[1], **self._memory.put(run, mine)}

    async def abefore(self, state: MemoryState, runtime: Runtime[ContextT]) -> dict[str, str | Plain]:
        """See `before`."""
        return await run_in_thread(self.before, state, runtime)

    def prompt(self, state: MemoryState, instructions: str = "") -> list[AnyMessage]:
        """Return the messages for the model: what stands in the system message, what was found before the question.

        Args:
            state: The state of the graph, after `before`.
            instructions: What the system message says besides.
        """
        messages: list[AnyMessage] = list(_field(state, "messages") or [])  # type: ignore[call-overload]
        standing, found = (str(_field(state, name) or "") for name in ("memory", "memory_found"))
        asked = with_found(messages, found) if found else messages
        if asked is None:
            standing, asked = f"{standing}{GAP if standing else ''}{found}", messages
        system = with_block(SystemMessage(instructions) if instructions else None, standing)
        return asked if system is None else [system, *asked]

    def after(self, state: MemoryState) -> RunUpdate:
        """Record the messages that the run added.

        Raises:
            UsageError: The state keeps no run: `before` did not run, or the state has no field for it.
        """
        mine = _run_state(state)
        if not mine["backstory_runs"]:
            raise UsageError(
                "the state keeps no run: add `before` as a node before the model, and let the state of the graph "
                "extend MemoryState"
            )
        return self._memory.end(mine) or {}

    async def aafter(self, state: MemoryState) -> RunUpdate:
        """See `after`."""
        return await run_in_thread(self.after, state)


def _run_state(state: object) -> RunState:
    """Return what a state of any kind (a dict, a dataclass, a pydantic model) holds of a run."""
    messages, runs = _field(state, "messages"), _field(state, "backstory_runs")
    return cast("RunState", {"messages": messages or [], "backstory_runs": runs or {}})


def _field(state: object, name: str) -> object:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)
