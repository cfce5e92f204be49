"""Forgetting in the page: what goes, what shares its evidence, the typed word, and what is left to see."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from browsing import OpenOn, Window
from playwright.sync_api import Locator, expect
from serving import ThreadServer, token

WRONG = "Ada is no longer allergic to peanuts"


def request(server: ThreadServer, method: str, path: str, body: object = None) -> httpx.Response:
    """Send a request about ada's memory, as another program does."""
    with server.client() as client:
        return client.request(method, f"{path}{'&' if '?' in path else '?'}user=ada", json=body)


def head(server: ThreadServer) -> int:
    return int(request(server, "GET", "/v1/head").json()["seq"])


def forgetting(window: Window, address: str = "#/why?user=ada&fact=fact_3_0", button: str = "Forget…") -> Locator:
    """Open the dialog that forgets a fact."""
    page = window.go(address)
    page.locator(".why-actions").get_by_role("button", name=button).click()
    window.settle()
    return page.get_by_role("dialog")


def test_a_fact_is_forgotten_after_its_id_is_typed(story: ThreadServer, window: Window) -> None:
    shown = forgetting(window)
    expect(shown.get_by_role("radio", name="This fact, everywhere")).to_be_focused()
    goes = shown.locator(".forget-groups > li")
    expect(goes.filter(has_text="1 fact").locator("li")).to_have_text(f"{WRONG} in update 3")
    expect(shown.locator(".forget-also li")).to_contain_text("A festive dinner for two")
    expect(shown).to_contain_text("This cannot be undone.")
    button = shown.get_by_role("button", name="Forget for good")
    word = shown.get_by_label("To confirm, type fact_3_0")
    expect(button).to_be_disabled()
    word.fill("fact_2_0")
    expect(button).to_be_disabled()
    assert head(story) == 3
    word.fill("fact_3_0")
    word.press("Enter")
    expect(shown.get_by_role("status")).to_contain_text("Forgotten")
    assert head(story) == 4
    assert WRONG not in request(story, "GET", "/v1/log").text


def test_what_was_forgotten_is_shown_as_erased_with_the_update_that_erased_it(
    story: ThreadServer, window: Window
) -> None:
    assert request(story, "POST", "/v1/forget", {"fact_id": "fact_3_0"}).is_success
    page = window.go("#/why?user=ada&fact=fact_3_0")
    expect(page.get_by_role("heading", level=1)).to_have_text("What this fact said was erased for good.")
    expect(page.locator(".lead").get_by_role("link")).to_have_attribute("href", "#/why?user=ada&commit=4")
    expect(page.locator(".why-actions").get_by_role("button")).to_have_count(0)
    expect(page.locator("[data-seq='4']")).to_contain_text("Its text was erased for good.")
    page = window.go("#/why?user=ada&commit=3")
    expect(page.locator(".erased")).to_contain_text("erased for good by update 4")


def test_a_fact_is_forgotten_with_the_words_it_was_learned_from(story: ThreadServer, window: Window) -> None:
    shown = forgetting(window)
    shown.get_by_role("radio", name="the words it was learned from").check()
    window.settle()
    expect(shown.locator(".forget-groups")).to_contain_text("1 message of a conversation")
    shown.get_by_label("To confirm, type fact_3_0").fill("fact_3_0")
    shown.get_by_role("button", name="Forget for good").click()
    expect(shown.get_by_role("status")).to_be_focused()
    assert "sister isn't allergic" not in request(story, "GET", "/v1/turns?thread=friday").text


def test_a_conversation_is_forgotten_after_its_name_is_typed(story: ThreadServer, window: Window) -> None:
    shown = forgetting(window)
    shown.get_by_role("radio", name="A whole conversation").check()
    window.settle()
    expect(shown.locator(".forget-groups")).to_contain_text("4 messages of conversations")
    shown.get_by_label("To confirm, type friday").fill("friday")
    shown.get_by_role("button", name="Forget for good").click()
    expect(shown.get_by_role("status")).to_contain_text("Forgotten")
    assert "clinic" not in request(story, "GET", "/v1/turns?thread=friday").text
    assert "peanuts are fine" not in request(story, "GET", "/v1/document").text


