"""Places: Back shows what the reader left, where they left it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browsing import OpenOn, Window
from fakes import FakeClock, open_home
from hosting import Host
from playwright.sync_api import expect
from serving import ThreadServer

LONG = "She bakes bread on Mondays, and rolls on Tuesdays. " * 10
SCROLLED = """async () => {
  for (let n = 0; n < 200 && scrollY === 0; n += 1) await new Promise(requestAnimationFrame);
  return scrollY;
}"""
TOP = "(list) => list.scrollTop"


@pytest.fixture(scope="module")
def many(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    """A memory of 430 facts, a long section, and an update for each of 60 facts more."""
    home = tmp_path_factory.mktemp("many")
    with open_home(home, clock=FakeClock(), max_facts=500) as backstory:
        memory = backstory.memory(user_id="ada")
        facts = [
            {"content": f"Ada knows number {n:04}", "category": "knowledge", "confidence": 0.9} for n in range(430)
        ]
        section = {"summary": LONG.strip(), "updatedAt": "2026-03-01T00:00:00Z"}
        memory.import_document({"facts": facts, "user": {"workContext": section}})
        for n in range(60):
            memory.add_fact(f"Ada likes number {n:04}")
    with host.serving(home, clock=FakeClock(), max_facts=500) as server:
        yield server


@pytest.fixture
def window(open_on: OpenOn, many: ThreadServer) -> Window:
    return open_on(many)


def test_back_finds_the_list_and_the_page_where_they_were_and_what_was_open(window: Window) -> None:
    page = window.go("#/memory?user=ada&sort=content")
    page.locator(".section").get_by_role("button").click()
    page.evaluate("scrollTo(0, 120)")
    listed = page.locator(".fact-list")
    listed.evaluate("(list) => list.scrollTo(0, 9000)")
    link = page.get_by_role("link", name="Ada knows number 0255 Why?")
    link.evaluate("(link) => link.click()")
    expect(page.locator(".why")).to_be_visible()
    window.settle()
    assert page.evaluate("scrollY") == 0
    page.go_back()
    window.settle()
    expect(link).to_be_visible()
    assert page.evaluate(SCROLLED) == 120
    assert listed.evaluate(TOP) == 9000
    expect(page.locator(".section").get_by_role("button")).to_have_attribute("aria-expanded", "true")


def test_the_link_back_leads_to_the_filtered_list_where_it_was(window: Window) -> None:
    page = window.go("#/memory?user=ada&sort=content&category=knowledge")
    page.locator(".fact-list").evaluate("(list) => list.scrollTo(0, 7200)")
    page.get_by_role("link", name="Ada knows number 0205 Why?").evaluate("(link) => link.click()")
    page.locator(".why-back a").click()
    window.settle()
    assert "category=knowledge" in page.url
    assert page.locator(".fact-list").evaluate(TOP) == 7200
    # Another address begins at its top.
    window.go("#/memory?user=ada&sort=content-down")
    assert page.locator(".fact-list").evaluate(TOP) == 0


OUTSIDE = """async (most) => {
  const frame = document.querySelector(".graph-frame");
  const outside = () => {
    const { left, right, top, bottom } = frame.getBoundingClientRect();
    return [...frame.querySelectorAll(".node")].map((node) => node.getBoundingClientRect()).filter(
      (box) => box.left < left - 1 || box.right > right + 1 || box.top < top - 1 || box.bottom > bottom + 1
    ).length;
  };
  for (let n = 0; n < 200 && outside() > most; n += 1) await new Promise(requestAnimationFrame);
  return outside();
}"""
"""How many boxes cannot be seen; it waits until that are no more than `most`."""


def test_show_all_of_a_long_graph_shows_all_and_back_finds_the_box_that_was_looked_at(window: Window) -> None:
    page = window.go("#/graph?user=ada&limit=500")
    frame = page.locator(".graph-frame")
    assert frame.locator(".node").count() > 500
    assert page.evaluate(OUTSIDE, 1000) > 0
    page.get_by_role("button", name=window.say("components/graph", "whole")).click()
    assert page.evaluate(OUTSIDE, 0) == 0
    node = page.get_by_role("button", name="Ada likes number 0059")
    node.focus()
    page.keyboard.press("Space")
    scale = frame.locator("svg > g").get_attribute("style")
    page.keyboard.press("Enter")
    expect(page.locator(".why")).to_be_visible()
    page.go_back()
    window.settle()
    expect(page.locator(".graph-details h2")).to_be_visible()
    assert frame.locator("svg > g").get_attribute("style") == scale
