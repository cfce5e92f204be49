"""Undo in the page: the preview, what is superseded, what conflicts, and the undo of an undo."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from browsing import OpenOn, Window
from playwright.sync_api import Locator, Page, Route, expect
from serving import ThreadServer, token

WRONG = "Ada is no longer allergic to peanuts"
TRUE = "Ada is severely allergic to peanuts and carries an EpiPen"


def contents(server: ThreadServer, **more: object) -> set[str]:
    """Return what ada's facts say."""
    return {fact["content"] for fact in server.get("/v1/facts?user=ada", **more).json()["items"]}


def change(server: ThreadServer, method: str, path: str, body: object = None) -> None:
    """Change ada's memory as another program does."""
    with server.client() as client:
        answer = client.request(method, f"{path}?user=ada", json=body)
    assert answer.is_success, answer.text


def head(server: ThreadServer) -> int:
    return int(server.get("/v1/head?user=ada").json()["seq"])


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def preview(
    window: Window, address: str = "#/why?user=ada&fact=fact_3_0", button: str = "Undo this update…"
) -> Locator:
    """Open the preview of an undo in the view that explains a fact."""
    window.go(address)
    window.page.get_by_role("button", name=button).first.click()
    window.settle()
    return dialog(window.page)


def confirm(shown: Locator) -> None:
    shown.get_by_role("button", name="Undo this update", exact=True).click()


def test_an_undo_does_what_its_preview_showed_and_can_be_undone(story: ThreadServer, window: Window) -> None:
    shown = preview(window)
    expect(shown.get_by_role("heading", name="Undo update 3")).to_be_visible()
    expect(shown.locator("section", has_text="This comes back").locator(".fact-text")).to_have_text(TRUE)
    expect(shown.locator("section", has_text="This leaves memory").locator(".fact-text")).to_have_text(WRONG)
    expect(shown.locator("section", has_text="earlier text")).to_contain_text("without peanuts")
    assert head(story) == 3
    confirm(shown)
    expect(shown.get_by_role("status")).to_contain_text("Done.")
    expect(shown.get_by_role("link", name="This is update 4")).to_have_attribute("href", "#/timeline?user=ada&at=4")
    assert contents(story) >= {TRUE}
    assert WRONG not in contents(story)
    shown.get_by_role("button", name="Undo the undo…").click()
    expect(shown.get_by_role("heading", name="Undo update 4, an undo: this brings update 3 back")).to_be_visible()
    shown.get_by_role("button", name="Redo update 3", exact=True).click()
    expect(shown.get_by_role("link", name="This is update 5")).to_be_visible()
    assert WRONG in contents(story)


def test_an_undo_works_with_the_keyboard_alone_and_gives_the_focus_back(story: ThreadServer, window: Window) -> None:
    page = window.go("#/why?user=ada&fact=fact_3_0")
    opener = page.get_by_role("button", name="Undo this update…").first
    opener.focus()
    page.keyboard.press("Enter")
    window.settle()
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)
    expect(opener).to_be_focused()
    page.keyboard.press("Enter")
    window.settle()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('primary')"):
            break
    page.keyboard.press("Enter")
    expect(dialog(page).get_by_role("status")).to_be_focused()
    assert head(story) == 4
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)
    expect(page.locator(".why-kind")).to_have_text("No longer in memory")
    # The button that opened it went with the fact, or says something else now.
    expect(page.locator("#content")).to_be_focused()


def test_the_focus_is_not_lost_where_the_button_that_opened_a_dialog_goes_later(window: Window) -> None:
    page = window.go("#/why?user=ada&fact=fact_3_0")
    held: list[Route] = []
    holding = threading.Event()
    holding.set()

    def hold(route: Route) -> None:
        if holding.is_set() and route.request.method == "GET":
            held.append(route)
        else:
            route.continue_()

    opener = page.get_by_role("button", name="Undo this update…").first
    opener.focus()
    page.keyboard.press("Enter")
    window.settle()
    page.route("**/v1/**", hold)
    confirm(dialog(page))
    expect(dialog(page).get_by_role("status")).to_be_focused()
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()
    holding.clear()
    # The fact is read again before the updates that the button stands beside.
    for one in sorted(held, key=lambda route: "/why" not in route.request.url):
        one.continue_()
        if "/why" in one.request.url:
            expect(page.locator(".why-kind")).to_have_text("No longer in memory")
    expect(page.locator(".why-kind")).to_have_text("No longer in memory")
    expect(page.locator("#content")).to_be_focused()


def test_where_there_is_nothing_to_undo_it_says_so(story: ThreadServer, window: Window) -> None:
    story.post("/v1/revert?user=ada", {"seq": 3})
    shown = preview(window, "#/why?user=ada&commit=3")
    expect(shown).to_contain_text("There is nothing to undo.")
    expect(shown.get_by_role("button", name="Undo this update", exact=True)).to_have_count(0)
    expect(shown.locator("section", has_text="This stays as it is today")).to_contain_text("it has left memory since")


def test_what_later_updates_superseded_is_shown_apart(window: Window) -> None:
    shown = preview(window, "#/why?user=ada&commit=2")
    stays = shown.locator("section", has_text="This stays as it is today")
    expect(stays.get_by_role("listitem").filter(has_text=TRUE)).to_contain_text("it has left memory since")
    expect(stays.get_by_role("listitem").filter(has_text="On their mind")).to_contain_text("has rewritten it")
    expect(shown.locator("section", has_text="This leaves memory").locator(".fact-text")).to_have_text(
        ["Ada is vegetarian", "Ada lives in Oslo"]
    )


