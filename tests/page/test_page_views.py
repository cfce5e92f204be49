"""Each view of the page: fit for every screen, readable by machines that read aloud, quick to load."""

from __future__ import annotations

import pytest
from browsing import ADDRESSES, OpenOn
from npm import installed
from playwright.sync_api import expect
from serving import ThreadServer
from sizes import LONG

LIMIT = 150_000
"""Bytes of scripts, as the server sends them, that a view may load."""


@pytest.mark.parametrize("language", ["en-GB", pytest.param("zh-CN", marks=pytest.mark.torture)])
def test_no_view_scrolls_sideways_on_a_phone(open_on: OpenOn, told_story: ThreadServer, language: str) -> None:
    window = open_on(told_story, size=(360, 740), language=language)
    found = {}
    for name, address in ADDRESSES.items():
        window.go(address)
        found[name] = window.too_wide()
    assert {name: wide for name, wide in found.items() if wide} == {}


def test_a_view_that_breaks_says_so_and_comes_back(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    page = window.go("#/memory?user=ada")
    page.route("**/v1/timeline*", lambda route: route.fulfill(json={"buckets": None}))
    window.allow("TypeError")
    window.page.evaluate("location.hash = '#/timeline?user=ada'")
    alert = page.get_by_role("alert")
    expect(alert).to_be_visible()
    expect(page.get_by_role("navigation")).to_be_visible()
    page.unroute("**/v1/timeline*")
    alert.get_by_role("button").click()
    expect(alert).not_to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text(window.say("app", "timeline"))


AXE = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}"""


@pytest.mark.parametrize(
    ("dark", "language"),
    [
        pytest.param(False, "en-GB", id="light English"),
        pytest.param(True, "zh-CN", id="dark Chinese"),
        pytest.param(True, "en-GB", id="dark English", marks=pytest.mark.torture),
        pytest.param(False, "zh-CN", id="light Chinese", marks=pytest.mark.torture),
    ],
)
def test_axe_finds_nothing_serious(open_on: OpenOn, told_story: ThreadServer, dark: bool, language: str) -> None:
    axe = (installed("axe-core") / "axe.min.js").read_text(encoding="utf-8")
    window = open_on(told_story, dark=dark, language=language)
    found = {}
    for name, address in ADDRESSES.items():
        window.go(address)
        if not found:
            window.page.evaluate(axe)
        found[name] = window.page.evaluate(AXE)
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_axe_finds_what_is_serious(open_on: OpenOn, told_story: ThreadServer) -> None:
    axe = (installed("axe-core") / "axe.min.js").read_text(encoding="utf-8")
    window = open_on(told_story)
    page = window.go("#/memory?user=ada")
    page.evaluate(axe)
    page.evaluate("() => document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button>')")
    (problem,) = page.evaluate(AXE)
    assert problem.startswith("button-name")


SCRIPTS = """() => performance.getEntriesByType("resource")
  .map(({ name }) => new URL(name).pathname)
  .filter((name) => name.endsWith(".js"))"""


def test_a_view_loads_few_scripts(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    sizes: dict[str, int] = {}
    views = ("graph", "compare", *(("memory", "timeline", "operations", "why a fact") if LONG else ()))
    with told_story.client({"Accept-Encoding": "gzip"}) as client:
        for name in views:
            page = window.go(ADDRESSES[name])
            # What an earlier view has loaded is not counted.
            page.reload()
            window.settle()
            loaded = page.evaluate(SCRIPTS)
            for script in set(loaded) - set(sizes):
                with client.stream("GET", script) as answer:
                    sizes[script] = len(b"".join(answer.iter_raw()))
            assert 0 < sum(sizes[script] for script in loaded) <= LIMIT, name
