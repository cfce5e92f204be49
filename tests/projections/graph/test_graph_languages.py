"""Graphs for other programs: what the labels say, and that content is only ever inside them."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sizes import cannot

from backstory.projections.graph import (
    DOT_BEGINS,
    MERMAID_BEGINS,
    Edge,
    FactNode,
    Graph,
    LeftOut,
    MessageFlow,
    Route,
    SectionNode,
    ThreadNode,
    UpdateNode,
)
from backstory.projections.graph.model import Node
from backstory.projections.graph.outline import CUT, LINE, LOOKS, line, message_outline_of, outline_of, wrapped
from backstory.projections.history.audit import Removed

SVG = "{http://www.w3.org/2000/svg}"

EVIL = [
    "</svg><script>alert(1)</script>\"'&amp;]]>",
    "<img src=x onerror=alert(1)>",
    "\x00\x1b[31m\x7f\x9b\ufffe\uffff\ud800",
    "a\u202eb\u2066c\u200fd",
    "line\r\none\u2028two\rthree\\nfour\\",
    'x"]; n99 [label="owned"',
    'x"]:::y\n  n99["owned',
    "}; n0 -> n1 { #quot; #35; %% --> ---",
    "`1. list` **b** $$x^2$$ fa:fa-car \\N \\G \\l",
    "style x:#35; classDef y:#z; click n0 end",
    "- item",
    "emoji 👩‍👩 用户 \u0301 مرحبا",
    "x" * 10_000,
    "x " * 5_000,
    "\u0301" * 2000,
    "",
]
texts = st.one_of(st.sampled_from(EVIL), st.text(max_size=60), st.text(max_size=600))


def a_graph(text: str, other: str) -> Graph:
    gone = Removed(2, text, other, text, other, text)
    nodes = (
        ThreadNode(id=f"thread:{text}", thread=text),
        UpdateNode(id="update:2", seq=2, at=text, cause=other, title=text, by=other, summary=text, refused={other: 2}),
        FactNode(id=f"fact:{text}", fact=text, live=True, content=other, category=text, confidence=0.5, born=2),
        FactNode(id=f"fact:x{other}", fact=other, live=False, content=text, category="goal", confidence=1, gone=gone),
        SectionNode(id=f"section:{other}", section=other, summary=f"s{text}", written=2, last=2),
    )
    edges = (
        Edge("update:2", nodes[0].id, "learned-from", 2),
        Edge("update:2", nodes[2].id, "added", 2, text),
        Edge("update:2", nodes[3].id, "removed", 2, other),
        Edge(nodes[3].id, nodes[2].id, "superseded-by", 2, other),
        Edge("update:2", nodes[4].id, "wrote", 2),
    )
    return Graph(text, other, 2, nodes, edges, LeftOut(1, 2), text, other, text)


def a_flow(text: str, other: str) -> MessageFlow:
    return MessageFlow(
        text, other, 3, (Route(f"a{text}", f"b{other}", text, 2, other, text), Route(other, None, None, 1, "", "")), 4
    )


# What is written.


def graph_with(*nodes: Node, edges: tuple[Edge, ...] = ()) -> Graph:
    return Graph("ada", None, 3, nodes, edges)


def labels(dot: str) -> list[str]:
    return re.findall(r'^  n\d+ \[label="((?:[^"\\]|\\.)*)"', dot, re.MULTILINE)


FACT = FactNode(id="fact:f", fact="f", live=True, content="Ada runs", category="goal", confidence=0.9, born=2)
UPDATE = UpdateNode(
    id="update:2", seq=2, at="2026-03-01T12:00:00Z", cause="manual", title="by hand", by="", summary="s"
)


def test_a_box_has_what_matters_of_its_node() -> None:
    gone = Removed(3, "", "consolidated", detail="g")
    nodes = (
        ThreadNode(id="thread:t", thread="t"),
        UpdateNode(
            id="update:2", seq=2, at="2026-03-01T12:00:00Z", cause="extraction", title="extraction", by="m",
            summary="1 added", refused={"threshold": 1, "cap": 2},
        ),
        FACT,
        FactNode(id="fact:o", fact="o", live=False, content="old", category="goal", confidence=1, gone=gone),
        FactNode(id="fact:e", fact="e", live=False, gone=Removed(3, "", "erased")),
        FactNode(id="fact:u", fact="u", live=False),
        SectionNode(id="section:s", section="s", summary="", written=1, last=2),
    )  # fmt: skip
    assert labels(graph_with(*nodes).dot()) == [
        "thread t",
        "2 extraction\\n1 added\\n3 refused\\n2026-03-01 12:00",
        "Ada runs\\nf, goal, 0.90",
        "old\\no, goal, 1.00, merged at 3",
        "erased for good\\ne, erased at 3",
        "not in these updates\\nu",
        "section s\\nempty",
    ]


def test_an_edge_says_its_kind_and_the_thread_stands_before_the_update() -> None:
    thread = ThreadNode(id="thread:t", thread="t")
    edges = (Edge("update:2", "thread:t", "learned-from", 2), Edge("update:2", "fact:f", "revised", 2, "edited"))
    graph = graph_with(thread, UPDATE, FACT, edges=edges)
    assert '  n0 -> n1 [label="learned from", dir=back]' in graph.dot().splitlines()
    assert '  n1 -> n2 [label="revised: edited"]' in graph.dot().splitlines()
    assert '  n0 ---|"learned from"| n1' in graph.mermaid().splitlines()
    assert '  n1 -->|"revised#58;#8288; edited"| n2' in graph.mermaid().splitlines()


def test_what_no_longer_holds_is_dashed() -> None:
    back = FactNode(id="fact:o", fact="o", live=True, content="old", category="goal", confidence=1)
    edges = (Edge("update:2", "fact:o", "removed", 2, "model"), Edge("fact:o", "fact:f", "superseded-by", 2))
    graph = graph_with(UPDATE, FACT, back, edges=edges)
    assert graph.dot().count("style=dashed") == 2
    assert graph.mermaid().count("-.->") == 2
    later = FactNode(id="fact:o", fact="o", live=False, content="old", gone=Removed(3, "", "hand"))
    assert graph_with(UPDATE, FACT, later, edges=edges).dot().count("style=dashed") == 2
    gone = FactNode(id="fact:o", fact="o", live=False, content="old", gone=Removed(2, "", "model"))
    graph = graph_with(UPDATE, FACT, gone, edges=edges)
    assert "style=dashed" not in graph.dot()
    assert "-.->" not in graph.mermaid()


def test_only_a_sections_last_rewriting_is_an_arrow() -> None:
    section = SectionNode(id="section:s", section="s", summary="new", written=2, last=2)
    edges = (Edge("update:1", "section:s", "wrote", 1), Edge("update:2", "section:s", "wrote", 2))
    first = UpdateNode(id="update:1", seq=1, at="", cause="manual", title="t", by="", summary="s")
    outline = outline_of(graph_with(first, UPDATE, section, edges=edges))
    assert [(arrow.source, arrow.target) for arrow in outline.arrows] == [(1, 2)]


def test_messages_have_a_box_for_each_name_and_an_arrow_for_each_route() -> None:
    routes = (
        Route("Alice", "Bob", "team.actions.WritePRD", 3, "", ""),
        Route("Bob", None, None, 1, "", ""),
        Route("everybody", "everybody", "odd.", 1000, "", ""),
    )
    flow = MessageFlow("ada", None, 4, routes)
    assert labels(flow.dot()) == ["Alice", "Bob", "everybody", "everybody"]
    assert [(arrow.source, arrow.target, arrow.label) for arrow in message_outline_of(flow).arrows] == [
        (0, 1, "3 × WritePRD"),
        (1, 2, "1 turn"),
        (3, 3, "1,000 × odd."),
    ]
    assert "left out" not in flow.mermaid()


def test_nothing_is_a_graph_of_its_title_alone() -> None:
    empty = Graph(None, None, 0, (), ())
    assert 'label="What the global memory remembers, as of commit 0"' in empty.dot()
    assert "What the global memory remembers, as of commit 0" in empty.mermaid()
    assert "n0 [" not in empty.dot()


# Content is text.

LABEL = r'"(?:[^"\\\n]|\\["\\n])*"'
DOT_LINE = re.compile(
    rf"  (?:graph \[rankdir=LR, labelloc=t, label={LABEL}\]"
    r'|(?:node|edge) \[[a-z0-9#"=, -]+\]'
    rf'|n\d+ \[label={LABEL}, shape=[a-z]+(?:, [a-z]+="[a-z0-9,#]+")*\]'
    rf'|n\d+ -> n\d+ \[label={LABEL}(?:, dir=back)?(?:, style=dashed, color="#b5b5b5", fontcolor="#8a8a8a")?\])'
)
SPELLED = r'"(?:[^\W_]|[ ,]|#\d+;|<br/>)*"'
MERMAID_LINE = re.compile(
    rf"  (?:n\d+(?:\[{SPELLED}\]|\({SPELLED}\)|\(\[{SPELLED}\]\)|\[/{SPELLED}/\])"
    rf"|n\d+ (?:-->|-\.->|---)\|{SPELLED}\| n\d+"
    r"|classDef [a-z]+ [a-z0-9:#, -]+"
    rf"|class n\d+(?:,n\d+)* (?:{'|'.join(LOOKS)}))"
)
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@given(text=texts, other=texts)
@example(text=EVIL[0], other=EVIL[5])
@example(text=EVIL[2], other=EVIL[3])
@example(text=EVIL[5], other=EVIL[6])
@example(text=EVIL[4], other=EVIL[12])
def test_every_line_is_of_the_language_whatever_the_content(text: str, other: str) -> None:
    for drawn in (a_graph(text, other), a_flow(text, other)):
        first, *rest, last, end = drawn.dot().split("\n")
        assert (first, last, end) == (DOT_BEGINS, "}", "")
        assert all(DOT_LINE.fullmatch(said) for said in rest), rest
        first, second, *rest, end = drawn.mermaid().split("\n")
        assert (first, second, end) == (MERMAID_BEGINS, "flowchart LR", "")
        assert all(MERMAID_LINE.fullmatch(said) for said in rest), rest
        for written in (drawn.dot(), drawn.mermaid()):
            assert not STEERING.search(written)
            assert len(written) < 20_000


@given(text=texts, other=texts)
def test_no_name_of_a_node_comes_from_content(text: str, other: str) -> None:
    def skeleton(written: str) -> str:
        return re.sub('"[^"]*"', "", written.replace('\\"', ""))

    plain = a_graph("plain", "other")
    assert skeleton(a_graph(text, other).dot().replace("\\\\", "")) == skeleton(plain.dot())
    assert skeleton(a_graph(text, other).mermaid()) == skeleton(plain.mermaid())


@given(text=texts, other=texts)
def test_a_label_gives_back_the_line(text: str, other: str) -> None:
    graph = a_graph(text, other)
    boxes = [box.lines for box in outline_of(graph).boxes]

    def plain(label: str) -> tuple[str, ...]:
        parts = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], label)
        return tuple(map(html.unescape, parts.split("\n")))

    assert [plain(label) for label in labels(graph.dot())] == boxes
    spelled = re.findall(r'^  n\d+[(\[/]+"(.*)"', graph.mermaid(), re.MULTILINE)[: len(boxes)]

    def read(label: str) -> tuple[str, ...]:
        numbers = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label.replace("<br/>", "\n"))
        return tuple(numbers.replace("\u2060", "").split("\n"))

    assert [read(label) for label in spelled] == [
        tuple(said.replace("\u2060", "") for said in lines) for lines in boxes
    ]


def read_texts(group: ET.Element) -> list[str]:
    return [(said.text or "").replace("\xa0", " ").strip() for said in group.iter(f"{SVG}text")]


@pytest.mark.slow
def test_graphviz_reads_each_label_as_it_was_meant() -> None:
    program = shutil.which("dot")
    if program is None:
        cannot("there is no Graphviz")
    for text, other in pairwise(EVIL):
        graph = a_graph(text, other)
        svg = subprocess.run([program or "", "-Tsvg"], input=graph.dot().encode(), capture_output=True, check=True)
        assert svg.stderr == b""
        groups = [group for group in ET.fromstring(svg.stdout).iter(f"{SVG}g") if group.get("class") == "node"]  # noqa: S314
        shown = {group.findtext(f"{SVG}title"): read_texts(group) for group in groups}
        assert shown == {
            f"n{number}": [said.strip() for said in box.lines] for number, box in enumerate(outline_of(graph).boxes)
        }


# Words.


@given(text=texts, lines=st.integers(1, 4))
def test_what_is_wrapped_fits_in_its_lines_and_loses_nothing_but_its_end(text: str, lines: int) -> None:
    told = wrapped(text, lines)
    assert len(told) <= lines
    assert all(len(part) <= LINE for part in told)
    joined = "".join(told).replace(" ", "")
    whole = line(text).replace(" ", "")
    assert joined == whole or (joined.endswith(CUT) and whole.startswith(joined[:-1]))


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert wrapped("用" * 10_000, 2) == ("用" * LINE, "用" * (LINE - 1) + CUT)
    assert wrapped("word " * 3000)[0].endswith(CUT)
    assert wrapped("") == ()
