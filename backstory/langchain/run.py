"""What the middleware keeps of a run in the agent's state, so that it survives a checkpointer, an interrupt, a restart.

It is private: nobody can send it in, it does not come out with the answer, and no model is shown it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NotRequired, TypeAlias

import msgspec
from langchain.agents.middleware import AgentState
from langchain.agents.middleware.types import PrivateStateAttr

from backstory.ledger.core.scope import Scope

__all__ = ["Run", "RunState", "RunUpdate", "from_tool", "is_kept", "is_node", "part_of"]

_TOOLS = "tools:"
_WITHIN = "|"
_CHECKPOINTER = "__pregel_checkpointer"
"""The key LangGraph itself keeps the checkpointer of a run under, in its config."""

Plain: TypeAlias = "dict[str, dict[str, object]]"


class RunState(AgentState[object]):
    """An agent's state with what the middleware of each name keeps of its run."""

    backstory_runs: NotRequired[Annotated[Plain, PrivateStateAttr]]


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of an agent, from a question to its answer; it is whose question it is, whoever resumes it."""

    thread: str
    user: str | None = None
    agent: str | None = None
    records: bool = True
    """Whether what is said in it goes into memory."""
    owners: dict[str, list[str]] = {}
    """Whose message each id is, by a digest of the user; the global memory's are under ""."""
    asked: dict[str, str] = {}
    """The ids of the question's messages, and those under which they are recorded."""
    said: int = 0
    """How many messages it began with."""
    began: str = ""
    """The digest of these, in hexadecimal digits."""
    alone: bool = False
    """Whether they are a question before which nothing was said."""
    missed: bool = False
    """Whether memory failed to record some of them."""

    @property
    def scope(self) -> Scope:
        """Whose memory it uses."""
        return Scope(self.user, self.agent)

    def by_id(self) -> dict[str, str]:
        """Whose each message is."""
        return {key: user for user, ids in self.owners.items() for key in ids}

    def put(self, state: RunState, name: str) -> RunUpdate:
        """Return the change of the state that keeps this run, under the name of its middleware."""
        return {"backstory_runs": {**state.get("backstory_runs", {}), name: msgspec.to_builtins(self)}}

    @classmethod
    def within(cls, state: Mapping[str, object], name: str) -> Run | None:
        """Return the run that a state keeps; None where there is none, or none that can be read."""
        runs = state.get("backstory_runs")
        kept = runs.get(name) if isinstance(runs, Mapping) else None
        if kept is None:
            return None
        try:
            return msgspec.convert(kept, cls)
        except msgspec.ValidationError:
            return None


RunUpdate: TypeAlias = "dict[str, Plain]"


def part_of(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return one part of a run's config: "configurable" or "metadata"."""
    stated = config.get(name)
    return stated if isinstance(stated, Mapping) else {}


def from_tool(config: Mapping[str, object]) -> bool:
    """Whether an agent was called by another one's tool: what it is told then are no person's words.

    LangGraph names the steps around a run; a run that was given a config of its own has them in what it inherits.
    """
    for part in ("configurable", "metadata"):
        steps = part_of(config, part).get("checkpoint_ns")
        if isinstance(steps, str) and any(step.startswith(_TOOLS) for step in steps.split(_WITHIN)):
            return True
    return False


def is_node(config: Mapping[str, object]) -> bool:
    """Whether the agent is a node of a larger graph."""
    steps = part_of(config, "configurable").get("checkpoint_ns")
    return isinstance(steps, str) and _WITHIN in steps


def is_kept(config: Mapping[str, object]) -> bool:
    """Whether a checkpointer keeps the conversation, so that its messages have the same ids in every run."""
    return part_of(config, "configurable").get(_CHECKPOINTER) is not None
