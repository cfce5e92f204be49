"""The demo's story on the page: from the first fact to the undone update and back for different people."""

from __future__ import annotations

import re

from browsing import OpenOn, Window
from playwright.sync_api import Locator, expect
from serving import ThreadServer

TRUE_FACT = "Ada is severely allergic to peanuts and carries an EpiPen"
WRONG_FACT = "Ada is no longer allergic to peanuts"
WORDS = "my sister isn't allergic to peanuts any more!"


def fact(window: Window, text: str) -> Locator:
    """Facts in the page that say this."""
    return window.page.locator("main .fact").filter(has_text=text)


def button(window: Window, file: str, key: str, **values: object) -> Locator:
    """The buttons and links of a name."""
    name = window.say(file, key, **values)
    return window.page.get_by_role("button", name=name, exact=True).or_(
        window.page.get_by_role("link", name=name, exact=True)
    )


def contents(server: ThreadServer) -> set[str]:
    """What the server remembers of Ada."""
    return {item["content"] for item in server.get("/v1/facts?user=ada").json()["items"]}


def find_the_words(window: Window) -> None:
    """From the wrong fact in memory to the words that it came from."""
    fact(window, WRONG_FACT).get_by_role("link").first.click()
    expect(window.page.locator("h1")).to_have_text(WRONG_FACT)
    expect(window.page.locator(".turn-text mark")).to_contain_text(WORDS)
    window.settle()


def undo_and_redo(window: Window, server: ThreadServer) -> None:
    """From the fact's page through the undo, and back by undoing the undo."""
    page = window.page
    button(window, "views/why", "undo").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".is-added")).to_contain_text([TRUE_FACT, "without peanuts"])
    expect(dialog.locator(".is-removed").first).to_contain_text(WRONG_FACT)
    assert WRONG_FACT in contents(server)
    button(window, "components/undo", "undo").click()
    expect(dialog.locator(".done-line")).to_contain_text(window.say("components/undo", "newUpdate", seq=4))
    assert TRUE_FACT in contents(server)
    assert WRONG_FACT not in contents(server)
    button(window, "components/undo", "undoUndo").click()
    expect(dialog.locator(".is-added").first).to_contain_text(WRONG_FACT)
    button(window, "components/undo", "redo", target=3).click()
    expect(dialog.locator(".done-line")).to_contain_text(window.say("components/undo", "newUpdate", seq=5))
    assert WRONG_FACT in contents(server)
    assert TRUE_FACT not in contents(server)
    dialog.locator("footer").get_by_role("button", name=window.say("components/undo", "close"), exact=True).click()
    expect(dialog).to_have_count(0)
    window.settle()


def test_the_story_with_the_mouse(open_on: OpenOn, story: ThreadServer) -> None:
    window = open_on(story)
    page = window.go()
    assert page.url.endswith("#/memory?user=ada")
    expect(fact(window, WRONG_FACT)).to_be_visible()
    expect(fact(window, TRUE_FACT)).to_have_count(0)
    page.get_by_role("link", name="Timeline", exact=True).click()
    # What loads above the buttons moves them, also between the press of the mouse and its release.
    window.settle()
    button(window, "views/timeline", "previous").click()
    expect(page.locator(".moment .fact.is-added").filter(has_text=TRUE_FACT)).to_be_visible()
    button(window, "views/timeline", "next").click()
    expect(page.locator(".moment .fact.is-removed")).to_contain_text(TRUE_FACT)
    wrong = page.locator(".moment .fact.is-added").filter(has_text=WRONG_FACT)
    expect(wrong).to_be_visible()
    wrong.get_by_role("link").first.click()
    expect(page.locator(".turn-text mark")).to_contain_text(WORDS)
    undo_and_redo(window, story)
    expect(page.locator(".why-history .event")).to_have_count(3)
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page.locator(".commit-list .commit")).to_have_count(5)
    page.locator(".commit-list .commit[data-seq='4']").click()
    expect(page.locator(".moment .fact.is-added").filter(has_text=TRUE_FACT)).to_be_visible()
    assert page.url.endswith("at=4")
    page.go_back()
    expect(page.locator(".moment .fact.is-added").filter(has_text=WRONG_FACT)).to_be_visible()


