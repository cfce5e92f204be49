"""Changes that the page did not make: by another tab, by a program, while the server was away; and rights."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browsing import ADDRESSES, OpenOn, Window
from fakes import FakeClock
from hosting import Host
from playwright.sync_api import expect
from serving import ThreadServer, thread_server, token

TRUE_FACT = "Ada is severely allergic to peanuts and carries an EpiPen"
WRONG_FACT = "Ada is no longer allergic to peanuts"


def facts(window: Window) -> list[str]:
    """What the memory view lists."""
    return window.page.locator(".fact-list .fact-text").all_inner_texts()


def test_a_change_in_one_tab_appears_in_the_other(open_on: OpenOn, story: ThreadServer) -> None:
    one = open_on(story)
    one.go("#/memory?user=ada")
    other = open_on(story, beside=one)
    other.go("#/why?user=ada&fact=fact_3_0")
    page = other.page
    page.get_by_role("button", name=other.say("views/why", "undo"), exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name=other.say("components/undo", "undo"), exact=True).click()
    expect(page.locator(".done-line")).to_be_visible()
    expect(one.page.locator(".fact-list .fact").filter(has_text=TRUE_FACT)).to_be_visible()
    expect(one.page.locator(".fact-list .fact").filter(has_text=WRONG_FACT)).to_have_count(0)
    expect(one.page.get_by_text(one.say("components/commit", "justNow"))).to_be_visible()


def test_a_tab_is_not_told_of_what_it_did_itself(open_on: OpenOn, story: ThreadServer) -> None:
    window = open_on(story)
    page = window.go("#/timeline?user=ada")
    expect(page.locator(".live-live")).to_be_visible()
    page.locator(".moment-head").get_by_role("button", name="Undo this update…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=window.say("components/undo", "undo"), exact=True).click()
    expect(page.locator(".commit").first).to_have_attribute("data-seq", "4")
    expect(dialog.locator(".done-line")).to_be_visible()
    expect(page.locator(".live-banner .card")).to_have_count(0)
    page.keyboard.press("Escape")
    story.post("/v1/facts?user=ada", {"content": "Ada likes tea"}).raise_for_status()
    banner = page.locator(".live-banner .card")
    expect(banner).to_contain_text("Ada likes tea")
    # The one before it was this tab's own.
    expect(banner).not_to_contain_text("since you looked")


def test_a_preview_that_another_tab_made_old_is_not_carried_out(open_on: OpenOn, story: ThreadServer) -> None:
    window = open_on(story)
    window.allow("412")
    page = window.go("#/why?user=ada&fact=fact_3_0")
    page.get_by_role("button", name=window.say("views/why", "undo"), exact=True).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".is-added").first).to_contain_text(TRUE_FACT)
    # The page does not hear of the other change before it asks.
    page.route("**/v1/events*", lambda route: route.abort("aborted"))
    story.post("/v1/facts?user=ada", {"content": "Ada likes tea"})
    dialog.get_by_role("button", name=window.say("components/undo", "undo"), exact=True).click()
    window.settle()
    items = story.get("/v1/log?user=ada").json()["items"]
    expect(dialog).to_be_visible()
    # Whichever came first: the news, after which the preview is made again, or the answer that it is too old.
    assert [item["cause"]["kind"] for item in items[:2]] in (["manual", "extraction"], ["revert", "manual"])


def test_a_server_that_is_started_again_is_found_again(open_on: OpenOn, story_home: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(story_home, home)
    with thread_server(home, clock=FakeClock()) as server:
        window = open_on(server)
        page = window.go("#/memory?user=ada")
        expect(page.locator(".live-live")).to_be_visible()
        port = urlsplit(server.url).port
    window.allow(
        "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"
    )
    expect(page.locator(".live-lost")).to_have_text(window.say("app", "live-lost"))
    page.get_by_role("link", name=window.say("app", "timeline"), exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text(window.say("components/common", "unreachable"))
    with thread_server(home, clock=FakeClock(), port=port) as server:
        expect(page.locator(".live-live")).to_be_visible(timeout=30_000)
        # What could not be loaded is asked for again, without a click.
        expect(page.locator(".commit-list .commit")).to_have_count(3)
        expect(page.locator(".moment-list .fact").first).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        page.get_by_role("link", name=window.say("app", "memory"), exact=True).click()
        expect(page.locator(".fact-list .fact").filter(has_text=WRONG_FACT)).to_be_visible()
        server.post("/v1/facts?user=ada", {"content": "Ada likes tea"})
        expect(page.locator(".fact-list .fact").filter(has_text="Ada likes tea")).to_be_visible()
        page.close()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("#/memory?user=ada", ".fact-list .fact"),
        ("#/memory?user=ada&q=peanuts", ".hit-list li"),
        ("#/timeline?user=ada&fact=fact_3_0", ".commit-list .commit"),
    ],
)
def test_a_view_that_is_opened_while_the_server_is_down_comes_by_itself(
    open_on: OpenOn, story_home: Path, tmp_path: Path, address: str, shown: str
) -> None:
    shutil.copytree(story_home, tmp_path / "home")
    with thread_server(tmp_path / "home", clock=FakeClock()) as server:
        window = open_on(server)
        page = window.go(address)
        window.go("#/operations?user=ada")
        port = urlsplit(server.url).port
    window.allow("ERR_")
    page.evaluate("(hash) => { location.hash = hash }", address)
    expect(page.get_by_role("alert").first).to_contain_text(window.say("components/common", "unreachable"))
    with thread_server(tmp_path / "home", clock=FakeClock(), port=port):
        expect(page.locator(shown).first).to_be_visible(timeout=30_000)
        expect(page.get_by_role("alert")).to_have_count(0)
        page.close()


@pytest.fixture
def guarded(story_home: Path, tmp_path: Path) -> tuple[Path, str, str]:
    """A home with a token that may do all and one that may read."""
    shutil.copytree(story_home, tmp_path / "home")
    made = [
        token(tmp_path / "home", name, "ada", right=right) for name, right in (("all", "erase"), ("reader", "read"))
    ]
    all_, reader = (header["Authorization"].removeprefix("Bearer ") for header in made)
    return tmp_path / "home", all_, reader


def test_a_person_signs_in_and_out(open_on: OpenOn, host: Host, guarded: tuple[Path, str, str]) -> None:
    home, right, _ = guarded
    with host.serving(home, clock=FakeClock()) as server:
        window = open_on(server)
        window.allow("401")
        page = window.go()
        field = page.get_by_label(window.say("app", "tokenLabel"))
        expect(field).to_be_visible()
        field.fill("wrong")
        field.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text(window.say("app", "tokenWrong"))
        field.fill(right)
        page.get_by_role("button", name=window.say("app", "signIn"), exact=True).click()
        expect(page.locator(".fact-list .fact").filter(has_text=WRONG_FACT)).to_be_visible()
        expect(page.locator(".live-live")).to_be_visible()
        # The token goes into headers alone, and stays with this tab.
        assert not [url for url in window.requests if right in url]
        assert right not in page.url
        assert page.evaluate("() => JSON.stringify(localStorage)").find(right) == -1
        page.reload()
        expect(page.locator(".fact-list .fact").first).to_be_visible()
        page.get_by_role("button", name=window.say("app", "signOut"), exact=True).click()
        expect(field).to_be_visible()
        expect(page.locator(".fact")).to_have_count(0)
        assert page.evaluate("() => sessionStorage.length") == 0
        window.close()


def test_a_token_that_may_read_sees_nothing_that_changes_memory(
    open_on: OpenOn, host: Host, guarded: tuple[Path, str, str]
) -> None:
    home, right, reader = guarded
    with host.serving(home, clock=FakeClock()) as server:
        seen = {}
        for held in (right, reader):
            window = open_on(server, token=held)
            for name in ADDRESSES if held == reader else ("memory", "why a fact"):
                window.go(ADDRESSES[name])
                seen[name, held] = window.page.locator("main button").all_inner_texts()
            window.close()
    changing = re.compile(
        r"undo|add a fact|edit|remove|forget|go back to this|discard|retry|adopt|use these", re.IGNORECASE
    )
    assert [text for name in ADDRESSES for text in seen[name, reader] if changing.search(text)] == []
    assert any(changing.search(text) for text in seen["why a fact", right])
    assert any(changing.search(text) for text in seen["memory", right])


def test_of_an_update_with_many_facts_the_first_are_shown_and_then_the_next(
    story: ThreadServer, window: Window
) -> None:
    facts = [{"content": f"Ada has read book {number}", "confidence": 0.9} for number in range(230)]
    with story.client() as client:
        assert client.patch("/v1/policy?user=ada", json={"max_facts": 500}).is_success
        assert client.post("/v1/import?user=ada", json={"document": {"facts": facts}}).is_success
    page = window.go("#/why?user=ada&commit=5")
    rows = page.locator("main .fact-text", has_text="Ada has read book")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show 100 more of 130").click()
    expect(rows).to_have_count(200)
    page.get_by_role("button", name="Show 30 more of 30").click()
    expect(rows).to_have_count(230)
    expect(page.get_by_role("button", name="Show ")).to_have_count(0)


def test_a_new_update_leaves_the_graph_where_it_was_moved_to(open_on: OpenOn, story: ThreadServer) -> None:
    window = open_on(story)
    page = window.go("#/graph?user=ada")
    expect(page.locator('.graph-svg [data-id="update:3"]')).to_be_attached()
    place = "document.querySelector('.graph-svg > g').style.transform"
    start = page.evaluate(place)
    page.locator(".graph-frame").focus()
    for key in ("+", "ArrowRight"):
        before = page.evaluate(place)
        page.keyboard.press(key)
        page.wait_for_function(f"before => {place} !== before", arg=before)
    moved = page.evaluate(place)
    assert moved != start
    story.post("/v1/facts?user=ada", {"content": "Ada likes tea"})
    expect(page.locator('.graph-svg [data-id="update:4"]')).to_be_attached()
    assert page.evaluate(place) == moved


def test_the_server_answers_each_size_of_a_graph_that_is_offered(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    for address in ("#/graph?user=ada", "#/graph?user=ada&messages=1"):
        page = window.go(address)
        sizes = page.locator("main select")
        offered = sizes.locator("option").all_inner_texts()
        assert len(offered) > 1
        for size in offered:
            sizes.select_option(size)
            window.settle()
            expect(page.locator(".graph-frame")).to_be_visible()
            assert f"limit={size}" in page.url
