"""Choice of a memory on the page: by name among many, by mouse and keyboard, and what a token does not cover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import OpenOn, Window
from fakes import open_home
from hosting import Host
from playwright.sync_api import Locator, Page, expect
from serving import ThreadServer, token

MARKUP = "<img src=x onerror=alert(1)>"
ARABIC = "ليلى"
LONG = "x" * 250
PEOPLE = 130
"""More than one page of the list."""


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of many users; ada has an agent, the log of `broken` is damaged, and all share no memory."""
    home = tmp_path_factory.mktemp("many")
    with open_home(home) as bs:
        for name in ("ada", MARKUP, ARABIC, LONG, "broken", *(f"person {n:03}" for n in range(PEOPLE))):
            bs.memory(user_id=name).add_fact(f"User is called {name[:20]}")
        bs.memory(user_id="ada").add_fact("User lives in Oslo")
        bs.memory(user_id="ada", agent_name="cook").add_fact("User is allergic to nuts")
    log = home / "users/broken/ledger.jsonl"
    log.write_bytes(log.read_bytes()[:-100] + b"\n{}\n")
    return home


@pytest.fixture(scope="module")
def many(host: Host, homes: Path) -> Iterator[ThreadServer]:
    with host.serving(homes) as server:
        yield server


def options(page: Page) -> Locator:
    return page.get_by_role("listbox").get_by_role("option")


