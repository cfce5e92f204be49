"""The timeline view: memory as it was at each update, by a slider, a strip, a list, and jumps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import OpenOn, Window
from fakes import FakeClock, open_home
from hosting import Host
from playwright.sync_api import Locator, Page, expect
from serving import ThreadServer

from backstory.ledger.extraction.models.recorded import RecordedReply

SEVERE = "Ada is severely allergic to peanuts and carries an EpiPen"
GONE = "Ada is no longer allergic to peanuts"
MOMENT = "#moment-title"

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</bdi></a></script><script>alert(1)</script>",
    "y" * 10_000,
    "\u202eright to left \u0623\u062d\u0628 \u05e9\u05dc\u05d5\u05dd",
)


@pytest.fixture
def reading(open_on: OpenOn, told_story: ThreadServer) -> Window:
    """A window on a story that no test changes."""
    return open_on(told_story)


@pytest.fixture(scope="module")
def long_story(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    """A server on a memory of some hundred commits."""
    home = tmp_path_factory.mktemp("long")
    clock = FakeClock()
    with open_home(home, clock=clock, max_facts=500) as backstory:
        memory = backstory.memory(user_id="ada")
        for n in range(330):
            clock.advance(3600)
            if n % 3:
                memory.add_fact(f"Ada did number {n:03}")
            else:
                said = [{"role": "user", "content": f"I did number {n:03}", "id": f"m{n}"}]
                memory.record(f"thread-{n % 2}", said)
                fact = {"content": f"Ada said number {n:03}", "category": "context", "confidence": 0.9}
                memory.extract([RecordedReply(f"thread-{n % 2}", json.dumps({"newFacts": [fact]}))])
    with host.serving(home, clock=clock, max_facts=500) as server:
        yield server


def slide(page: Page, to: int) -> None:
    """Move the slider to a place, counted from 1, as a drag does."""
    page.get_by_role("slider", name="Moment in time").evaluate(
        "(input, to) => { input.value = String(to - 1); input.dispatchEvent(new Event('input', {bubbles: true})) }", to
    )


def marked(page: Page, mark: str) -> Locator:
    return page.locator(f".moment-list .is-{mark} .fact-text")


def test_the_slider_shows_memory_as_it_was_and_marks_what_changed(reading: Window) -> None:
    page = reading.go("#/timeline?user=ada")
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 3")
    expect(marked(page, "added")).to_have_text([GONE])
    expect(marked(page, "removed")).to_have_text([SEVERE])
    expect(page.locator(".moment-list .section-change")).to_contain_text("peanuts are fine now")
    expect(page.get_by_text("Also in memory at that moment: 1 section, 2 facts")).to_be_visible()

    slide(page, 2)
    expect(page.locator(MOMENT)).to_have_text("Memory after update 2")
    expect(marked(page, "added")).to_have_text([SEVERE, "Ada is vegetarian", "Ada lives in Oslo"])
    expect(marked(page, "removed")).to_have_count(0)
    expect(page).to_have_url(f"{reading.url}/#/timeline?user=ada&at=2")
    slider = page.get_by_role("slider", name="Moment in time")
    assert (slider.get_attribute("aria-valuetext") or "").startswith("Update 2, learned, 2 Mar 2026")

    slide(page, 1)
    expect(page.get_by_text("Memory was empty at that moment.")).to_be_visible()
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 3")
    expect(page).to_have_url(f"{reading.url}/#/timeline?user=ada")


def test_a_link_that_is_followed_while_the_slider_waits_for_the_address_is_not_taken_back(reading: Window) -> None:
    page = reading.go("#/timeline?user=ada&at=2")
    link = page.get_by_role("link", name="Back to now")
    expect(link).to_be_visible()
    # What the slider is about to write falls due after the link has been rendered, before its effects have run.
    link.evaluate(
        """async (link) => {
          const { requestAnimationFrame } = window;
          window.requestAnimationFrame = (draw) => setTimeout(() => requestAnimationFrame(draw), 60);
          const slider = document.querySelector("input[type=range]");
          slider.value = "0";
          slider.dispatchEvent(new Event("input", {bubbles: true}));
          const begin = performance.now();
          await new Promise((resolve) => setTimeout(resolve, 285));
          const rendered = () => {
            while (performance.now() - begin < 302);
          };
          addEventListener("hashchange", () => queueMicrotask(() => queueMicrotask(rendered)), {once: true});
          link.click();
          await new Promise((resolve) => setTimeout(resolve, 200));
          window.requestAnimationFrame = requestAnimationFrame;
        }"""
    )
    reading.settle()
    expect(page).to_have_url(f"{reading.url}/#/timeline?user=ada")
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 3")


def test_the_keys_and_the_buttons_move_the_slider_by_one(reading: Window) -> None:
    page = reading.go("#/timeline?user=ada")
    page.get_by_role("slider", name="Moment in time").press("ArrowLeft")
    expect(page.locator(MOMENT)).to_have_text("Memory after update 2")
    page.get_by_role("button", name="Previous").click()
    expect(page.locator(MOMENT)).to_have_text("Memory after update 1")
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.get_by_role("button", name="Next").click()
    expect(page.locator(MOMENT)).to_have_text("Memory after update 2")
    page.get_by_role("button", name="Newest").click()
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 3")


def test_playing_paints_one_step_after_another_and_stops_at_the_end(reading: Window) -> None:
    page = reading.go("#/timeline?user=ada&at=1")
    page.evaluate(
        """(selector) => {
          window.seen = [];
          const note = () => {
            const text = document.querySelector(selector)?.textContent;
            if (text && text !== window.seen.at(-1)) window.seen.push(text);
          };
          new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
          note();
        }""",
        MOMENT,
    )
    page.get_by_role("combobox", name="Speed").select_option("16")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 3")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    assert page.evaluate("window.seen") == [
        "Memory after update 1",
        "Memory after update 2",
        "Memory now, after update 3",
    ]


def test_a_date_a_fact_and_a_conversation_are_jumped_to(reading: Window) -> None:
    page = reading.go("#/timeline?user=ada")
    page.get_by_text("Jump to a date, a fact or a conversation").click()
    page.get_by_label("Date and time").fill("2026-03-04T12:00")
    page.get_by_role("button", name="Go", exact=True).first.click()
    expect(page.locator(MOMENT)).to_have_text("Memory after update 2")

    page.get_by_label("A fact: its words or its id").fill("peanuts")
    page.get_by_role("button", name="Find").click()
    page.locator(".jump-hits").get_by_role("link", name=SEVERE).click()
    expect(page.locator(".narrowed")).to_contain_text(f"Only updates about this fact: {SEVERE}")
    expect(page.locator(".commit b")).to_have_text(["3", "2"])
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 3")
    slide(page, 1)
    expect(page.locator(MOMENT)).to_have_text("Memory after update 2")
    expect(page.locator(".moment-list [aria-current] .fact-text")).to_have_text(SEVERE)

    page.get_by_label("A conversation").fill("friday")
    page.get_by_role("button", name="Go", exact=True).last.click()
    expect(page.locator(".commit b")).to_have_text(["3"])
    page.get_by_role("link", name="Show all updates").click()
    expect(page.locator(".commit b")).to_have_text(["3", "2", "1"])


def test_a_jump_is_not_taken_back_by_the_slider_before_it(reading: Window) -> None:
    """The address follows the slider a moment later, and by then may be another, also before anything is drawn."""
    page = reading.go("#/timeline?user=ada&fact=fact_2_0")
    expect(page.locator(".commit b")).to_have_text(["3", "2"])
    page.get_by_role("slider", name="Moment in time").evaluate(
        """(input) => {
          const plain = window.setTimeout;
          let follow = null;
          window.setTimeout = (run, ms) => (ms === 300 ? ((follow = run), 0) : plain(run, ms));
          input.value = "0";
          input.dispatchEvent(new Event("input", {bubbles: true}));
          window.setTimeout = plain;
          location.hash = "#/timeline?user=ada&thread=friday";
          follow();
        }"""
    )
    expect(page.locator(".commit b")).to_have_text(["3"])
    assert page.url.endswith("#/timeline?user=ada&thread=friday")


def test_the_list_and_the_browsers_history_move_the_slider(reading: Window) -> None:
    page = reading.go("#/timeline?user=ada")
    page.locator(".commit", has_text="the empty memory").click()
    expect(page.locator(MOMENT)).to_have_text("Memory after update 1")
    expect(page.locator(".commit[aria-current]")).to_contain_text("the empty memory")
    slide(page, 2)
    expect(page.locator(MOMENT)).to_have_text("Memory after update 2")
    page.go_back()
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 3")


def test_the_strip_says_what_it_shows_and_is_clicked_and_zoomed(open_on: OpenOn, long_story: ThreadServer) -> None:
    window = open_on(long_story)
    page = window.go("#/timeline?user=ada")
    strip = page.get_by_role("img", name="331 updates over time, from")
    expect(strip).to_be_visible()
    expect(page.get_by_role("list", name="Kinds of updates").get_by_role("listitem")).to_have_text(
        ["beginning 1", "learned 110", "by hand 220"]
    )
    over = page.locator(".u-over")
    box = over.bounding_box() or {}
    over.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
    expect(page.locator(MOMENT)).to_have_text("Memory after update 166")
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=4)
    page.mouse.up()
    expect(page.get_by_role("link", name="Show all time")).to_be_visible()
    assert "since=" in page.url
    assert "until=" in page.url
    expect(page.get_by_role("img", name=re.compile(r"^8\d updates over time"))).to_be_visible()
    page.get_by_role("link", name="Show all time").click()
    expect(strip).to_be_visible()
    page.get_by_role("button", name="Zoom in").click()
    expect(page.get_by_role("link", name="Show all time")).to_be_visible()


def test_of_a_long_list_the_rows_around_the_slider_are_there(open_on: OpenOn, long_story: ThreadServer) -> None:
    window = open_on(long_story)
    page = window.go("#/timeline?user=ada")
    slide(page, 120)
    expect(page.locator(MOMENT)).to_have_text("Memory after update 120")
    expect(page.locator(".commit[data-seq='120'] .commit-summary")).to_be_visible()
    assert page.locator(".commit").count() < 60
    expect(page.locator(".commit[aria-current]")).to_have_attribute("data-seq", "120")
    page.locator(".commit-list").evaluate("(list) => list.scrollTo(0, list.scrollHeight)")
    expect(page.locator(".commit[data-seq='1'] .commit-summary")).to_have_text("the empty memory")


def test_many_quick_steps_ask_for_few_moments_and_end_on_the_last(open_on: OpenOn, long_story: ThreadServer) -> None:
    window = open_on(long_story)
    window.go("#/compare?user=ada")
    page = window.go("#/timeline?user=ada")
    before = len(window.requests)
    page.get_by_role("slider", name="Moment in time").evaluate(
        """async (input) => {
          for (let to = 10; to < 300; to += 2) {
            input.value = String(to);
            input.dispatchEvent(new Event("input", { bubbles: true }));
            if (to % 40 === 0) await new Promise((resolve) => requestAnimationFrame(resolve));
          }
        }"""
    )
    expect(page.locator(MOMENT)).to_have_text("Memory after update 299")
    expect(page).to_have_url(f"{window.url}/#/timeline?user=ada&at=299")
    moments = [url for url in window.requests[before:] if "/v1/memory" in url]
    assert len(moments) < 40, len(moments)
    page.go_back()
    assert page.url.endswith("#/compare?user=ada")
    window.settle()


def test_a_new_update_appears_by_itself_and_is_undone_from_here(
    page: Page, window: Window, story: ThreadServer
) -> None:
    window.go("#/timeline?user=ada")
    expect(page.locator(".live-live")).to_be_visible()
    story.post("/v1/facts?user=ada", {"content": "Ada likes rye bread"}).raise_for_status()
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 4")
    expect(marked(page, "added")).to_have_text(["Ada likes rye bread"])
    expect(page.locator(".commit").first).to_contain_text("by hand")
    page.locator(".commit[data-seq='3']").click()
    expect(page.locator(MOMENT)).to_have_text("Memory after update 3")
    page.locator(".moment-head").get_by_role("button", name="Undo this update…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(SEVERE)
    dialog.locator("button.primary, button.danger").first.click()
    expect(page.locator(".commit").first).to_contain_text("undo")


def test_going_back_to_a_moment_and_comparing_it_are_offered(reading: Window) -> None:
    page = reading.go("#/timeline?user=ada&at=2")
    expect(page.get_by_role("link", name="Compare with now")).to_have_attribute("href", "#/compare?user=ada&a=2&b=3")
    page.get_by_role("button", name="Go back to this moment…").click()
    expect(page.get_by_role("dialog")).to_contain_text(SEVERE)


@pytest.mark.parametrize("size", [(1280, 800), (360, 740)])
def test_hostile_texts_are_texts_and_break_no_layout(
    open_on: OpenOn, host: Host, tmp_path: Path, size: tuple[int, int]
) -> None:
    clock = FakeClock()
    with open_home(tmp_path, clock=clock) as backstory:
        memory = backstory.memory(user_id=HOSTILE[0])
        for thread in (HOSTILE[0], HOSTILE[1], "z" * 500):
            clock.advance(60)
            memory.record(thread, [{"role": "user", "content": HOSTILE[1], "id": f"m{thread[:9]}"}])
            facts = [{"content": f"{text} {thread[:9]}", "category": "context", "confidence": 0.9} for text in HOSTILE]
            memory.extract([RecordedReply(thread, json.dumps({"newFacts": facts}))])
    with host.serving(tmp_path, clock=clock) as server:
        window = open_on(server, size=size)
        page = window.go("#/timeline")
        expect(marked(page, "added").first).to_be_visible()
        assert window.too_wide() == []
        page.locator(".moment-about a").click()
        expect(page.locator(".narrowed")).to_contain_text("z" * 500)
        window.settle()
        assert window.too_wide() == []
        assert page.locator("main img, main script").count() == 0


def test_it_fits_a_narrow_window_in_chinese_and_the_dark(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story, size=(360, 740), dark=True, language="zh-CN")
    page = window.go("#/timeline?user=ada&at=3")
    expect(page.locator("h1")).to_have_text("时间线")
    expect(marked(page, "removed")).to_have_text([SEVERE])
    assert window.too_wide() == []
    window.go("#/memory?user=ada&at=2")
    assert window.too_wide() == []


def drag(page: Page, start: float, end: float) -> None:
    """Drag over the strip, from a part of its width to another."""
    box = page.locator(".u-over").bounding_box() or {}
    page.mouse.move(box["x"] + box["width"] * start, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, box["y"] + 20, steps=4)
    page.mouse.up()


def test_a_zoom_to_the_end_holds_the_newest_update_and_those_to_come(open_on: OpenOn, story: ThreadServer) -> None:
    window = open_on(story)
    page = window.go("#/timeline?user=ada")
    drag(page, 0.8, 0.999)
    expect(page.locator(".commit b")).to_have_text(["3"])
    expect(page.locator(".slider-told")).to_contain_text("1 of 3 updates shown")
    expect(page.get_by_role("button", name="Newest")).to_be_disabled()
    assert "until=" not in page.url
    story.post("/v1/facts?user=ada", {"content": "Ada likes rye bread"}).raise_for_status()
    expect(page.locator(".commit b")).to_have_text(["4", "3"])


def test_newest_leaves_a_range_that_ends_earlier(open_on: OpenOn, long_story: ThreadServer) -> None:
    window = open_on(long_story)
    page = window.go("#/timeline?user=ada")
    drag(page, 0.25, 0.5)
    expect(page.locator(".slider-told")).to_contain_text("of 331 updates shown")
    page.get_by_role("button", name="Newest").click()
    expect(page.locator(MOMENT)).to_have_text("Memory now, after update 331")
    assert "since=" not in page.url
    assert "until=" not in page.url


def test_the_bar_of_the_shown_update_counts_as_reached_and_no_zoom_goes_beyond_it(reading: Window) -> None:
    page = reading.go("#/timeline?user=ada")
    page.get_by_role("button", name="Zoom in").click()
    expect(page.get_by_role("link", name="Show all time")).to_be_visible()
    assert "until=" not in page.url
    rest = page.locator(".density-after")
    expect(rest).to_have_css("width", "0px")
    page.get_by_role("button", name="Zoom out").click()
    expect(page.get_by_role("link", name="Show all time")).to_have_count(0)
    reading.go("#/timeline?user=ada&at=1")
    strip, after = page.locator(".u-over").bounding_box() or {}, rest.bounding_box() or {}
    assert after["x"] > strip["x"] + strip["width"] / 200
