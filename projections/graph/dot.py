"""Graphviz: an outline as a directed graph in DOT, from left to right.

Nodes are named n0, n1 … by their place; content is only ever inside a quoted label. In a label Graphviz reads escapes
that begin with a backslash and entities of HTML, so both characters are escaped, and the quote that would end it.
"""

from __future__ import annotations

from collections.abc import Iterator

from backstory.projections.graph.outline import Arrow, Look, Outline

DOT_BEGINS = "digraph backstory {"
"""First line of every graph, so that a file can be recognised."""

_LOOKS: dict[Look, str] = {
    "thread": 'shape=ellipse, fillcolor="#e8eef9", color="#5b7db8"',
    "update": 'shape=box, fillcolor="#f1f3f6", color="#7a8699"',
    "fact": 'shape=box, style="rounded,filled", fillcolor="#e6f4ea", color="#3f8f5d"',
    "gone": 'shape=box, style="rounded,filled,dashed", fillcolor="#f4f4f4", color="#8a8a8a", fontcolor="#5a5a5a"',
    "erased": 'shape=box, style="rounded,filled,dotted", fillcolor="#fbe9e7", color="#b42318", fontcolor="#8f1d13"',
    "section": 'shape=note, fillcolor="#fbf4dd", color="#a8842c"',
    "name": 'shape=ellipse, fillcolor="#e8eef9", color="#5b7db8"',
    "note": 'shape=plaintext, fillcolor="#ffffff", fontcolor="#5a5a5a"',
}
_PAST = 'style=dashed, color="#b5b5b5", fontcolor="#8a8a8a"'
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})


def dot_of(outline: Outline) -> str:
    """Write an outline in DOT."""
    return "\n".join(_statements(outline))


def _statements(outline: Outline) -> Iterator[str]:
    yield DOT_BEGINS
    yield f"  graph [rankdir=LR, labelloc=t, label={_label(outline.title)}]"
    yield '  node [style=filled, fontname="sans-serif", fontsize=11]'
    yield '  edge [color="#7a8699", fontcolor="#4a5568", fontname="sans-serif", fontsize=9]'
    for number, box in enumerate(outline.boxes):
        yield f"  n{number} [label={_label(box.lines)}, {_LOOKS[box.look]}]"
    for arrow in outline.arrows:
        yield f"  {_ends(arrow)} [{_attributes(arrow)}]"
    yield "}\n"


def _label(lines: tuple[str, ...]) -> str:
    return '"' + "\\n".join(line.translate(_ESCAPED) for line in lines) + '"'


def _ends(arrow: Arrow) -> str:
    first, second = (arrow.target, arrow.source) if arrow.back else (arrow.source, arrow.target)
    return f"n{first} -> n{second}"


def _attributes(arrow: Arrow) -> str:
    said = [f"label={_label((arrow.label,))}"]
    said += ["dir=back"] if arrow.back else []
    said += [_PAST] if arrow.past else []
    return ", ".join(said)
