"""Each view of the page: fit for every screen, readable by machines that read aloud, quick to load."""

from __future__ import annotations

import pytest
from browsing import ADDRESSES, OpenOn
from npm import installed
from serving import ThreadServer

LIMIT = 150_000
"""Bytes of scripts, as the server sends them, that a view may load."""


@pytest.mark.parametrize("language", ["en-GB", "zh-CN"])
def test_no_view_scrolls_sideways_on_a_phone(open_on: OpenOn, told_story: ThreadServer, language: str) -> None:
    window = open_on(told_story, size=(360, 740), language=language)
    found = {}
    for name, address in ADDRESSES.items():
        window.go(address)
        found[name] = window.too_wide()
    assert {name: wide for name, wide in found.items() if wide} == {}


AXE = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}"""


@pytest.mark.parametrize("language", ["en-GB", "zh-CN"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
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
  .filter(({ name }) => name.endsWith(".js"))
  .map(({ name, encodedBodySize }) => [new URL(name).pathname, encodedBodySize])"""


def test_a_view_loads_few_scripts(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story, kept=False)
    for name in ("memory", "timeline", "graph", "compare", "operations", "why a fact"):
        page = window.go(ADDRESSES[name])
        if name == "memory":
            # Each script counts, also one that an earlier view had loaded.
            page.context.new_cdp_session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.reload()
        window.settle()
        sizes = page.evaluate(SCRIPTS)
        assert all(size for _, size in sizes), (name, sizes)
        assert 0 < sum(size for _, size in sizes) <= LIMIT, (name, sizes)