@pytest.mark.parametrize(
    "thread", ["fri\u200bday", "friday ", "f" * 65, pytest.param("fri  day", marks=pytest.mark.torture)]
)
def test_a_name_that_cannot_be_copied_by_eye_is_not_asked_for(story: ThreadServer, window: Window, thread: str) -> None:
    message = {"role": "user", "content": "I moved to Bergen.", "id": "m1"}
    assert request(story, "POST", "/v1/record", {"thread": thread, "messages": [message]}).is_success
    reply = {"newFacts": [{"content": "Ada lives in Bergen", "category": "context", "confidence": 0.9}]}
    asked = {"thread": thread, "replies": [{"thread_id": thread, "reply": reply}]}
    assert request(story, "POST", "/v1/extract", asked).json()["failed"] == 0
    shown = forgetting(window, "#/why?user=ada&fact=fact_4_0")
    shown.get_by_role("radio", name="A whole conversation").check()
    shown.get_by_label("To confirm, type forget").fill("forget")
    shown.get_by_role("button", name="Forget for good").click()
    expect(shown.get_by_role("status")).to_contain_text("Forgotten")
    assert "Bergen" not in request(story, "GET", "/v1/turns").text


def test_what_is_typed_as_soon_as_a_list_is_there_stays(window: Window) -> None:
    shown = forgetting(window)
    kept = shown.evaluate(
        """async (dialog) => {
          const { requestAnimationFrame } = window;
          // The effects of a rendering run after the next frame, which is late.
          window.requestAnimationFrame = (draw) => setTimeout(() => requestAnimationFrame(draw), 60);
          const appears = (selector) => new Promise((resolve) => {
            const look = () => dialog.querySelector(selector) !== null && (watch.disconnect(), resolve());
            const watch = new MutationObserver(look);
            watch.observe(dialog, { childList: true, subtree: true });
          });
          const listed = appears(".forget-confirm input");
          dialog.querySelector("input[value=everything]").click();
          await listed;
          const field = dialog.querySelector(".forget-confirm input");
          field.value = "forget";
          field.dispatchEvent(new Event("input", { bubbles: true }));
          await new Promise((resolve) => setTimeout(resolve, 200));
          window.requestAnimationFrame = requestAnimationFrame;
          return field.value;
        }"""
    )
    assert kept == "forget"
    expect(shown.get_by_role("button", name="Forget for good")).to_be_enabled()


def test_everything_with_a_text_is_forgotten(story: ThreadServer, window: Window) -> None:
    shown = forgetting(window)
    shown.get_by_role("radio", name="Everything that contains a text").check()
    expect(shown.locator(".forget-groups")).to_have_count(0)
    # The server answers that there is no such content.
    window.allow("404")
    shown.get_by_label("The text.").fill("zebra")
    expect(shown).to_contain_text("There is nothing to forget.")
    shown.get_by_label("The text.").fill("oslo")
    expect(shown.locator(".forget-groups")).to_contain_text("Ada lives in Oslo")
    shown.get_by_label("To confirm, type forget").fill("forget")
    shown.get_by_role("button", name="Forget for good").click()
    expect(shown.get_by_role("status")).to_contain_text("Forgotten")
    assert "Oslo" not in request(story, "GET", "/v1/log").text


def test_a_choice_is_confirmed_anew(window: Window) -> None:
    shown = forgetting(window)
    shown.get_by_label("To confirm, type fact_3_0").fill("fact_3_0")
    expect(shown.get_by_role("button", name="Forget for good")).to_be_enabled()
    shown.get_by_role("radio", name="Everything: all").check()
    expect(shown.get_by_role("button", name="Forget for good")).to_be_disabled()
    expect(shown.get_by_label("To confirm, type forget")).to_have_value("")


def test_a_listing_that_another_tab_makes_outdated_is_renewed(story: ThreadServer, window: Window) -> None:
    shown = forgetting(window)
    expect(window.page.locator(".live-live")).to_have_count(1)
    assert request(story, "PATCH", "/v1/facts/fact_3_0", {"content": "Ada eats peanuts"}).is_success
    expect(shown.locator(".renewed")).to_contain_text("Memory has changed while this was open")
    expect(shown.locator(".forget-groups")).to_contain_text("in updates 3, 4")


def test_only_a_token_that_may_erase_is_offered_it(story: ThreadServer, open_on: OpenOn, tmp_path: Path) -> None:
    said = token(tmp_path / "home", "tablet", "ada", right="write")["Authorization"].removeprefix("Bearer ")
    window = open_on(story, token=said)
    page = window.go("#/why?user=ada&fact=fact_3_0")
    expect(page.get_by_role("button", name="Edit…")).to_have_count(1)
    expect(page.get_by_role("button", name="Forget…")).to_have_count(0)


def test_forgetting_fits_on_a_phone_in_chinese(story: ThreadServer, open_on: OpenOn) -> None:
    window = open_on(story, size=(360, 740), dark=True, language="zh-CN")
    shown = forgetting(window, button="遗忘…")
    expect(shown).to_contain_text("此操作无法撤销")
    assert shown.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    assert window.too_wide() == []
