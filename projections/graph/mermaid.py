"""Mermaid: an outline as a flowchart, from left to right.

Nodes are named n0, n1 … by their place; content is only ever inside a quoted label. In a label everything but letters,
digits, commas and spaces is spelled by its number (`#34;`), for Mermaid reads quotes, HTML, Markdown, formulas and
names of icons there.
"""

from __future__ import annotations

from collections.abc import Iterator

from backstory.projections.graph.outline import LOOKS, Arrow, Box, Look, Outline

MERMAID_BEGINS = "%% memory of backstory"
"""First line of every flowchart, a comment, so that a file can be recognised."""

_SHAPES: dict[Look, tuple[str, str]] = {
    "thread": ("([", "])"),
    "update": ("[", "]"),
    "fact": ("(", ")"),
    "gone": ("(", ")"),
    "erased": ("(", ")"),
    "section": ("[/", "/]"),
    "name": ("([", "])"),
    "note": ("[", "]"),
}
_STYLES: dict[Look, str] = {
    "thread": "fill:#e8eef9,stroke:#5b7db8,color:#1f2430",
    "update": "fill:#f1f3f6,stroke:#7a8699,color:#1f2430",
    "fact": "fill:#e6f4ea,stroke:#3f8f5d,color:#1f2430",
    "gone": "fill:#f4f4f4,stroke:#8a8a8a,color:#5a5a5a,stroke-dasharray:5 3",
    "erased": "fill:#fbe9e7,stroke:#b42318,color:#8f1d13,stroke-dasharray:2 3",
    "section": "fill:#fbf4dd,stroke:#a8842c,color:#1f2430",
    "name": "fill:#e8eef9,stroke:#5b7db8,color:#1f2430",
    "note": "fill:#ffffff,stroke:#b5b5b5,color:#5a5a5a",
}

_PARTED = frozenset("\\$:")


def mermaid_of(outline: Outline) -> str:
    """Write an outline as a flowchart."""
    return "\n".join(_statements(outline))


def _statements(outline: Outline) -> Iterator[str]:
    yield MERMAID_BEGINS
    yield "flowchart LR"
    boxes = (*outline.boxes, Box("note", outline.title))
    for number, box in enumerate(boxes):
        opening, closing = _SHAPES[box.look]
        yield f'  n{number}{opening}"{_label(box.lines)}"{closing}'
    for arrow in outline.arrows:
        yield f"  {_link(arrow)}"
    for look in LOOKS:
        members = [f"n{number}" for number, box in enumerate(boxes) if box.look == look]
        if members:
            yield f"  classDef {look} {_STYLES[look]}"
            yield f"  class {','.join(members)} {look}"
    yield ""


def _label(lines: tuple[str, ...]) -> str:
    return "<br/>".join("".join(map(_spelled, line)) for line in lines)


def _spelled(char: str) -> str:
    if char.isalnum() or char in " ,":
        return char
    # A backslash with n, two dollars and names of icons are read after the numbers are: a word joiner parts them.
    return f"#{ord(char)};#8288;" if char in _PARTED else f"#{ord(char)};"


def _link(arrow: Arrow) -> str:
    # No arrowhead of Mermaid points backwards alone, so an edge whose target stands first is a plain line.
    if arrow.back:
        return f'n{arrow.target} ---|"{_label((arrow.label,))}"| n{arrow.source}'
    line = "-.->" if arrow.past else "-->"
    return f'n{arrow.source} {line}|"{_label((arrow.label,))}"| n{arrow.target}'