def test_a_conflict_needs_a_tick(story: ThreadServer, window: Window) -> None:
    change(story, "PATCH", "/v1/facts/fact_3_0", {"content": "Ada eats peanuts again"})
    shown = preview(window, "#/why?user=ada&commit=3")
    conflicts = shown.locator("section", has_text="Later work is in the way")
    expect(conflicts.get_by_role("listitem")).to_have_text(re.compile("Ada eats peanuts again.*it was changed since"))
    button = shown.get_by_role("button", name="Undo this update", exact=True)
    expect(button).to_be_disabled()
    shown.get_by_role("checkbox").check()
    button.click()
    expect(shown.get_by_role("link", name="This is update 5")).to_be_visible()
    assert contents(story) == {TRUE, "Ada is vegetarian", "Ada lives in Oslo"}


def test_a_preview_that_another_tab_makes_outdated_is_renewed(story: ThreadServer, window: Window) -> None:
    shown = preview(window)
    expect(window.page.locator(".live-live")).to_have_count(1)
    expect(shown.locator(".renewed")).to_have_count(0)
    change(story, "DELETE", "/v1/facts/fact_3_0")
    expect(shown.locator(".renewed")).to_contain_text("Memory has changed while this was open")
    expect(shown.locator("section", has_text="This stays as it is today")).to_contain_text(WRONG)
    confirm(shown)
    expect(shown.get_by_role("link", name="This is update 5")).to_be_visible()


def test_an_undo_on_another_memory_than_the_previewed_one_is_refused_and_previewed_again(
    story: ThreadServer, open_on: OpenOn
) -> None:
    window = open_on(story)
    # The page does not hear of the change.
    window.page.route("**/v1/events*", lambda route: route.abort())
    window.allow("v1/events")
    shown = preview(window)
    change(story, "DELETE", "/v1/facts/fact_3_0")
    window.allow("412")
    confirm(shown)
    expect(shown.locator(".renewed")).to_contain_text("Memory has changed while this was open")
    expect(shown.locator("section", has_text="This stays as it is today")).to_contain_text(WRONG)
    assert head(story) == 4
    confirm(shown)
    expect(shown.get_by_role("link", name="This is update 5")).to_be_visible()


def test_two_clicks_undo_once(story: ThreadServer, window: Window) -> None:
    shown = preview(window)
    shown.get_by_role("button", name="Undo this update", exact=True).dblclick()
    expect(shown.get_by_role("status")).to_contain_text("Done.")
    assert head(story) == 4


def test_a_link_in_the_preview_leads_out_of_it(window: Window) -> None:
    shown = preview(window)
    shown.get_by_role("link", name=TRUE).click()
    window.settle()
    expect(dialog(window.page)).to_have_count(0)
    expect(window.page.get_by_role("heading", level=1)).to_have_text(TRUE)


@pytest.mark.parametrize(("right", "offered"), [("read", []), ("write", ["Undo", "Edit", "Remove"])])
def test_only_what_the_token_allows_is_offered(
    story: ThreadServer, open_on: OpenOn, tmp_path: Path, right: str, offered: list[str]
) -> None:
    said = token(tmp_path / "home", "tablet", "ada", right=right)["Authorization"].removeprefix("Bearer ")
    window = open_on(story, token=said)
    window.go("#/why?user=ada&fact=fact_3_0")
    names = window.page.locator(".why-actions button").all_inner_texts()
    assert [name.split()[0].rstrip("…") for name in names] == offered


def test_an_undo_fits_on_a_phone_in_chinese(story: ThreadServer, open_on: OpenOn) -> None:
    window = open_on(story, size=(360, 740), dark=True, language="zh-CN")
    shown = preview(window, button="撤销这次更新…")
    expect(shown.get_by_role("heading", name="撤销第 3 次更新")).to_be_visible()
    box = shown.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert shown.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    assert window.too_wide() == []
    button = shown.get_by_role("button", name="撤销这次更新", exact=True)
    expect(button).to_be_in_viewport()


def test_agreeing_to_a_conflict_is_not_agreeing_to_the_next_one(open_on: OpenOn, story: ThreadServer) -> None:
    with story.client() as client:
        client.patch("/v1/facts/fact_3_0?user=ada", json={"content": "Ada may eat peanuts"}).raise_for_status()
    window = open_on(story)
    page = window.go("#/why?user=ada&commit=3")
    page.get_by_role("button", name=window.say("views/why", "undo"), exact=True).first.click()
    dialog = page.get_by_role("dialog")
    tick = dialog.get_by_role("checkbox")
    confirm = dialog.get_by_role("button", name=window.say("components/undo", "undo"), exact=True)
    tick.check()
    expect(confirm).to_be_enabled()
    # Now another fact says what the undo would bring back.
    story.post("/v1/facts?user=ada", {"content": "Ada is severely allergic to peanuts and carries an EpiPen"})
    expect(dialog.locator(".undo-conflicts li")).to_have_count(2)
    expect(tick).not_to_be_checked()
    expect(confirm).to_be_disabled()
