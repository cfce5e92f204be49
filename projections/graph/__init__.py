"""Graph of memory: threads, the updates that learned from them, the facts that came and went; and the message flow.

`model` is the graph as data, `builder` builds it from commits, and counts who sent what to whom; `selection` chooses
the commits. `outline` names boxes and arrows in words; `dot` and `mermaid` write an outline for those programs, which
decide where each box goes.
"""

from __future__ import annotations

from backstory.projections.graph.builder import Graph, MessageFlow, graph_of, message_flow_of
from backstory.projections.graph.dot import DOT_BEGINS
from backstory.projections.graph.mermaid import MERMAID_BEGINS
from backstory.projections.graph.model import Edge, FactNode, LeftOut, Node, Route, SectionNode, ThreadNode, UpdateNode
from backstory.projections.graph.selection import Choice

__all__ = [
    "DOT_BEGINS",
    "MERMAID_BEGINS",
    "Choice",
    "Edge",
    "FactNode",
    "Graph",
    "LeftOut",
    "MessageFlow",
    "Node",
    "Route",
    "SectionNode",
    "ThreadNode",
    "UpdateNode",
    "graph_of",
    "message_flow_of",
]
