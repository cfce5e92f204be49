"""The agent view: the block that a model gets, why each fact is in it, and what just missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import OpenOn, Window
from fakes import FakeClock, open_home
from hosting import Host
from playwright.sync_api import expect
from serving import ThreadServer


@pytest.fixture
def reading(open_on: OpenOn, told_story: ThreadServer) -> Window:
    """A window on a story that no test changes."""
    return open_on(told_story)


def test_the_block_is_shown_as_the_model_gets_it_with_the_reason_for_each_fact(
    reading: Window, told_story: ThreadServer
) -> None:
    page = reading.go("#/agent?user=ada")
    with told_story.client() as client:
        block = client.get("/v1/context", params={"user": "ada"}).json()
    expect(page.locator(".block-text")).to_have_text(block["standing"], use_inner_text=True)
    expect(page.locator(".block-facts li")).to_have_count(len(block["facts"]))
    expect(page.locator(".block-facts")).to_contain_text("Ada is vegetarian stands by its rank: preference, 95 % sure")
    page.get_by_label("The question").fill("peanuts?")
    page.get_by_role("button", name="Show the block").click()
    expect(page).to_have_url(f"{reading.url}/#/agent?user=ada&q=peanuts%3F")
    expect(page.locator(".block-facts")).to_contain_text("fits the question: place 1 of the search")
    page.get_by_role("link", name="Ada is no longer allergic to peanuts").click()
    expect(page).to_have_url(f"{reading.url}/#/why?user=ada&fact=fact_3_0")


def test_what_fits_the_question_and_had_no_room_is_named(open_on: OpenOn, host: Host, tmp_path: Path) -> None:
    with open_home(tmp_path, clock=FakeClock(), max_facts=100) as backstory:
        memory = backstory.memory(user_id="ada")
        for n in range(40):
            memory.add_fact(f"Ada keeps peanut number {n} in a jar of its own, far up on a shelf of the cellar " * 3)
    with host.serving(tmp_path, clock=FakeClock(), max_facts=100, max_injection_tokens=400) as server:
        page = open_on(server).go("#/agent?user=ada&q=peanut")
        expect(page.locator(".block-missed li").first).to_contain_text("of the search")
        shown, missed = page.locator(".block-facts li").count(), page.locator(".block-missed li").count()
        assert shown >= 1
        assert missed >= 15


def test_an_empty_memory_has_no_block(open_on: OpenOn, host: Host, tmp_path: Path) -> None:
    with host.serving(tmp_path, clock=FakeClock()) as server:
        page = open_on(server).go("#/agent?user=ada")
        expect(page.get_by_text("There is nothing to show: memory is empty")).to_be_visible()
