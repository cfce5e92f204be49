"""The picture of a memory, as SVG: no script, no font, no file beside it."""

from __future__ import annotations

from collections.abc import Iterator

from backstory.projections.graph.commands import command, owner
from backstory.projections.graph.ink import Ink, new_picture, written
from backstory.projections.graph.layout import FONT, GONE, LIVE, SMALL, THREADS, UPDATES, Box, Layout, lay_out
from backstory.projections.graph.legend import CATEGORIES, draw_legend, legend_height, samples
from backstory.projections.graph.lines import draw_edge, tips
from backstory.projections.graph.model import (
    KINDS,
    Edge,
    FactNode,
    GraphData,
    Node,
    SectionNode,
    ThreadNode,
    UpdateNode,
)
from backstory.projections.graph.tags import reason_in_words, tag
from backstory.projections.graph.words import cut, day, line, moment, safe

_COLUMNS = (THREADS, UPDATES, GONE, LIVE)
_MARGIN = 24.0
_WIDTH = LIVE.right + _MARGIN
_TITLE, _TOLD = 38.0, 58.0
_HEADING, _BOLD = 18.0, 13.0
"""Sizes of fonts: what is bold is a little wider than its size says."""
_NOTHING = "There is nothing of that to draw."
_CAUSES = frozenset(
    {"extraction", "summary", "manual", "import", "revert", "rollback", "redaction", "clear", "policy", "genesis"}
)


def svg_of(graph: GraphData) -> str:
    """Draw a graph."""
    told, notice = _told(graph), _notice(graph)
    kinds = [kind for kind in KINDS if any(edge.kind == kind for edge in graph.edges)]
    has = {node.category for node in graph.nodes if isinstance(node, FactNode)}
    explained = samples(kinds, [category for category in CATEGORIES if category in has])
    y = _TOLD + (18 if notice else 0) + 16
    columns = y + legend_height(explained, _WIDTH - 2 * _MARGIN) + 22
    layout = lay_out(graph, columns + 16)
    title = f"What {owner(graph.user, graph.agent)} remembers, and where it comes from"
    picture = new_picture(_WIDTH, layout.bottom + _MARGIN, title, f"{told} {notice}".strip())
    _clips(picture, layout)
    tips(picture, kinds)
    picture.says("text", cut(line(title), (_WIDTH - 2 * _MARGIN) / _HEADING), class_="heading", x=_MARGIN, y=_TITLE)
    picture.says("text", cut(line(told), (_WIDTH - 2 * _MARGIN) / FONT), class_="dim", x=_MARGIN, y=_TOLD)
    if notice:
        picture.says("text", notice, class_="notice", x=_MARGIN, y=_TOLD + 18)
    draw_legend(picture, explained, _MARGIN, y, _WIDTH - 2 * _MARGIN)
    for column in _COLUMNS:
        picture.says("text", column.name, class_="column", x=column.x, y=columns)
    if layout.earlier is not None:
        picture.inside("line", class_="rule", x1=GONE.x, x2=LIVE.right, y1=layout.earlier, y2=layout.earlier)
        picture.says("text", "born before what is drawn ↑", class_="small", x=GONE.x, y=layout.earlier + 13)
    if not graph.nodes:
        picture.says("text", _NOTHING, class_="dim", x=_MARGIN, y=columns + 36)
    numbers = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = picture.inside("g", class_="edges")
    for edge in _drawn(graph, layout):
        draw_edge(lines, edge, layout, numbers)
    for node in graph.nodes:
        _node(picture, graph, layout.boxes[node.id], numbers[node.id])
    return written(picture)


def _told(graph: GraphData) -> str:
    def many(count: int, one: str) -> str:
        return f"{count:,} {one if count == 1 else one + 's'}"

    facts = [node for node in graph.nodes if isinstance(node, FactNode)]
    live = sum(fact.live for fact in facts)
    parts = [
        many(sum(isinstance(node, ThreadNode) for node in graph.nodes), "conversation"),
        many(sum(isinstance(node, UpdateNode) for node in graph.nodes), "update"),
        f"{many(live, 'fact')} in memory, {len(facts) - live:,} gone",
        f"about thread {graph.thread}" if graph.thread is not None else "",
        f"about {graph.fact}" if graph.fact is not None else "",
        f"since {graph.since}" if graph.since is not None else "",
        f"as of commit {graph.seq}",
    ]
    return "; ".join(filter(None, parts)) + "."


def _notice(graph: GraphData) -> str:
    left = graph.left_out
    if not left.updates:
        return ""
    which = "1 older update is" if left.updates == 1 else f"{left.updates:,} older updates are"
    beside = "" if not left.facts else f", and so {'is' if left.facts == 1 else 'are'} {left.facts:,} in memory now"
    return f"{which} left out{beside}: a higher limit shows more."


def _clips(picture: Ink, layout: Layout) -> None:
    """Keep every column's texts in the column, whatever the fonts."""
    definitions = picture.inside("defs")
    for number, column in enumerate(_COLUMNS):
        clip = definitions.inside("clipPath", id=f"column{number}")
        clip.inside("rect", x=column.x, y=0, width=column.width - 4, height=layout.bottom)


def _drawn(graph: GraphData, layout: Layout) -> Iterator[Edge]:
    """Leave out the lines of a section's earlier rewritings: it stands beside the last, and counts them."""
    for edge in graph.edges:
        node = layout.boxes[edge.target].node
        if edge.kind != "wrote" or (isinstance(node, SectionNode) and edge.seq == node.last):
            yield edge