def search(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Search by the beginning of a name")


def opener(page: Page) -> Locator:
    return page.locator("header button.scope")


def test_the_page_begins_with_a_choice_among_several(open_on: OpenOn, many: ThreadServer) -> None:
    window = open_on(many)
    page = window.go()
    expect(page.get_by_role("heading", level=1)).to_have_text("Whose memory do you want to see?")
    expect(search(page)).to_be_focused()
    expect(options(page).filter(has_text=MARKUP)).to_contain_text("1 fact")
    expect(options(page).filter(has_text="ada / cook")).to_have_count(1)
    options(page).filter(has_text=ARABIC).click()
    expect(opener(page)).to_contain_text(ARABIC)
    expect(page.locator("main")).to_contain_text("User is called")
    assert "#/memory?user=" in page.url


def test_a_view_of_nobody_asks_first_and_is_then_shown(open_on: OpenOn, many: ThreadServer) -> None:
    window = open_on(many)
    page = window.go("#/compare")
    options(page).filter(has_text="ada").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare")
    assert page.url.endswith("#/compare?user=ada")
    # This view has more to ask for.
    window.settle()


def test_a_search_narrows_the_list_and_choosing_keeps_the_view(open_on: OpenOn, many: ThreadServer) -> None:
    window = open_on(many)
    page = window.go("#/compare?user=ada&a=1&b=2")
    opener(page).click()
    expect(search(page)).to_be_focused()
    expect(options(page).filter(has_text="ada").first).to_have_attribute("aria-selected", "true")
    search(page).fill("person 12")
    expect(page.locator(".scope-total")).to_have_text("10 memories")
    expect(options(page)).to_have_count(10)
    options(page).filter(has_text="person 127").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(opener(page)).to_contain_text("person 127")
    assert page.url.endswith("#/compare?user=person+127")


def test_only_the_last_of_quickly_typed_names_is_asked_for(open_on: OpenOn, many: ThreadServer) -> None:
    window = open_on(many)
    page = window.go("#/compare?user=ada")
    opener(page).click()
    expect(options(page).first).to_be_visible()
    before = len(window.requests)
    search(page).press_sequentially("person 007", delay=1)
    expect(page.locator(".scope-total")).to_have_text("1 memory")
    asked = [url for url in window.requests[before:] if "/v1/scopes" in url]
    assert len(asked) <= 2, asked


def test_the_list_grows_as_it_is_scrolled_and_holds_few_rows(open_on: OpenOn, many: ThreadServer) -> None:
    window = open_on(many)
    page = window.go("#/compare?user=ada")
    opener(page).click()
    expect(options(page).first).to_be_visible()
    box = page.get_by_role("listbox")
    last = options(page).filter(has_text=f"person {PEOPLE - 1:03}")
    for _ in range(4):
        box.evaluate("(element) => { element.scrollTop = element.scrollHeight }")
        window.settle()
    expect(last).to_be_visible()
    assert options(page).count() < 30


def test_the_choice_by_keyboard_alone(open_on: OpenOn, many: ThreadServer) -> None:
    window = open_on(many)
    page = window.go("#/compare?user=ada")
    window.tab_to(opener(page))
    page.keyboard.press("Enter")
    expect(search(page)).to_be_focused()
    page.keyboard.type("person 04")
    expect(options(page)).to_have_count(10)
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    active = page.locator(f"#{search(page).get_attribute('aria-activedescendant')}")
    expect(active).to_contain_text("person 041")
    expect(search(page)).to_be_focused()
    page.keyboard.press("Enter")
    expect(opener(page)).to_contain_text("person 041")
    window.tab_to(opener(page))
    page.keyboard.press("Enter")
    expect(search(page)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(opener(page)).to_be_focused()


def test_the_active_row_stays_in_view_far_down(open_on: OpenOn, many: ThreadServer) -> None:
    page = open_on(many).go("#/compare?user=ada")
    opener(page).click()
    expect(options(page).first).to_be_visible()
    for _ in range(12):
        page.keyboard.press("PageDown")
    name = search(page).get_attribute("aria-activedescendant")
    expect(page.locator(f"#{name}")).to_be_in_viewport()


def test_a_memory_that_cannot_be_read_is_shown_apart(open_on: OpenOn, many: ThreadServer) -> None:
    page = open_on(many).go("#/compare?user=ada")
    opener(page).click()
    search(page).fill("broken")
    apart = page.locator(".scope-unreadable")
    expect(apart).to_contain_text("1 memory that cannot be read now")
    expect(apart).to_contain_text("users/broken/ledger")
    expect(options(page)).to_have_count(0)


def test_a_name_that_does_not_exist_is_said_not_to(open_on: OpenOn, many: ThreadServer) -> None:
    page = open_on(many).go("#/compare?user=ada")
    opener(page).click()
    search(page).fill(MARKUP + "more")
    expect(page.get_by_role("listbox")).to_contain_text(f"No name begins with {MARKUP}more")


def test_names_of_any_kind_break_no_layout(open_on: OpenOn, many: ThreadServer) -> None:
    window = open_on(many, size=(360, 740))
    page = window.go()
    search(page).fill("x")
    options(page).filter(has_text=LONG).click()
    expect(opener(page)).to_contain_text(LONG)
    window.settle()
    assert window.too_wide() == []


def test_a_token_of_one_user_shows_that_one_only(open_on: OpenOn, host: Host, tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        for user in ("ada", "bob"):
            bs.memory(user_id=user).add_fact(f"User is called {user}")
        bs.memory(user_id="ada", agent_name="cook").add_fact("User is allergic to nuts")
    keys = {user: token(tmp_path, f"for-{user}", user)["Authorization"].split()[1] for user in ("ada", "bob")}
    with host.serving(tmp_path) as server:
        window = open_on(server, token=keys["bob"])
        page = window.go()
        expect(page.locator("header .scope")).to_have_text("bob")
        # Without a second memory there is nothing to choose.
        expect(opener(page)).to_have_count(0)
        window.close()
        page = open_on(server, token=keys["ada"]).go()
        opener(page).click()
        expect(options(page)).to_have_count(2)
        assert "bob" not in page.get_by_role("listbox").inner_text()


def test_a_server_that_fails_is_said_to_and_asked_again(open_on: OpenOn, many: ThreadServer) -> None:
    window: Window = open_on(many)
    page = window.go("#/compare?user=ada")
    window.allow("503")
    page.route(
        "**/v1/scopes*", lambda route: route.fulfill(status=503, json={"title": "Busy", "detail": "too much to do"})
    )
    opener(page).click()
    expect(page.get_by_role("alert")).to_contain_text("too much to do")
    page.unroute("**/v1/scopes*")
    page.get_by_role("button", name="Try again").click()
    expect(options(page).first).to_be_visible()
