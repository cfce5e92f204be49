"""The graph in a browser: the file that opens offline, and the view of the page; by pointer and by keyboard."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from browsing import WEB, OpenOn, Window
from fakes import open_home
from playwright.sync_api import Browser, Locator, Page, Route, expect
from serving import ThreadServer
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.home import Backstory
from backstory.page import PAGE_BEGINS, graph_page
from backstory.page.bundle import linked
from backstory.projections.graph import Edge, FactNode, Graph, LeftOut, ThreadNode, UpdateNode

EVIL = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script><!--",
    "x" * 9_000,
    "مرحبا \u202eabc",
    "constructor",
    "__proto__",
    "a\"'`${1}\\\n\tb",
]


class Watched:
    """A tab that shows a file, and what goes wrong on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self._heard: dict[str, Callable[..., object]] = {
            "console": lambda said: self.wrong.append(said.text),
            "pageerror": lambda error: self.wrong.append(str(error)),
            "dialog": lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()),
            "request": lambda request: self.requests.append(request.url),
        }
        for event, hear in self._heard.items():
            page.on(event, hear)  # type: ignore[call-overload]

    def open(self, path: Path) -> Page:
        """Open a file, which must ask for nothing else."""
        self.page.goto(path.as_uri())
        expect(self.page.locator(".graph-frame")).to_be_visible()
        return self.page

    def done(self) -> None:
        """Check that nothing went wrong, and that a file asked for nothing."""
        assert self.wrong == []
        assert len(self.requests) == 1

    def close(self) -> None:
        """Hear nothing more."""
        for event, hear in self._heard.items():
            self.page.remove_listener(event, hear)


@pytest.fixture(scope="module")
def tabs() -> list[Page]:
    """The one tab of all files, once there is one."""
    return []


@pytest.fixture
def watched(browser: Browser, tabs: list[Page]) -> Iterator[Watched]:
    """A tab without a network."""
    if not tabs:
        tabs.append(browser.new_context(locale="en-GB", reduced_motion="reduce", offline=True).new_page())
    found = Watched(tabs[0])
    yield found
    found.close()


def node(page: Page, name: str) -> Locator:
    return page.locator(f'.graph-svg [data-id="{name}"]')


def details(page: Page) -> Locator:
    return page.locator(".graph-details")


def moved(page: Page) -> str:
    return str(page.evaluate("document.querySelector('.graph-svg > g').style.transform"))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of the demo's story, written by the command line."""
    folder = tmp_path_factory.mktemp("story")
    assert CliRunner().invoke(app, ["demo", "--keep", str(folder / "kept")]).exit_code == 0
    page = folder / "graph.html"
    words = ["--home", str(folder / "kept/home"), "--user", "ada", "graph", "--out", str(page)]
    assert CliRunner().invoke(app, words).exit_code == 0
    return page


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graphs of a home whose texts and names are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    with open_home(folder / "home") as bs:
        fill(bs)
        memory = bs.memory("ada; rm -rf $HOME")
        (folder / "graph.html").write_text(graph_page(memory.graph()), encoding="utf-8")
        (folder / "flow.html").write_text(graph_page(memory.message_flow()), encoding="utf-8")
    return folder


def fill(bs: Backstory) -> None:
    memory = bs.memory("ada; rm -rf $HOME")
    for text in EVIL:
        sent = {"sent_from": text[:200], "send_to": ["Bob"], "cause_by": text[:200]}
        memory.record(f"t {text[:100]}", [{"role": "user", "content": text, "id": "1", **sent}])
        memory.add_fact(text)


# The file.


@pytest.mark.slow
def test_the_storys_file_opens_offline_and_asks_for_nothing(watched: Watched, story: Path) -> None:
    page = watched.open(story)
    expect(page.locator(".graph-svg .node")).to_have_count(12)
    expect(page.locator("main")).to_contain_text("2 conversations, 4 updates, 3 facts in memory and 1 gone")
    expect(page.locator(".graph-legend")).to_contain_text("superseded by")
    watched.done()


@pytest.mark.slow
def test_a_click_shows_the_whole_text_the_command_and_the_path(watched: Watched, story: Path) -> None:
    page = watched.open(story)
    node(page, "fact:fact_2_0").click()
    expect(details(page)).to_contain_text("Ada is severely allergic to peanuts and carries an EpiPen")
    expect(details(page).locator("code")).to_have_text("backstory --user=ada why fact_2_0")
    expect(details(page)).to_contain_text("superseded by (no longer holds)")
    lit = page.locator(".graph-svg .node.lit").evaluate_all("nodes => nodes.map((node) => node.dataset.id).sort()")
    threads, updates = ["thread:friday", "thread:monday"], ["update:2", "update:3", "update:4"]
    assert lit == ["fact:fact_2_0", "fact:fact_3_0", *threads, *updates]
    page.locator(".graph-frame").click(position={"x": 5, "y": 5})
    expect(page.locator(".graph-svg .node.lit")).to_have_count(0)
    watched.done()