# Boxes.


def _node(picture: Ink, graph: GraphData, box: Box, number: str) -> None:
    told = " ".join(["node", *_classes(box.node)])
    group = picture.inside("g", id=number, class_=told, tabindex="0", role="graphics-symbol img")
    group.says("title", _whole(graph, box.node))
    group.inside("rect", class_="box", x=box.column.x, y=box.y, width=box.column.width, height=box.height, rx=5)
    if not isinstance(box.node, ThreadNode):
        group.inside("rect", class_="stripe", x=box.column.x, y=box.y + 3, width=4, height=box.height - 6, rx=2)
    inner = group.inside("g", clip_path=f"url(#column{_COLUMNS.index(box.column)})")
    match box.node:
        case ThreadNode(thread=thread):
            told = cut(line(thread), (box.column.width - 20) / FONT)
            inner.says("text", told, class_="words", x=box.column.x + 12, y=box.y + 17)
        case UpdateNode():
            _update(inner, box, box.node)
        case FactNode():
            _fact(inner, box, box.node)
        case SectionNode():
            _section(inner, box, box.node)


def _name(ink: Ink, box: Box, text: str, *, less: float) -> None:
    """Write a name in bold, and leave room beside it."""
    told = cut(line(text), (box.column.width - 24 - less) / _BOLD)
    ink.says("text", told, class_="name", x=box.column.x + 12, y=box.y + 17)


def _update(ink: Ink, box: Box, node: UpdateNode) -> None:
    _name(ink, box, f"{node.seq} {node.title}", less=64)
    ink.says("text", day(node.at), class_="small end", x=box.column.right - 10, y=box.y + 17)
    refused = f"{sum(node.refused.values())} refused" if node.refused else ""
    room = (box.column.width - 24 - (58 if refused else 0)) / SMALL
    ink.says("text", cut(line(node.summary), room), class_="small", x=box.column.x + 12, y=box.y + 32)
    if refused:
        ink.says("text", refused, class_="refused", x=box.column.right - 10, y=box.y + 32)


def _fact(ink: Ink, box: Box, node: FactNode) -> None:
    for number, words in enumerate(box.lines):
        ink.says("text", words, class_="words", x=box.column.x + 12, y=box.y + 17 + 16 * number)
    if node.gone is not None:
        ink.says("text", tag(node), class_="tag", x=box.column.right - 10, y=box.y + 17)


def _section(ink: Ink, box: Box, node: SectionNode) -> None:
    name, *rest = box.lines
    _name(ink, box, name, less=96)
    times = "once" if node.written == 1 else f"{node.written:,} times"
    ink.says("text", f"written {times}", class_="small end", x=box.column.right - 10, y=box.y + 17)
    for words in rest:
        ink.says("text", words, class_="words", x=box.column.x + 12, y=box.y + 33)


def _classes(node: Node) -> Iterator[str]:
    """Name what a box is; content never makes the name of a class."""
    match node:
        case ThreadNode():
            yield "thread"
        case UpdateNode(cause=cause):
            yield "update"
            yield cause if cause in _CAUSES else "other"
        case FactNode(category=category):
            yield "fact"
            yield "live" if node.live else "gone"
            if node.erased:
                yield "erased"
            if category in CATEGORIES:
                yield str(category)
        case SectionNode(summary=summary, erased=erased):
            yield "section"
            if not summary:
                yield "erased" if erased else "gone"


# What a box says when it is asked: a line that names it, its words, the command that tells more.


def _whole(graph: GraphData, node: Node) -> str:
    match node:
        case ThreadNode(thread=thread):
            return "\n".join([f"thread {line(thread)}", "", command(graph.user, graph.agent, "turns", thread)])
        case UpdateNode():
            head = f"commit {node.seq}: {node.title}, {moment(node.at)}" + (f", by {node.by}" if node.by else "")
            rules = ", ".join(f"{count} {rule}" for rule, count in node.refused.items())
            body = node.summary + (f"\nrefused: {rules}" if rules else "")
            return "\n".join(
                [line(head), safe(body), command(graph.user, graph.agent, "diff", str(node.seq - 1), str(node.seq))]
            )
        case FactNode():
            told = safe(_words(node))  # before it is joined: what ends it must not run into the break that follows
            return "\n".join([line(_headline(node)), told, command(graph.user, graph.agent, "why", node.fact)])
        case SectionNode(section=section, summary=summary):
            told = safe(summary) or ("What it said was erased." if node.erased else "It is empty.")
            return "\n".join([f"section {line(section)}", told, command(graph.user, graph.agent, "show")])


def _headline(node: FactNode) -> str:
    told = [node.fact]
    if node.category is not None and node.confidence is not None:
        told += [node.category, f"{node.confidence:.2f}"]
    if node.by_hand:
        told.append("by hand")
    if node.live:
        told.append("in memory now")
    elif node.gone is not None:
        gone = node.gone
        into = f" into {gone.detail}" if gone.reason == "consolidated" and gone.detail else ""
        why = f" ({gone.note})" if gone.note else ""
        told.append(f"gone since commit {gone.seq}: {reason_in_words(node)}{into}{why}")
    return ", ".join(told)


def _words(node: FactNode) -> str:
    if node.content is not None:
        return node.content
    return "What it said was erased for good." if node.erased else "The updates drawn here do not tell what it said."
