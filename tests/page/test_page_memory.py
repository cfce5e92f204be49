"""The memory view: facts and sections, to search, filter and sort; what changes appears by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browsing import OpenOn, Window
from fakes import FakeClock, open_home
from hosting import Host
from playwright.sync_api import Page, Route, expect
from serving import ThreadServer

from backstory.ledger.extraction.models.recorded import RecordedReply

ALLERGY = "Ada is no longer allergic to peanuts"
OSLO = "Ada lives in Oslo"
FACTS = ".fact-list .fact-text"

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</bdi></article></script><script>alert(1)</script>",
    "x" * 10_000,
    "\u202eright to left \u0623\u062d\u0628 \u05e9\u05dc\u05d5\u05dd",
)


@pytest.fixture
def reading(open_on: OpenOn, told_story: ThreadServer) -> Window:
    """A window on a story that no test changes."""
    return open_on(told_story)


def shown(page: Page, selector: str = FACTS) -> list[str]:
    return page.locator(selector).all_text_contents()


def test_facts_and_sections_lead_to_the_reasons_for_them(reading: Window) -> None:
    page = reading.go("#/memory?user=ada")
    assert shown(page) == [ALLERGY, OSLO, "Ada is vegetarian"]
    assert page.locator(".section h3").all_text_contents() == ["Work", "On their mind"]
    page.get_by_role("link", name=f"{ALLERGY} Why?").click()
    expect(page).to_have_url(f"{reading.url}/#/why?user=ada&fact=fact_3_0")
    page.go_back()
    page.locator(".section", has_text="On their mind").get_by_role("link", name="Why?").click()
    expect(page).to_have_url(f"{reading.url}/#/why?user=ada&section=user.topOfMind")


def test_facts_are_filtered_and_sorted_and_the_address_says_how(reading: Window) -> None:
    page = reading.go("#/memory?user=ada")
    page.get_by_role("combobox", name="Sort by").select_option("content-down")
    expect(page.locator(FACTS).first).to_have_text(OSLO)
    assert "sort=content-down" in page.url
    page.get_by_role("combobox", name="Category").select_option("preference")
    expect(page.locator(FACTS)).to_have_text(["Ada is vegetarian"])
    expect(page.get_by_text("1 of 3 fact matches")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("searchbox")).to_have_count(1)
    again = reading.go(f"{page.url.removeprefix(f'{reading.url}/')}&contains=PEANUT")
    expect(again.locator(FACTS)).to_have_text([ALLERGY])


def test_a_fact_is_one_line_with_what_can_be_done_about_it(window: Window, story: ThreadServer) -> None:
    story.post("/v1/facts?user=ada", {"content": "Ada " + "likes to talk about bread and " * 20}).raise_for_status()
    page = window.go("#/memory?user=ada&sort=born")
    heights = page.locator(".fact-list .fact").evaluate_all("(rows) => rows.map((row) => row.offsetHeight)")
    assert heights == [36, 36, 36, 36]
    page.get_by_role("button", name=f"Edit: {OSLO}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("textbox").first).to_have_value(OSLO)
    page.keyboard.press("Escape")
    page.get_by_role("button", name=f"Remove: {OSLO}").click()
    dialog.get_by_role("button", name=window.say("components/fact_form", "removeNow")).click()
    expect(page.locator(FACTS)).to_have_count(3)
    page.keyboard.press("Escape")
    window.go("#/memory?user=ada&at=2")
    expect(page.locator(".fact-actions")).to_have_count(0)


def test_a_search_says_how_many_are_found_by_words_alone_so_far(reading: Window) -> None:
    def half_known(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "model": "m", "total": 5, "embedded": 2})

    reading.page.route("**/v1/search*", half_known)
    page = reading.go("#/?user=ada&q=peanuts")
    expect(page.locator(".hits")).to_contain_text("3 of 5 are found by words alone so far")


def test_a_search_says_why_each_hit_has_its_place_and_names_what_is_gone(reading: Window) -> None:
    page = reading.go("#/memory?user=ada")
    page.get_by_label("Search by words or meaning").press_sequentially("peanuts")
    first = page.locator(".hit-list li").first
    expect(first.locator(".fact-text")).to_have_text(ALLERGY)
    expect(first.locator(".hit-why")).to_contain_text("Place 1. It has the word “peanuts” (number 1 by words).")
    gone = page.get_by_role("region", name="No longer in memory")
    expect(gone).to_contain_text("Ada is severely allergic to peanuts and carries an EpiPen")
    gone.get_by_role("link", name="Why?").click()
    expect(page).to_have_url(f"{reading.url}/#/why?user=ada&fact=fact_2_0")


def test_an_earlier_moment_says_so_and_leads_back(reading: Window) -> None:
    page = reading.go("#/memory?user=ada&at=2")
    expect(page.get_by_text("You are looking at the past: memory as it was after update 2")).to_be_visible()
    assert "Ada is severely allergic to peanuts and carries an EpiPen" in shown(page)
    expect(page.get_by_role("button", name="Add a fact…")).to_have_count(0)
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator(FACTS).first).to_have_text(ALLERGY)
    expect(page.get_by_text("You are looking at the past")).to_have_count(0)


def test_a_day_shows_what_was_true_then(window: Window, story: ThreadServer) -> None:
    added = {"content": "Ada lived in Rome", "valid_from": "2019", "valid_until": "2020"}
    story.post("/v1/facts?user=ada", added).raise_for_status()
    page = window.go("#/memory?user=ada&contains=lived")
    expect(page.get_by_text("No fact matches.")).to_be_visible()
    page.get_by_label("True on the day").fill("2019-07-01")
    expect(page.locator(FACTS)).to_have_text(["Ada lived in Rome"])
    assert "valid_at=2019-07-01" in page.url
    expect(page.locator(".fact .period").first).to_have_text("true since 2019")
    page.get_by_label("True on the day").fill("2021-07-01")
    expect(page.get_by_text("No fact matches.")).to_be_visible()


def test_a_change_appears_by_itself_and_says_what_it_changed(page: Page, story: ThreadServer) -> None:
    said = page.locator(".live-banner")
    assert said.get_attribute("role") == "status"
    expect(page.locator(".live-live")).to_be_visible()
    story.post("/v1/facts?user=ada", {"content": "Ada likes rye bread", "category": "preference"}).raise_for_status()
    expect(page.locator(FACTS).first).to_have_text("Ada likes rye bread")
    expect(page.locator(".fact-list .is-added")).to_have_count(1)
    expect(said).to_contain_text("Memory has just changed")
    expect(said.locator(".happened")).to_contain_text("added Ada likes rye bread")
    expect(said.get_by_role("link", name="What did it change?")).to_have_attribute("href", "#/timeline?user=ada&at=4")
    said.get_by_role("button", name="Undo this update…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Ada likes rye bread")
    page.keyboard.press("Escape")
    said.get_by_role("button", name="Dismiss").click()
    expect(said.locator(".card")).to_have_count(0)


def test_a_fact_that_is_added_by_hand_appears(page: Page) -> None:
    page.get_by_role("button", name="Add a fact…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").first.fill("Ada has a cat")
    dialog.locator("button.primary").click()
    expect(page.locator(FACTS).first).to_have_text("Ada has a cat")


def hostile_home(home: Path) -> None:
    """Write a memory of texts that a page might take for markup, or that break a layout."""
    with open_home(home, clock=FakeClock()) as backstory:
        memory = backstory.memory(user_id=HOSTILE[0])
        memory.record(HOSTILE[1], [{"role": "user", "content": text, "id": f"m{n}"} for n, text in enumerate(HOSTILE)])
        facts = [{"content": text, "category": "context", "confidence": 0.9, "evidence": ["m0"]} for text in HOSTILE]
        section = {"summary": " ".join(HOSTILE), "shouldUpdate": True}
        memory.extract([RecordedReply(HOSTILE[1], json.dumps({"newFacts": facts, "user": {"workContext": section}}))])


STATE = ".memory-state li"


def test_an_empty_memory_shows_what_records_something_and_then_what_learns_from_it(
    open_on: OpenOn, host: Host, tmp_path: Path
) -> None:
    with host.serving(tmp_path, clock=FakeClock()) as server:
        window = open_on(server)
        page = window.go("#/memory?user=ada")
        expect(page.locator(".nothing-yet")).to_contain_text("backstory --user ada record chat.jsonl")
        expect(page.locator(STATE)).to_have_text(["No model: nothing is learned by itself"])
        said = {"thread": "t1", "messages": [{"role": "user", "content": "I live in Oslo.", "id": "m1"}]}
        server.post("/v1/record?user=ada", said)
        window.go("#/operations?user=ada")
        window.go("#/memory?user=ada")
        expect(page.locator(".nothing-yet")).to_contain_text("backstory doctor --model")
        expect(page.locator(STATE)).to_have_text(
            ["1 conversation waits to be learned from", "No model: nothing is learned by itself"]
        )
        page.locator(STATE).first.get_by_role("link").click()
        expect(page).to_have_url(f"{server.url}/#/operations?user=ada")
        window.settle()


def test_a_full_memory_and_failed_updates_are_named_with_what_a_larger_memory_would_hold(
    open_on: OpenOn, host: Host, tmp_path: Path
) -> None:
    with open_home(tmp_path, model=lambda _: "no reply", clock=FakeClock(), max_facts=10) as backstory:
        memory = backstory.memory(user_id="ada")
        memory.record("t1", [{"role": "user", "content": "I live in Oslo.", "id": "m1"}])
        assert memory.extract().failed == 1
        for n in range(10):
            memory.add_fact(f"Ada knows number {n}")
    with host.serving(tmp_path, clock=FakeClock(), model=lambda _: "no reply", max_facts=10) as server:
        window = open_on(server)
        page = window.go("#/memory?user=ada")
        expect(page.locator(STATE)).to_have_text(
            ["Full: 10 facts. What would a larger memory hold?", "Updates of 1 conversation failed"]
        )
        page.get_by_role("link", name="What would a larger memory hold?").click()
        expect(page.get_by_role("heading", name="Compare")).to_be_visible()
        # What is asked there ends with it, before the server does.
        window.go("#/memory?user=ada")


@pytest.mark.parametrize("size", [(1280, 800), (360, 740)])
def test_hostile_texts_are_texts_and_break_no_layout(
    open_on: OpenOn, host: Host, tmp_path: Path, size: tuple[int, int]
) -> None:
    hostile_home(tmp_path)
    with host.serving(tmp_path, clock=FakeClock()) as server:
        window = open_on(server, size=size)
        page = window.go("#/memory")
        assert {text.strip() for text in HOSTILE} == set(shown(page))
        assert window.too_wide() == []
        page.get_by_label("Search by words or meaning").fill("right img x")
        expect(page.locator(".hit-list li").first).to_be_visible()
        window.settle()
        assert window.too_wide() == []
        assert page.locator("main img, main script").count() == 0


def test_a_long_list_holds_only_the_rows_in_view(open_on: OpenOn, host: Host, tmp_path: Path) -> None:
    with open_home(tmp_path, clock=FakeClock(), max_facts=500) as backstory:
        memory = backstory.memory(user_id="ada")
        memory.import_document(
            {
                "facts": [
                    {"content": f"Ada knows number {n:04}", "category": "knowledge", "confidence": 0.9}
                    for n in range(450)
                ]
            }
        )
    with host.serving(tmp_path, clock=FakeClock(), max_facts=500) as server:
        window = open_on(server)
        page = window.go("#/memory?user=ada&sort=content")
        assert shown(page)[0] == "Ada knows number 0000"
        assert page.locator(".fact-list .virtual-row").count() < 40
        page.locator(".fact-list").evaluate("(list) => list.scrollTo(0, list.scrollHeight)")
        expect(page.locator(FACTS).last).to_have_text("Ada knows number 0449")
        expect(page.locator(".fact-list [aria-posinset='450']")).to_have_attribute("aria-setsize", "450")
        asked = [url for url in window.requests if "/v1/memory" in url and "offset=" in url]
        assert len(asked) <= 2, asked
