"""Outline of a graph: its boxes and arrows in words, before a language is chosen for them.

Their texts have no characters that steer the program that reads them, and are cut to a few short lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import msgspec

from backstory.projections.graph.model import (
    Edge,
    EdgeKind,
    FactNode,
    GraphData,
    MessageFlowData,
    Node,
    Route,
    SectionNode,
    ThreadNode,
    UpdateNode,
)

_REPLACED = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "\N{REPLACEMENT CHARACTER}"
)
_DROPPED = dict.fromkeys([0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_SAFE = _REPLACED | _DROPPED | {0x09: " ", 0x0A: " ", 0x0D: " ", 0x2028: " ", 0x2029: " "}
LINE = 48
"""Characters in a line of a box."""
CUT = "…"
"""Ends a text that is longer than its lines."""


def line(text: str) -> str:
    """Return a text in one line, without control characters and marks of text direction."""
    return " ".join(text.translate(_SAFE).split())


def wrapped(text: str, lines: int = 1) -> tuple[str, ...]:
    """Break a text into at most `lines` lines of `LINE` characters; `CUT` ends one that has more."""
    # No more than these characters can be shown: a line, and the space at which it is broken.
    rest = line(text)[: (LINE + 1) * lines + 1]
    found: list[str] = []
    while len(rest) > LINE and len(found) < lines - 1:
        space = rest.rfind(" ", LINE // 2, LINE + 1)
        end = space if space > 0 else LINE
        found.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    if len(rest) > LINE:
        rest = rest[: LINE - len(CUT)].rstrip() + CUT
    return (*found, rest) if rest else tuple(found)


Look: TypeAlias = Literal["thread", "update", "fact", "gone", "erased", "section", "name", "note"]
"""What a box is; content never decides more than which of these."""

LOOKS: tuple[Look, ...] = get_args(Look)

_KIN: tuple[EdgeKind, ...] = ("superseded-by", "merged-into")
_REASONS = {
    "model": "withdrawn",
    "consolidated": "merged",
    "hand": "by hand",
    "cap": "no room",
    "clear": "cleared",
    "threshold": "below threshold",
    "ended": "true until then",
}
_CONTENT_LINES = 4
_ERASED = "erased for good"
_UNKNOWN = "not in these updates"
_EVERYBODY = "everybody"


class Box(msgspec.Struct, frozen=True):
    """A node: what it is and its lines, which are safe and short but not escaped."""

    look: Look
    lines: tuple[str, ...]


class Arrow(msgspec.Struct, frozen=True):
    """An edge between two boxes, by their numbers.

    `past` says that it no longer holds. Where `back` is set, its target stands before its source.
    """

    source: int
    target: int
    label: str
    past: bool = False
    back: bool = False


class Outline(msgspec.Struct, frozen=True):
    """The boxes and arrows of a graph, and the lines of its title, which say what is left out."""

    title: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def outline_of(graph: GraphData) -> Outline:
    """Outline a graph of facts; of a section's rewritings only the last has an arrow, as its box counts them."""
    numbers = {node.id: number for number, node in enumerate(graph.nodes)}
    nodes = {node.id: node for node in graph.nodes}
    arrows = tuple(
        Arrow(
            numbers[edge.source],
            numbers[edge.target],
            _edge_label(edge),
            past=not _in_force(edge, nodes),
            back=edge.kind == "learned-from",
        )
        for edge in graph.edges
        if edge.kind != "wrote" or _is_last(edge, nodes[edge.target])
    )
    title = f"What {_owner(graph.user, graph.agent)} remembers, as of commit {graph.seq}"
    return Outline((*wrapped(title, 3), *_left_out(graph)), tuple(map(_box, graph.nodes)), arrows)


def message_outline_of(flow: MessageFlowData) -> Outline:
    """Outline who sent what to whom: a box for each name, an arrow for each route."""
    numbers: dict[str | None, int] = {}
    for route in flow.routes:
        numbers.setdefault(route.sender, len(numbers))
        numbers.setdefault(route.receiver, len(numbers))
    boxes = tuple(Box("note" if name is None else "name", wrapped(name or _EVERYBODY)) for name in numbers)
    arrows = tuple(Arrow(numbers[route.sender], numbers[route.receiver], _route_label(route)) for route in flow.routes)
    left_out = [f"{_count(flow.left_out, 'route')} with fewer turns left out"] if flow.left_out else []
    title = wrapped(f"Who sent what to whom: {_owner(flow.user, flow.agent)}", 3)
    return Outline((*title, *left_out), boxes, arrows)


def _owner(user: str | None, agent: str | None) -> str:
    if user is None and agent is None:
        return "the global memory"
    named = ["" if user is None else f"user {user}", "" if agent is None else f"agent {agent}"]
    return ", ".join(filter(None, named))


def _count(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"


def _left_out(graph: GraphData) -> Iterator[str]:
    left = graph.left_out
    if left.updates:
        facts = f", and {_count(left.facts, 'present fact')} with them" if left.facts else ""
        yield f"{_count(left.updates, 'older update')} left out{facts}"


def _box(node: Node) -> Box:
    match node:
        case ThreadNode(thread=thread):
            return Box("thread", wrapped(f"thread {thread}"))
        case UpdateNode():
            return Box("update", tuple(_update_lines(node)))
        case FactNode(live=live, erased=erased):
            look: Look = "fact" if live else "erased" if erased else "gone"
            return Box(look, (*_content_lines(node), *wrapped(_state(node), 2)))
        case SectionNode(section=section, summary=summary, erased=erased):
            said = summary or (_ERASED if erased else "empty")
            return Box("section", (*wrapped(f"section {section}"), *wrapped(said, _CONTENT_LINES)))


def _update_lines(node: UpdateNode) -> Iterator[str]:
    yield from wrapped(f"{node.seq} {node.title}")
    yield from wrapped(node.summary, 2)
    if node.refused:
        yield f"{sum(node.refused.values())} refused"
    yield from wrapped(node.at[:16].replace("T", " "))


def _content_lines(node: FactNode) -> tuple[str, ...]:
    if node.content is not None:
        return wrapped(node.content, _CONTENT_LINES)
    return (_ERASED if node.erased else _UNKNOWN,)


def _state(node: FactNode) -> str:
    said = [node.fact]
    if node.category is not None and node.confidence is not None:
        said += [node.category, f"{node.confidence:.2f}"]
    if node.gone is not None:
        said.append(f"{_REASONS.get(node.gone.reason, node.gone.reason)} at {node.gone.seq}")
    return ", ".join(said)


def _edge_label(edge: Edge) -> str:
    said = edge.kind.replace("-", " ")
    # A removal by consolidation names the other fact, to which an arrow of its own leads.
    detail = edge.detail if edge.kind in ("removed", "revised") else None
    return said if not detail else " ".join(wrapped(f"{said}: {_REASONS.get(detail, detail)}"))


def _route_label(route: Route) -> str:
    if route.cause_by is None:
        return _count(route.turns, "turn")
    return " ".join(wrapped(f"{route.turns:,} × {route.cause_by.rpartition('.')[2] or route.cause_by}"))


def _is_last(edge: Edge, node: Node) -> bool:
    return isinstance(node, SectionNode) and edge.seq == node.last


def _in_force(edge: Edge, nodes: dict[str, Node]) -> bool:
    """Whether what took a fact out of memory still holds: the fact may be back, or gone for another reason."""
    if edge.kind not in (*_KIN, "removed"):
        return True
    node = nodes[edge.source if edge.kind in _KIN else edge.target]
    return not isinstance(node, FactNode) or (node.gone is not None and node.gone.seq == edge.seq)
