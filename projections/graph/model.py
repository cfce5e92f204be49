"""The graph as data: what is drawn, and what `--json` prints."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from backstory.projections.history.audit import Removed

EdgeKind: TypeAlias = Literal[
    "learned-from",
    "added",
    "restored",
    "revised",
    "removed",
    "told-of",
    "erased",
    "wrote",
    "superseded-by",
    "merged-into",
    "undid",
    "returned-to",
]
"""What an edge says, read from its source to its target: update 7 removed a fact, a fact was superseded by another."""


class _Node(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A node; `id` is its kind and its name, and unique in its graph."""

    id: str


class ThreadNode(_Node, frozen=True, kw_only=True, tag="thread"):
    """A conversation that something was learned from."""

    thread: str


class UpdateNode(_Node, frozen=True, kw_only=True, tag="update"):
    """A commit: its cause in words, who made it, what it did, and how many candidates it refused, by rule.

    `failed` says why an update came to nothing.
    """

    seq: int
    at: str
    cause: str
    title: str
    by: str
    summary: str
    refused: dict[str, int] = {}
    failed: str | None = None


class FactNode(_Node, frozen=True, kw_only=True, tag="fact"):
    """A fact as it is, or as it was last, and how it went.

    `content` and what belongs to it are None where it was erased, or where the chosen commits do not tell it. `born` is
    the seq of the commit that first added it, as far as that is known.
    """

    fact: str
    live: bool
    content: str | None = None
    category: str | None = None
    confidence: float | None = None
    by_hand: bool = False
    born: int | None = None
    place: int = 0
    gone: Removed | None = None

    @property
    def erased(self) -> bool:
        """Whether what it said was erased for good."""
        return self.gone is not None and self.gone.reason == "erased"


class SectionNode(_Node, frozen=True, kw_only=True, tag="section"):
    """A section as it is now; `written` counts the rewritings that are drawn, `last` is the seq of the last of them."""

    section: str
    summary: str
    written: int
    last: int
    erased: bool = False


Node: TypeAlias = ThreadNode | UpdateNode | FactNode | SectionNode


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who did what to whom: `source` and `target` are ids of nodes, `seq` the commit that says so."""

    source: str
    target: str
    kind: EdgeKind
    seq: int
    detail: str | None = None


class LeftOut(msgspec.Struct, frozen=True):
    """What was asked for and is not drawn: the oldest updates, and the live facts that only those tell of."""

    updates: int = 0
    facts: int = 0


class GraphData(msgspec.Struct, frozen=True):
    """How facts, threads and updates hang together, as of commit `seq`; nodes in order of time.

    `thread`, `fact` and `since` are what it was narrowed to.
    """

    user: str | None
    agent: str | None
    seq: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    left_out: LeftOut = LeftOut()
    thread: str | None = None
    fact: str | None = None
    since: str | None = None


class Route(msgspec.Struct, frozen=True):
    """Turns that went from one to another for one cause; `receiver` is None where they were for everybody.

    `first` and `last` are the times of the first and the last of them.
    """

    sender: str
    receiver: str | None
    cause_by: str | None
    turns: int
    first: str
    last: str


class MessageFlowData(msgspec.Struct, frozen=True):
    """Who sent what to whom, by first word; `left_out` counts the routes with the fewest turns that are not named.

    A turn with several receivers is on several routes. `turns` counts those that stand and were looked at; `thread` and
    `since` are what it was narrowed to.
    """

    user: str | None
    agent: str | None
    turns: int
    routes: tuple[Route, ...]
    left_out: int = 0
    thread: str | None = None
    since: str | None = None