def test_the_story_by_keyboard_alone(open_on: OpenOn, story: ThreadServer) -> None:
    window = open_on(story)
    page = window.go("#/memory?user=ada")
    window.tab_to(fact(window, WRONG_FACT).get_by_role("link").first)
    page.keyboard.press("Enter")
    expect(page.locator(".turn-text mark")).to_contain_text(WORDS)
    window.settle()
    opener = button(window, "views/why", "undo").first
    window.tab_to(opener)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".is-added").first).to_contain_text(TRUE_FACT)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(opener).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog.locator(".is-added").first).to_contain_text(TRUE_FACT)
    window.tab_to(button(window, "components/undo", "undo"))
    page.keyboard.press("Enter")
    expect(dialog.locator(".done-line")).to_be_focused()
    assert TRUE_FACT in contents(story)
    window.tab_to(button(window, "components/undo", "undoUndo"))
    page.keyboard.press("Enter")
    window.settle()
    window.tab_to(button(window, "components/undo", "redo", target=3))
    page.keyboard.press("Enter")
    expect(dialog.locator(".done-line")).to_contain_text("5")
    assert WRONG_FACT in contents(story)


def test_the_slider_by_keyboard(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    page = window.go("#/timeline?user=ada")
    slider = page.locator(".slider input[type=range]")
    window.tab_to(slider)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".moment .fact.is-added").filter(has_text=TRUE_FACT)).to_be_visible()
    assert "2" in (slider.get_attribute("aria-valuetext") or "")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".moment .fact.is-added").filter(has_text=WRONG_FACT)).to_be_visible()


def test_the_first_tabulator_leads_past_the_menu(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    page = window.go("#/memory?user=ada")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()


def test_a_slide_does_not_overtake_a_link(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    page = window.go("#/timeline?user=ada")
    expect(page.locator(".moment .fact").first).to_be_visible()
    # The address follows the slider a moment later, which is over when the link is followed.
    page.evaluate(
        """() => {
          const slider = document.querySelector(".slider input[type=range]");
          slider.value = 1;
          slider.dispatchEvent(new Event("input", { bubbles: true }));
          const begin = performance.now();
          while (performance.now() - begin < 400);
          location.hash = "#/memory?user=ada";
        }"""
    )
    window.settle()
    expect(page.locator(".fact-list .fact").first).to_be_visible()
    assert page.url.endswith("#/memory?user=ada")


def brightness(window: Window) -> float:
    """How bright the paper is, from 0 to 255."""
    window.settle()
    colour = window.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3


def test_the_story_in_the_dark(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story, dark=True)
    page = window.go("#/memory?user=ada")
    assert brightness(window) < 60
    find_the_words(window)
    page.get_by_label(window.say("app", "theme")).select_option("light")
    assert brightness(window) > 200
    page.reload()
    window.settle()
    assert brightness(window) > 200
    page.get_by_label(window.say("app", "theme")).select_option("dark")
    assert brightness(window) < 60


def test_the_story_in_chinese(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story, kept=False, language="zh-CN")
    page = window.go("#/memory?user=ada")
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert page.title().startswith("记忆 · ada")
    find_the_words(window)
    page.get_by_label("语言").select_option("en")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.reload()
    window.settle()
    assert page.get_by_role("link", name="Timeline", exact=True).is_visible()


def test_the_story_on_a_phone(open_on: OpenOn, story: ThreadServer) -> None:
    window = open_on(story, size=(360, 740))
    window.go("#/memory?user=ada")
    find_the_words(window)
    button(window, "views/why", "undo").first.click()
    expect(window.page.get_by_role("dialog").locator(".is-added").first).to_contain_text(TRUE_FACT)
    assert window.too_wide() == []
    window.page.keyboard.press("Escape")
    undo_and_redo(window, story)
    assert window.too_wide() == []
