"""Where everything stands: threads, updates, facts that are gone, memory now, from left to right; time goes down.

Each fact has a row of its own beside the update it was born in, so a line to a live fact passes no other fact's box.
Lengths are in pixels.
"""

from __future__ import annotations

import msgspec

from backstory.projections.graph.model import FactNode, GraphData, Node, SectionNode, ThreadNode, UpdateNode
from backstory.projections.graph.tags import tag
from backstory.projections.graph.words import cut, line, width, wrapped

FONT, SMALL = 12.0, 10.5


class Column(msgspec.Struct, frozen=True):
    """A column of boxes."""

    name: str
    x: float
    width: float

    @property
    def right(self) -> float:
        """Where its boxes end."""
        return self.x + self.width


THREADS = Column("conversations", 24, 140)
UPDATES = Column("updates", 216, 220)
GONE = Column("facts that are gone", 566, 366)
LIVE = Column("memory now", 984, 432)
_PADDING = 22.0
"""What of a box is not its text, left and right."""
_LINE = 16.0
_ROW_GAP, _GROUP_GAP = 5.0, 14.0
_THREAD_HEIGHT, _UPDATE_HEIGHT = 26.0, 40.0
_BORDER = 9.0


class Box(msgspec.Struct, frozen=True):
    """A node's place, and the lines written in it."""

    node: Node
    column: Column
    y: float
    height: float
    lines: tuple[str, ...]

    @property
    def middle(self) -> float:
        """Its middle, from above."""
        return self.y + self.height / 2


class Layout(msgspec.Struct, frozen=True):
    """All boxes by the id of their node, and how far down they reach; `earlier` is where facts born before end."""

    boxes: dict[str, Box]
    bottom: float
    earlier: float | None = None


def lay_out(graph: GraphData, top: float) -> Layout:
    """Give every node its place, from `top` down."""
    updates = [node for node in graph.nodes if isinstance(node, UpdateNode)]
    rows: dict[int, list[FactNode | SectionNode]] = {update.seq: [] for update in updates}
    before: list[FactNode | SectionNode] = []
    for node in graph.nodes:
        if isinstance(node, FactNode):
            rows.get(node.born or 0, before).append(node)
        elif isinstance(node, SectionNode):
            rows.get(node.last, before).append(node)
    boxes: dict[str, Box] = {}
    y, earlier = top, None
    if before:
        y = _stack(boxes, before, y) + _GROUP_GAP
        earlier = y
        y += 2 * _GROUP_GAP
    for update in updates:
        tall = sum(map(_height, rows[update.seq])) + _ROW_GAP * max(0, len(rows[update.seq]) - 1)
        whole = max(tall, _UPDATE_HEIGHT)
        boxes[update.id] = Box(update, UPDATES, y + (whole - _UPDATE_HEIGHT) / 2, _UPDATE_HEIGHT, ())
        _stack(boxes, rows[update.seq], y + (whole - tall) / 2)
        y += whole + _GROUP_GAP
    bottom = _threads(boxes, graph, top)
    return Layout(boxes, max(y, bottom, top + _UPDATE_HEIGHT), earlier)


def _stack(boxes: dict[str, Box], nodes: list[FactNode | SectionNode], y: float) -> float:
    """Put nodes one below the other; returns where they end."""
    for node in nodes:
        stays = node.live if isinstance(node, FactNode) else bool(node.summary)
        column = LIVE if stays else GONE
        height = _height(node)
        boxes[node.id] = Box(node, column, y, height, tuple(_lines(node)))
        y += height + _ROW_GAP
    return y - _ROW_GAP if nodes else y


def _threads(boxes: dict[str, Box], graph: GraphData, top: float) -> float:
    """Put each thread beside the first update that learned from it, or below the thread before."""
    first: dict[str, float] = {}
    for edge in graph.edges:
        if edge.kind in ("learned-from", "erased") and edge.source in boxes:
            first.setdefault(edge.target, boxes[edge.source].middle)
    y = top
    threads = [node for node in graph.nodes if isinstance(node, ThreadNode)]
    for node in sorted(threads, key=lambda node: first.get(node.id, top)):
        y = max(y, first.get(node.id, top) - _THREAD_HEIGHT / 2)
        boxes[node.id] = Box(node, THREADS, y, _THREAD_HEIGHT, ())
        y += _THREAD_HEIGHT + _ROW_GAP
    return y


def _height(node: FactNode | SectionNode) -> float:
    return _BORDER + _LINE * len(_lines(node))


def _lines(node: FactNode | SectionNode) -> list[str]:
    """Two lines for what is remembered, one for what is not."""
    match node:
        case SectionNode(summary=summary):
            told = line(summary) or ("erased" if node.erased else "empty")
            return [line(node.section), cut(told, ((LIVE if summary else GONE).width - _PADDING) / FONT)]
        case FactNode(content=None):
            return ["erased" if node.erased else "not told of in this ledger"]
        case FactNode(content=content, live=True):
            return wrapped(line(content or ""), (LIVE.width - _PADDING) / FONT, 2) or [""]
        case FactNode(content=content):
            return wrapped(
                line(content or ""), (GONE.width - _PADDING) / FONT - width(tag(node)) * SMALL / FONT - 1, 1
            ) or [""]
