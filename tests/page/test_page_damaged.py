"""A damaged log in the page: the checks are in reach, and say what can be done. An empty one says how to begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import OpenOn
from fakes import FakeClock
from hosting import Host
from playwright.sync_api import Route, expect
from serving import ThreadServer


@pytest.fixture
def damaged(story: ThreadServer, tmp_path: Path) -> Path:
    """The home of a story, of which one letter of the ledger was changed."""
    log = tmp_path / "home/users/ada/ledger.jsonl"
    log.write_bytes(log.read_bytes().replace(b"Oslo", b"Rome", 1))
    return tmp_path / "home"


@pytest.mark.parametrize("view", ["memory", "timeline"])
def test_a_damaged_ledger_leads_to_its_checks_which_say_what_to_do(
    open_on: OpenOn, host: Host, damaged: Path, view: str
) -> None:
    with host.serving(damaged, clock=FakeClock()) as server:
        window = open_on(server)
        window.allow("503", "failure shown")
        page = window.go(f"#/{view}?user=ada")
        alert = page.get_by_role("alert").first
        expect(alert).to_contain_text("line 2 at byte")
        alert.get_by_role("link", name="Check this memory").click()
        found = page.locator("[aria-labelledby='operations-verify']")
        expect(found.locator(".verdict.is-bad")).to_be_visible()
        expect(found.locator(".entries")).to_contain_text("users/ada/ledger")
        expect(found).to_contain_text("backstory --user ada doctor")
        expect(found).to_contain_text("backstory --user ada repair")
        expect(page.locator(".live-live")).to_have_count(0)


def test_an_empty_timeline_says_how_to_begin_whatever_answer_comes_first(
    open_on: OpenOn, host: Host, tmp_path: Path
) -> None:
    with host.serving(tmp_path, clock=FakeClock()) as server:
        window = open_on(server)
        held: list[Route] = []
        window.page.route("**/v1/timeline*", lambda route: held.append(route))  # noqa: PLW0108 it takes no built-in
        window.go("#/memory?user=ada")
        window.page.evaluate("location.hash = '#/timeline?user=ada'")
        expect(window.page.locator(".nothing-yet")).to_contain_text("backstory --user ada record chat.jsonl")
        for route in held:
            route.continue_()
        window.page.unroute("**/v1/timeline*")
        window.settle()
        expect(window.page.get_by_role("alert")).to_have_count(0)
        expect(window.page.locator(".nothing-yet")).to_be_visible()
