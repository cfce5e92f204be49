"""Run state: what middleware and nodes keep about a run in the state of a graph, to survive interrupts and restarts.

It is private to the graph: it is no part of the input, of the answer or of a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NotRequired, TypeAlias

import msgspec
from langchain.agents.middleware import AgentState
from langchain.agents.middleware.types import PrivateStateAttr

from backstory.ledger.core.scope import Scope

_TOOLS = "tools:"
_WITHIN = "|"
_CHECKPOINTER = "__pregel_checkpointer"
"""LangGraph's config key for the checkpointer of a run."""

Plain: TypeAlias = "dict[str, dict[str, object]]"


class RunState(AgentState[object]):
    """The state of an agent, with the run of each middleware, or of the nodes, by its name."""

    backstory_runs: NotRequired[Annotated[Plain, PrivateStateAttr]]


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of an agent, from a question to its answer. It belongs to the user who asked, even if another resumes it.

    Attributes:
        records: Whether the run is recorded.
        owners: Message ids by a digest of their owner; "" for the global memory.
        asked: The ids of the question's messages, each with the id under which it is recorded.
        said: The number of messages at the begin.
        began: The digest of these messages, in hexadecimal.
        alone: Whether the question has no earlier messages.
        missed: Whether some messages could not be recorded.
    """

    thread: str
    user: str | None = None
    agent: str | None = None
    records: bool = True
    owners: dict[str, list[str]] = {}
    asked: dict[str, str] = {}
    said: int = 0
    began: str = ""
    alone: bool = False
    missed: bool = False

    @property
    def scope(self) -> Scope:
        """The scope of the run."""
        return Scope(self.user, self.agent)

    def by_id(self) -> dict[str, str]:
        """Return the owner of each message id."""
        return {key: user for user, ids in self.owners.items() for key in ids}

    def put(self, state: RunState, name: str) -> RunUpdate:
        """Return the state update that keeps this run under the name of its owner."""
        return {"backstory_runs": {**state.get("backstory_runs", {}), name: msgspec.to_builtins(self)}}

    @classmethod
    def within(cls, state: Mapping[str, object], name: str) -> Run | None:
        """Return the run that a state keeps; None if there is none or it cannot be read."""
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
    """Return a part of a run's config, such as "configurable" or "metadata"."""
    stated = config.get(name)
    return stated if isinstance(stated, Mapping) else {}


def from_tool(config: Mapping[str, object]) -> bool:
    """Whether a tool of another agent called this one, so that its input is not from a person.

    LangGraph names the enclosing steps in the config; a run with its own config inherits them in the metadata.
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
    """Whether a checkpointer keeps the conversation, so that message ids are stable across runs."""
    return part_of(config, "configurable").get(_CHECKPOINTER) is not None
