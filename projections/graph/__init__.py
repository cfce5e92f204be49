"""A picture of memory: threads, the updates that learned from them, the facts that came and went; and who told whom.

`model` is the graph as data, `builder` takes it from commits, `selection` says which commits. `layout` gives every node
its place, `drawing` makes the SVG and `page` the HTML around it. `message_flow` and `message_flow_drawing` do the same
for who sent what to whom.

The layout is our own, on purpose. The columns are given (threads, updates, facts), and so is the order within each
(time, then birth): a library for layered graphs would have nothing left to decide, for finding layers and orders is
what they do. Those to be had without another program (`dot`, a browser) lay out points, too, not lines of text.
"""

from __future__ import annotations

from backstory.projections.graph.builder import graph_of
from backstory.projections.graph.graph import Graph
from backstory.projections.graph.message_flow import MessageFlow, message_flow_of
from backstory.projections.graph.model import Edge, FactNode, LeftOut, Node, Route, SectionNode, ThreadNode, UpdateNode
from backstory.projections.graph.selection import Choice

__all__ = [
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
