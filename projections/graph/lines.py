"""The lines between the boxes: where they run, and what each says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from backstory.projections.graph.ink import Ink
from backstory.projections.graph.layout import GONE, LIVE, THREADS, UPDATES, Box, Layout
from backstory.projections.graph.model import Edge, FactNode, Kind, Node, SectionNode
from backstory.projections.graph.words import line

_POINTED: frozenset[Kind] = frozenset({"restored", "superseded-by", "merged-into", "undid", "returned-to"})
"""What is pointed at the end; of the others the columns say which way they go."""
_TIP, ROUTE_TIP = 8.0, 15.0
_KIN: tuple[Kind, ...] = ("superseded-by", "merged-into")
_COMMON: frozenset[Kind] = frozenset({"learned-from", "added", "removed", "told-of", "wrote"})
_THIN, _THICK = 1.3, 1.8
_FARTHEST = 42.0
_FAR = 110.0
_LANE, _LANES, _FEW = 4.0, 15, 6
_TURN = 6.0
_ASIDE: dict[Kind, float] = {"removed": 6.0, "restored": -6.0, "revised": 10.0}
"""How far beside the middle of a box lines of a kind run, so that they do not cover each other."""
_ASIDE_ELSE = -10.0


def css_class(kind: str) -> str:
    """Name the class of an edge; a box can be erased as well, and looks otherwise."""
    return "erased-by" if kind == "erased" else kind


def tips(picture: Ink, kinds: Iterable[str]) -> None:
    """Define the arrowheads of some kinds of line."""
    definitions = picture.inside("defs")
    for kind in kinds:
        if kind in _POINTED or kind == "route":
            # A route can be wider than a tip is elsewhere, so it ends where its tip begins.
            size = ROUTE_TIP if kind == "route" else _TIP
            tip = definitions.inside(
                "marker",
                id=f"tip-{kind}",
                viewBox="0 0 8 8",
                refX="0" if kind == "route" else "7.5",
                refY="4",
                markerWidth=size,
                markerHeight=size,
                markerUnits="userSpaceOnUse",
                orient="auto",
            )
            name = "undid" if kind == "returned-to" else kind
            tip.inside("path", class_=f"tip {name}", d="M0 0 L8 4 L0 8 z")


def draw_edge(ink: Ink, edge: Edge, layout: Layout, numbers: Mapping[str, str]) -> None:
    """Draw a line; hovering over it tells in words what it says."""
    source, target = layout.boxes[edge.source], layout.boxes[edge.target]
    past = "" if _in_force(edge, source.node if edge.kind in _KIN else target.node) else " past"
    marked = {"marker_end": f"url(#tip-{edge.kind})"} if edge.kind in _POINTED else {}
    drawn = ink.inside(
        "path",
        class_=f"edge {css_class(edge.kind)}{past}",
        stroke_width=_THIN if edge.kind in _COMMON else _THICK,
        d=_path(edge, source, target, int(numbers[edge.target][1:])),
        data_from=numbers[edge.source],
        data_to=numbers[edge.target],
        data_kind=edge.kind,
        **marked,
    )
    detail = f" ({edge.detail})" if edge.detail and edge.detail != edge.kind else ""
    said = f"{_named(edge.source)} {edge.kind.replace('-', ' ')} {_named(edge.target)}{detail}"
    drawn.says("title", line(f"{said}, commit {edge.seq}" if not edge.source.startswith("update:") else said))


def _in_force(edge: Edge, node: Node) -> bool:
    """Whether what took a fact out of memory still holds: it may have come back since, and gone otherwise."""
    if edge.kind not in (*_KIN, "removed") or not isinstance(node, FactNode):
        return True
    return node.gone is not None and node.gone.seq == edge.seq


def _named(node: str) -> str:
    kind, _, name = node.partition(":")
    return name if kind == "fact" else f"{kind} {name}"


def _path(edge: Edge, source: Box, target: Box, number: int) -> str:
    """Run from one box to the other: in a lane where it is far, else in a curve across the columns between."""
    a, b = source.middle, target.middle
    far = abs(a - b) > _FAR
    if source.column is UPDATES and target.column is UPDATES:
        return _around(source, a, b)
    if target.column is THREADS:
        lane = THREADS.right + 4 + _LANE * (number % _FEW)
        start, end = (source.column.x, a), (target.column.right, b)
        return _by_lane(start, end, lane) if far else _curve(*start, *end)
    if source.column is not UPDATES:
        # From fact to fact: between the two columns of facts, whichever they stand in.
        lane = GONE.right + 6 + _LANE * (edge.seq % _FEW)
        start, end = (_inner(source), a), (_inner(target), b)
        return _by_lane(start, end, lane) if far or source.column is target.column else _curve(*start, *end)
    if not _beside(edge, target.node):
        aside = _ASIDE.get(edge.kind, _ASIDE_ELSE)
        track = 4 * edge.seq + sorted([*_ASIDE.values(), _ASIDE_ELSE]).index(aside)
        lane = GONE.x - 14 - _LANE * (track % _LANES)
        return _by_lane((source.column.right, a + aside), (target.column.x, b + aside), lane)
    if target.column is LIVE:
        # It is in its own row before it comes to the column of other facts' boxes.
        return f"{_curve(source.column.right, a, GONE.x, b)} H{target.column.x:.1f}"
    return _curve(source.column.right, a, target.column.x, b)


def _beside(edge: Edge, node: Node) -> bool:
    """Whether the box stands beside the update."""
    match node:
        case FactNode(born=born):
            return born == edge.seq
        case SectionNode(last=last):
            return last == edge.seq
        case _:
            return True


def _inner(box: Box) -> float:
    """The side of a fact's box that faces the other facts."""
    return GONE.right if box.column is GONE else LIVE.x


def _curve(start: float, a: float, end: float, b: float) -> str:
    bend = (end - start) * 0.55
    return f"M{start:.1f} {a:.1f} C{start + bend:.1f} {a:.1f} {end - bend:.1f} {b:.1f} {end:.1f} {b:.1f}"


def _by_lane(origin: tuple[float, float], goal: tuple[float, float], lane: float) -> str:
    """Go far up or down in a lane, which lines that say the same of the same thing share."""
    (start, a), (end, b) = origin, goal
    wide = min(_TURN, abs(b - a) / 2)
    down = wide if b > a else -wide
    out, back = (wide if lane > start else -wide), (wide if end > lane else -wide)
    return (
        f"M{start:.1f} {a:.1f} H{lane - out:.1f} Q{lane:.1f} {a:.1f} {lane:.1f} {a + down:.1f} "
        f"V{b - down:.1f} Q{lane:.1f} {b:.1f} {lane + back:.1f} {b:.1f} H{end:.1f}"
    )


def _around(box: Box, a: float, b: float) -> str:
    side = box.column.x
    out = side - min(_FARTHEST, 18 + abs(a - b) / 12)
    return f"M{side:.1f} {a:.1f} C{out:.1f} {a:.1f} {out:.1f} {b:.1f} {side:.1f} {b:.1f}"
