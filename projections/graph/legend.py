"""What the lines and the colours of a picture mean, said in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from backstory.projections.graph.ink import Ink
from backstory.projections.graph.layout import SMALL
from backstory.projections.graph.lines import css_class
from backstory.projections.graph.model import Kind
from backstory.projections.graph.words import width

CATEGORIES = ("preference", "knowledge", "context", "behavior", "goal", "correction")
"""Categories of facts that have a colour of their own."""

_MEANINGS: dict[Kind, str] = {
    "learned-from": "learned from a conversation",
    "added": "added a fact",
    "restored": "brought a fact back",
    "revised": "confirmed or changed a fact",
    "removed": "removed a fact",
    "told-of": "told of a fact, erased since",
    "erased": "erased for good",
    "wrote": "wrote a summary (the last time)",
    "superseded-by": "superseded by",
    "merged-into": "merged into",
    "undid": "undid an update",
    "returned-to": "went back to an update",
}
_LINE, _STRIPE = 30.0, 4.0
_GAP, _ROW = 22.0, 18.0


class Sample(msgspec.Struct, frozen=True):
    """A line or, where `stripe` is set, a colour, and what it means."""

    css_class: str
    meaning: str
    stripe: bool = False

    @property
    def width(self) -> float:
        """How wide the sample itself is."""
        return _STRIPE if self.stripe else _LINE


def samples(kinds: Sequence[Kind], categories: Sequence[str]) -> list[Sample]:
    """Explain some kinds of line and categories of fact."""
    lines = [Sample(css_class(kind), _MEANINGS[kind]) for kind in kinds]
    return [*lines, *(Sample(category, category, stripe=True) for category in categories)]


def _placed(explained: Sequence[Sample], room: float) -> Iterator[tuple[Sample, float, int]]:
    x, row = 0.0, 0
    for sample in explained:
        wide = sample.width + 6 + width(sample.meaning) * SMALL + _GAP
        if x and x + wide > room:
            x, row = 0.0, row + 1
        yield sample, x, row
        x += wide


def legend_height(explained: Sequence[Sample], room: float) -> float:
    """Return how much of the picture the legend takes."""
    return _ROW * (1 + max((row for _, _, row in _placed(explained, room)), default=-1))


def draw_legend(picture: Ink, explained: Sequence[Sample], x: float, y: float, room: float) -> None:
    """Draw a sample of each with its meaning."""
    legend = picture.inside("g", class_="legend")
    for sample, dx, row in _placed(explained, room):
        at, left = y + row * _ROW, x + dx
        if sample.stripe:
            inner = legend.inside("g", class_=sample.css_class)
            inner.inside("rect", class_="stripe", x=left, y=at - 6, width=_STRIPE, height=12, rx=2)
        else:
            legend.inside(
                "path", class_=f"edge {sample.css_class}", stroke_width=1.6, d=f"M{left:.1f} {at:.1f} h{_LINE:.0f}"
            )
        legend.says("text", sample.meaning, class_="small", x=left + sample.width + 6, y=at + 4)
