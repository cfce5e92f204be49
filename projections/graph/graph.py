"""Graph: the data of a picture, and the pictures."""

from __future__ import annotations

from backstory.projections.graph.drawing import svg_of
from backstory.projections.graph.model import GraphData
from backstory.projections.graph.page import page_of


class Graph(GraphData, frozen=True):
    """How facts, threads and updates hang together, with its pictures."""

    def svg(self) -> str:
        """Draw it: an SVG document that needs nothing beside it, for light and dark, every text escaped."""
        return svg_of(self)

    def html(self) -> str:
        """Draw it on a page of its own: a fact that is pointed at shows its path, its words and how to ask why."""
        return page_of(self.svg(), "memory")
