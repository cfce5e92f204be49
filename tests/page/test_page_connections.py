"""Connections of the page: many tabs, tabs that are not seen, connections that died in silence, tokens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from browsing import OpenOn, Window
from fakes import FakeClock
from hosting import Host
from playwright.sync_api import expect
from serving import ThreadServer, token

SHOW = """seen => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => !seen });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
MORE_THAN_A_BROWSER_CONNECTS = 7


def live(window: Window) -> str:
    return window.say("app", "live-live")


@pytest.mark.torture
def test_tabs_that_are_not_seen_leave_their_connections_to_others(open_on: OpenOn, told_story: ThreadServer) -> None:
    windows: list[Window] = []
    for _ in range(MORE_THAN_A_BROWSER_CONNECTS):
        window = open_on(told_story, beside=windows[0]) if windows else open_on(told_story, kept=False)
        window.go("#/memory?user=ada")
        expect(window.page.locator(".fact-list .fact").first).to_be_visible()
        expect(window.page.locator(".live")).to_have_text(live(window))
        window.page.evaluate(SHOW, False)
        windows.append(window)


def test_a_tab_that_is_seen_again_tells_what_it_missed(open_on: OpenOn, story: ThreadServer) -> None:
    window = open_on(story, kept=False)
    window.go("#/memory?user=ada")
    expect(window.page.locator(".live")).to_have_text(live(window))
    with window.page.expect_event("requestfailed", lambda asked: "/v1/events" in asked.url):
        # Its connection is free for other tabs.
        window.page.evaluate(SHOW, False)
    story.post("/v1/facts?user=ada", {"content": "Ada likes tea"})
    window.page.evaluate(SHOW, True)
    expect(window.page.locator(".fact-list .fact").filter(has_text="Ada likes tea")).to_be_visible()
    expect(window.page.locator(".live")).to_have_text(live(window))


def test_a_connection_that_carries_nothing_counts_as_lost(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    page = window.go("#/memory?user=ada")
    # The server sends something every 15 seconds.
    ended = page.evaluate(
        """async () => {
          const { stream } = await import("/page/lib/api.js");
          const { signal } = new AbortController();
          let begun = false;
          const onEvent = () => (begun = true);
          const params = { user: "ada" };
          return stream("/v1/events", { params, signal, silence: 300, onOpen: () => (begun = true), onEvent }).then(
            () => "ended",
            (error) => `${begun} ${error.name} ${error.status}`,
          );
        }"""
    )
    assert ended == "true Problem 0"


def test_what_can_be_no_token_is_said_to_be_wrong(
    open_on: OpenOn, host: Host, story_home: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(story_home, home)
    token(home, "reader", "ada", right="read")
    with host.serving(home, clock=FakeClock()) as server:
        window = open_on(server)
        window.allow("401")
        page = window.go()
        field = page.get_by_label(window.say("app", "tokenLabel"))
        field.fill("“quoted”")
        page.get_by_role("button", name=window.say("app", "signIn")).click()
        expect(page.get_by_role("alert")).to_contain_text(window.say("app", "tokenWrong"))
        expect(field).to_be_visible()
        window.close()


def test_an_address_with_an_inherited_name_shows_memory(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    for name in ("constructor", "toString", "__proto__"):
        page = window.go(f"#/{name}?user=ada")
        expect(page.locator(".fact-list .fact").first).to_be_visible()


def test_the_page_works_where_the_browser_keeps_nothing(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story, kept=False)
    window.page.add_init_script(
        'Object.defineProperty(window, "localStorage", { get() { throw new DOMException("no", "SecurityError"); } })'
    )
    page = window.go("#/memory?user=ada")
    expect(page.locator(".fact-list .fact").first).to_be_visible()