@pytest.mark.slow
def test_the_keyboard_alone_walks_moves_and_zooms(watched: Watched, story: Path) -> None:
    page = watched.open(story)
    page.locator(".graph-frame").focus()
    start = moved(page)
    for key in ("ArrowRight", "+", "-", "ArrowLeft"):
        before = moved(page)
        page.keyboard.press(key)
        page.wait_for_function(
            "before => document.querySelector('.graph-svg > g').style.transform !== before", arg=before
        )
    page.keyboard.press("0")
    page.wait_for_function("start => document.querySelector('.graph-svg > g').style.transform === start", arg=start)
    page.keyboard.press("Tab")
    expect(node(page, "thread:monday")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(node(page, "update:2")).to_be_focused()
    expect(details(page)).to_contain_text("Update 2")
    page.keyboard.press("ArrowDown")
    expect(node(page, "update:3")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(node(page, "thread:friday")).to_be_focused()
    page.keyboard.press("Enter")
    expect(details(page)).to_contain_text("Conversation friday")
    # One box is in the order of tabs: the last that had the focus.
    expect(page.locator('.graph-svg .node[tabindex="0"]')).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".graph-svg .node.chosen")).to_have_count(0)
    watched.done()


@pytest.mark.slow
def test_search_marks_what_has_the_text_and_enter_goes_there(watched: Watched, story: Path) -> None:
    page = watched.open(story)
    page.get_by_role("searchbox").fill("EPIPEN")
    expect(page.locator("output")).to_have_text("1 box")
    expect(page.locator(".graph-svg .node.lit")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(node(page, "fact:fact_2_0")).to_be_focused()
    watched.done()


@pytest.mark.slow
def test_what_is_hostile_is_text_in_boxes_lines_and_details(watched: Watched, hostile: Path) -> None:
    page = watched.open(hostile / "graph.html")
    for number, text in enumerate(EVIL, 2):
        node(page, f"fact:fact_{number}_0").dispatch_event("click", {"clientX": 0, "clientY": 0})
        shown = details(page).locator(".graph-full").text_content()
        assert shown == text.strip()
    assert page.evaluate("document.querySelectorAll('img, iframe, object, script[src]').length") == 0
    expect(details(page).locator("code")).to_have_text("backstory '--user=ada; rm -rf $HOME' why fact_8_0")
    # A text of 9,000 characters without a space widens nothing.
    node(page, "fact:fact_4_0").dispatch_event("click", {"clientX": 0, "clientY": 0})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rows = node(page, "fact:fact_4_0").locator("text").all_text_contents()
    assert rows[2].endswith("… ")
    boxes = page.evaluate(
        "[...document.querySelectorAll('.graph-svg .node')].map((node) => "
        "[node.getBBox().width, Number(node.querySelector('.box').getAttribute('width'))])"
    )
    assert all(whole <= box + 1 for whole, box in boxes)
    watched.done()


@pytest.mark.slow
def test_a_message_flow_has_its_names_and_causes(watched: Watched, hostile: Path) -> None:
    watched.page.set_viewport_size({"width": 360, "height": 640})
    watched.page.emulate_media(color_scheme="dark")
    page = watched.open(hostile / "flow.html")
    expect(page.locator(".graph-svg .node")).to_have_count(len(EVIL) + 1)
    node(page, "name:Bob").click()
    expect(details(page)).to_contain_text("1 × <img src=x onerror=alert(1)>")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    watched.done()


@pytest.mark.slow
def test_a_large_graph_is_laid_out_in_time_and_says_what_is_left_out(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "large.html").write_text(graph_page(large(200, 500)), encoding="utf-8")
    page = watched.open(tmp_path / "large.html")
    expect(page.locator(".graph-svg .node")).to_have_count(721)
    expect(page.get_by_role("note")).to_contain_text("40 older updates left out, and 12 present facts with them")
    places = page.evaluate(
        "[...document.querySelectorAll('.graph-svg .node')].map((node) => "
        "{ const { x, y, width, height } = node.getBoundingClientRect(); return [x, y, x + width, y + height]; })"
    )
    columns: dict[int, list[tuple[float, float]]] = {}
    for left, top, _, bottom in places:
        columns.setdefault(round(left), []).append((top, bottom))
    assert len(columns) == 4
    for column in columns.values():
        column.sort()
        assert all(above[1] < below[0] for above, below in pairwise(column))
    watched.done()


def large(updates: int, facts: int) -> Graph:
    threads = [ThreadNode(id=f"thread:{n}", thread=f"talk {n}") for n in range(1 + updates // 10)]
    made = [
        UpdateNode(id=f"update:{n}", seq=n, at="2026", cause="extraction", title="extraction", by="m", summary="s")
        for n in range(1, updates + 1)
    ]
    known = [
        FactNode(
            id=f"fact:{n}",
            fact=f"{n}",
            live=n % 3 > 0,
            content="word " * 30,
            category="goal",
            confidence=1,
            born=1 + n * updates // facts,
        )
        for n in range(facts)
    ]
    edges = [
        *(Edge(update.id, f"thread:{(update.seq - 1) // 10}", "learned-from", update.seq) for update in made),
        *(Edge(f"update:{fact.born}", fact.id, "added", fact.born or 0) for fact in known),
        *(Edge(known[n].id, known[n + 1].id, "superseded-by", n) for n in range(0, facts - 1, 3)),
    ]
    return Graph("ada", None, updates, (*threads, *made, *known), tuple(edges), LeftOut(40, 12))


# What the file is, without a browser.


def test_the_file_holds_its_parts_and_its_policy_allows_no_other(hostile: Path) -> None:
    written = (hostile / "graph.html").read_text(encoding="utf-8")
    assert written.startswith(PAGE_BEGINS)
    assert not re.search(r"(?:src|href)=\"", written.partition("<script")[0])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', written)
    assert policy
    digests = {
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in re.findall(r'<(?:script type="module"|style)>(.*?)</(?:script|style)>', written, re.DOTALL)
    }
    assert set(re.findall(r"'sha256-([^']+)'", policy[1])) == digests
    assert len(digests) == 2
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    data = re.search(r'<script type="application/json" id="graph">(.*?)</script>', written, re.DOTALL)
    assert data
    assert "<" not in data[1]
    assert msgspec.json.decode(data[1], type=Graph).user == "ada; rm -rf $HOME"
    assert len(written) < 250_000


def test_the_file_names_the_licences_of_its_libraries() -> None:
    written = graph_page(large(10, 10))
    for name in ("preact", "htm", "dagre", "panzoom"):
        assert (WEB / f"vendor/licenses/{name}.txt").read_text(encoding="utf-8").strip() in written


# The linker.


def module(folder: Path, name: str, source: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(source)


def test_modules_stand_in_the_order_in_which_they_need_each_other(tmp_path: Path) -> None:
    module(tmp_path, "a.js", 'import first, { two as zwei } from "./lib/b.js";\nconsole.log(first, zwei);\n')
    module(tmp_path, "lib/b.js", 'export { two } from "../c.js";\nexport default function () {}\n')
    module(tmp_path, "c.js", "export const two = 2;\nexport async function three() {}\nexport{two as zwei};\n")
    assert linked(tmp_path, "a.js").splitlines() == [
        '"use strict";',
        "const $m0 = (() => {",
        "const two = 2;",
        "async function three() {}",
        "return {zwei: two, two: two, three: three};",
        "})();",
        "const $m1 = (() => {",
        "const {two: $x0} = $m0;",
        "const $default = function () {}",
        "return {two: $x0, default: $default};",
        "})();",
        "const $m2 = (() => {",
        "const {two: zwei, default: first} = $m1;",
        "console.log(first, zwei);",
        "return {};",
        "})();",
    ]


@pytest.mark.parametrize(
    "source",
    ['import * as all from "./b.js";', 'export * from "./b.js";', 'import("./b.js");', "f(import.meta.url);"],
)
def test_a_form_that_cannot_be_linked_is_refused(tmp_path: Path, source: str) -> None:
    module(tmp_path, "a.js", source)
    module(tmp_path, "b.js", "export const b = 1;")
    with pytest.raises(ValueError, match=r"a\.js has an import or export that cannot be linked"):
        linked(tmp_path, "a.js")


def test_modules_in_a_circle_are_refused(tmp_path: Path) -> None:
    module(tmp_path, "a.js", 'import { b } from "./b.js";')
    module(tmp_path, "b.js", 'import { a } from "./a.js";')
    with pytest.raises(ValueError, match=r"a\.js imports itself by way of"):
        linked(tmp_path, "a.js")


# The view of the page, with graphs that stand here.


@pytest.fixture
def view(open_on: OpenOn, told_story: ThreadServer) -> Window:
    """A window on graphs that stand here."""
    window = open_on(told_story)
    flow = {"user": "ada", "agent": None, "turns": 1, "left_out": 0, "thread": None, "since": None}
    route = {"sender": "a", "receiver": None, "cause_by": None, "turns": 1, "first": "2026", "last": "2026"}
    answers = {
        "**/v1/graph?*": msgspec.json.encode(large(4, 6)),
        "**/v1/messages-graph?*": json.dumps({**flow, "routes": [route]}).encode(),
    }

    def answer(asked: Route, body: bytes) -> None:
        asked.fulfill(body=body, content_type="application/json")

    for path, body in answers.items():
        window.page.route(path, partial(answer, body=body))
    window.go("#/graph?user=ada")
    expect(window.page.locator(".graph-svg .node")).to_have_count(11)
    return window


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("fact:1", "#/why?user=ada&fact=1"),
        ("update:2", "#/timeline?user=ada&at=2"),
        ("thread:0", "#/graph?user=ada&thread=talk+0"),
    ],
)
def test_a_click_or_enter_opens_what_a_box_is_about(view: Window, name: str, to: str) -> None:
    # No server has these.
    view.allow("404")
    node(view.page, name).click()
    view.page.wait_for_url(f"**/{to}")
    view.page.go_back()
    node(view.page, name).focus()
    view.page.keyboard.press("Enter")
    view.page.wait_for_url(f"**/{to}")
    # The next test may have the same window: it must not hear an answer of this one.
    view.settle()


@pytest.mark.slow
def test_pointing_shows_the_details_and_a_drag_opens_nothing(view: Window) -> None:
    page = view.page
    node(page, "fact:1").hover()
    expect(details(page)).to_contain_text("Fact 1")
    expect(details(page).get_by_role("link")).to_have_attribute("href", "#/why?user=ada&fact=1")
    before = moved(page)
    page.mouse.down()
    page.mouse.move(600, 500, steps=4)
    page.mouse.up()
    assert moved(page) != before
    assert page.url.endswith("#/graph?user=ada")


@pytest.mark.slow
def test_neither_the_wheel_nor_a_drag_loses_the_picture(view: Window) -> None:
    page = view.page
    start = moved(page)
    frame = page.locator(".graph-frame").bounding_box()
    assert frame is not None
    page.mouse.move(frame["x"] + 8, frame["y"] + 8)
    page.mouse.wheel(0, 200)
    page.wait_for_function("() => scrollY > 0")
    assert moved(page) == start
    page.evaluate("scrollTo(0, 0)")
    for _ in range(3):
        page.mouse.move(frame["x"] + 8, frame["y"] + frame["height"] - 8)
        page.mouse.down()
        page.mouse.move(frame["x"] + frame["width"] - 8, frame["y"] + 8, steps=4)
        page.mouse.up()
    expect(page.locator(".graph-svg .node").last).to_be_attached()
    page.wait_for_function(
        """() => {
          const frame = document.querySelector(".graph-frame").getBoundingClientRect();
          return [...document.querySelectorAll(".graph-svg .node")].some((node) => {
            const { left, right, top, bottom } = node.getBoundingClientRect();
            return left >= frame.left && right <= frame.right && top >= frame.top && bottom <= frame.bottom;
          });
        }"""
    )
    assert moved(page) != start


@pytest.mark.slow
def test_no_label_of_a_line_stands_on_another(view: Window) -> None:
    covered = view.page.evaluate(
        """() => {
          const labels = [...document.querySelectorAll(".graph-svg .label")];
          const boxes = labels.map((label) => label.getBoundingClientRect());
          const meets = (a, b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
          const pairs = boxes.flatMap((a, n) => boxes.slice(n + 1).filter((b) => meets(a, b)));
          return [labels.length, pairs.length];
        }"""
    )
    assert covered[0] > 0
    assert covered[1] == 0


@pytest.mark.slow
def test_the_way_back_from_what_a_box_opens_leads_to_the_graph(view: Window) -> None:
    page = view.page
    view.go("#/graph?user=ada&limit=50")
    view.allow("404")
    node(page, "fact:1").click()
    page.get_by_role("link", name="Back to the graph").click()
    page.wait_for_url("**/#/graph?user=ada&limit=50")


@pytest.mark.slow
def test_the_address_narrows_and_the_switch_shows_messages(view: Window) -> None:
    page = view.page
    with page.expect_request("**/v1/graph?user=ada&thread=t&since=3&limit=50"):
        view.go("#/graph?user=ada&thread=t&since=3&limit=50")
    expect(page.get_by_text("Only conversation t")).to_be_visible()
    with page.expect_request("**/v1/messages-graph?user=ada&thread=t&limit=50"):
        page.get_by_role("link", name="Messages").click()
    expect(page.locator(".graph-svg .node")).to_have_count(2)
