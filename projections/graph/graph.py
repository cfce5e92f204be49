"""Graph: its data, and its text for other programs."""

from __future__ import annotations

from backstory.projections.graph.dot import dot_of
from backstory.projections.graph.mermaid import mermaid_of
from backstory.projections.graph.model import GraphData
from backstory.projections.graph.outline import outline_of


class Graph(GraphData, frozen=True):
    """How facts, threads and updates hang together; `backstory.page.graph_page` draws it."""

    def dot(self) -> str:
        """Return it in the language of Graphviz, every text escaped and long ones cut."""
        return dot_of(outline_of(self))

    def mermaid(self) -> str:
        """Return it as a flowchart of Mermaid, every text escaped and long ones cut."""
        return mermaid_of(outline_of(self))
