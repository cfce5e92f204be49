"""State of a memory on the page: what waits and failed, tokens, verification, export and import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from browsing import OpenOn, Window
from fakes import FakeClock, open_home
from hosting import Host
from playwright.sync_api import Locator, Page, Route, expect
from serving import ThreadServer, token

THREAD = "<img src=x onerror=alert(1)> & plans"
BROKEN = {"thread_id": THREAD, "reply": 'I cannot say {"newFacts": ['}
NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)
SPENT = [
    {"day": "2026-03-02", "model": "small", "updates": 2, "tokens_in": 1000, "tokens_out": 100},
    {"day": "2026-03-02", "model": "large", "updates": 1, "tokens_in": 4000, "tokens_out": 50},
    {"day": "2026-03-04", "model": "small", "updates": 1, "tokens_in": 600, "tokens_out": 20},
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with an update that failed, and a turn that waits for a model."""
    folder = tmp_path / "home"
    with open_home(folder, clock=FakeClock(NOW)) as bs:
        memory = bs.memory(user_id="ada")
        memory.add_fact("User has a dog")
        memory.record(THREAD, [{"role": "user", "content": "My sister visits in May", "id": "u1"}])
        memory.extract([BROKEN])
        said = ({"role": "user", "content": "And my brother in June"}, {"role": "assistant", "content": "Noted."})
        memory.record("waiting", said)
    return folder


@pytest.fixture
def server(host: Host, home: Path) -> Iterator[ThreadServer]:
    with host.serving(home, clock=FakeClock(NOW)) as one:
        yield one


def operations(window: Window, spent: list[dict[str, object]] | None = None, period: str = "") -> Page:
    """The view, with tokens that a test decides."""
    window.page.route("**/v1/usage*", lambda route: route.fulfill(json={"days": SPENT if spent is None else spent}))
    return window.go(f"#/operations?user=ada{period}")


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name)


def head(server: ThreadServer) -> int:
    return int(server.get("/v1/head?user=ada").json()["seq"])


def test_the_state_of_a_memory(open_on: OpenOn, server: ThreadServer) -> None:
    status = server.get("/v1/status?user=ada").json()
    page = operations(open_on(server))
    state = card(page, "State")
    for text in (status["hash"], status["store"], "1 of at most 100", "3 in 2 conversations", "None is configured"):
        expect(state).to_contain_text(text)
    expect(state.get_by_role("link", name=str(status["seq"]), exact=True)).to_have_attribute(
        "href", f"#/timeline?user=ada&at={status['seq']}"
    )


def test_the_fingerprint_is_copied(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card(page, "State").get_by_role("button", name="Copy").click()
    expect(card(page, "State")).to_contain_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == server.get("/v1/head?user=ada").json()["hash"]


def test_what_failed_has_its_reason_and_is_tried_again(open_on: OpenOn, server: ThreadServer) -> None:
    window = open_on(server)
    page = operations(window)
    failed = card(page, "Failed updates")
    expect(failed).to_contain_text(THREAD)
    expect(failed).to_contain_text("The model's answer could not be read.")
    expect(failed).to_contain_text("tried once")
    # There is no model to ask.
    window.allow("409")
    failed.get_by_role("button", name=f"Try again: {THREAD}").click()
    expect(failed.get_by_role("alert")).to_contain_text("model")
    assert page.locator("main img").count() == 0


def test_what_failed_is_given_up_after_a_question(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    before = head(server)
    failed = card(page, "Failed updates")
    opener = failed.get_by_role("button", name=f"Give up: {THREAD}")
    opener.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 turn stays recorded, and nothing is learned from it.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(opener).to_be_focused()
    assert head(server) == before
    opener.click()
    dialog.get_by_role("button", name="Give up", exact=True).click()
    expect(failed).to_contain_text("No update has failed.")
    expect(failed).to_contain_text("Given up.")
    assert server.get("/v1/status?user=ada").json()["parked"] == []


def test_what_waits_says_for_what(open_on: OpenOn, server: ThreadServer) -> None:
    waiting = card(operations(open_on(server)), "Waiting to be learned from")
    expect(waiting).to_contain_text("waits for a model to be configured")
    expect(waiting.get_by_role("link", name="waiting")).to_have_attribute("href", "#/timeline?user=ada&thread=waiting")


def test_faults_evictions_and_due_times_in_words(open_on: OpenOn, server: ThreadServer) -> None:
    window = open_on(server)
    status = server.get("/v1/status?user=ada").json()
    fault = {"doing": "inject", "kind": "StoreError", "count": 3, "first": "2026-03-07T12:00:00Z"}
    status |= {
        "pending": [
            {"thread": "soon", "turns": 2, "due_in": 28.3, "waiting_for": "debounce"},
            {"thread": "late", "turns": 1, "due_in": 0, "waiting_for": None},
        ],
        "faults": [{**fault, "last": "2026-03-08T12:00:00Z", "detail": "the disk is full"}],
        "evicted": [{"seq": 2, "at": "2026-03-08T12:00:00Z", "facts": ["fact_2_0"]}],
        "facts": 100,
    }
    removed = {"type": "FactRemoved", "reason": "cap", "fact": server.get("/v1/facts?user=ada").json()["items"][0]}
    window.page.route("**/v1/status*", lambda route: route.fulfill(json=status))
    window.page.route("**/v1/commits/2*", lambda route: route.fulfill(json={"seq": 2, "events": [removed]}))
    page = operations(window)
    expect(card(page, "Waiting to be learned from")).to_contain_text("in 29 s · waits for the conversation to pause")
    expect(card(page, "Waiting to be learned from").get_by_role("listitem").last).to_contain_text("now")
    faults = card(page, "Faults of the last 7 days")
    for text in ("giving memory to the agent", "3 ×", "StoreError", "the disk is full"):
        expect(faults).to_contain_text(text)
    expect(card(page, "State")).to_contain_text("Memory is full")
    pushed = card(page, "Pushed out because memory was full")
    expect(pushed.get_by_role("link", name="update 2")).to_have_attribute("href", "#/timeline?user=ada&at=2")
    pushed.get_by_text("Which?").click()
    expect(pushed.locator(".fact")).to_contain_text("User has a dog")


def test_tokens_are_drawn_and_stand_in_a_table(open_on: OpenOn, server: ThreadServer) -> None:
    window = open_on(server)
    page = operations(window)
    tokens = card(page, "Tokens")
    expect(tokens).to_contain_text("5,770 tokens in 4 updates")
    expect(tokens.get_by_role("img")).to_have_accessible_name(
        "Tokens a day by model. The table below has the same numbers."
    )
    expect(tokens.locator("canvas")).to_be_visible()
    inked = """() => {
      const canvas = document.querySelector("#operations-usage ~ .loaded canvas");
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return new Set(Array.from({ length: pixels.length / 4 }, (_, n) => pixels.slice(4 * n, 4 * n + 4).join())).size;
    }"""
    # Two models have two colours, beside the grid's.
    assert page.evaluate(inked) > 3
    tokens.get_by_text("As a table").click()
    expect(tokens.get_by_role("row")).to_contain_text(
        ["Day (UTC)", "2026-03-04small1", "2026-03-02large1", "2026-03-02small2"]
    )


def test_a_period_is_part_of_the_link(open_on: OpenOn, server: ThreadServer) -> None:
    window = open_on(server)
    page = operations(window, [], "&days=7")
    expect(card(page, "Tokens")).to_contain_text("No tokens were spent in this time.")
    expect(page.get_by_role("button", name="7 days")).to_have_attribute("aria-pressed", "true")
    assert any("/v1/usage" in url and "since=" in url for url in window.requests)
    page.get_by_role("button", name="30 days").click()
    assert page.url.endswith("days=30")


def test_an_intact_memory_is_said_to_be_intact(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    card(page, "Is everything intact?").get_by_role("button", name="Check now").click()
    expect(card(page, "Is everything intact?")).to_contain_text(
        f"Everything is intact: {head(server)} updates and 3 turns checked."
    )


def test_damage_is_told_in_plain_words(open_on: OpenOn, home: Path, server: ThreadServer) -> None:
    page = operations(open_on(server))
    document = home / "users/ada/memory.json"
    document.write_text(
        document.read_text(encoding="utf-8").replace("User has a dog", "User has a cat"), encoding="utf-8"
    )
    check = card(page, "Is everything intact?")
    check.get_by_role("button", name="Check now").click()
    expect(check).to_contain_text("1 problem found.")
    expect(check).to_contain_text("memory.json does not say what the log says.")


def test_a_verification_under_way_can_be_stopped(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/verify*", hold)
    check = card(page, "Is everything intact?")
    check.get_by_role("button", name="Check now").click()
    expect(check.get_by_role("progressbar", name="Checking…")).to_be_visible()
    check.get_by_role("button", name="Stop").click()
    expect(check).to_contain_text("Stopped. Nothing was found out.")
    assert len(held) == 1


def test_memory_is_exported_as_a_file_that_can_be_imported(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Export memory.json").click()
    assert waiting.value.suggested_filename == "memory.json"
    exported = json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))
    assert exported == server.get("/v1/document?user=ada").json()


def importing(page: Page, name: str, content: str) -> Locator:
    page.locator("input[type=file]").set_input_files(
        {"name": name, "mimeType": "application/json", "buffer": content.encode()}
    )
    return page.get_by_role("dialog")


def test_a_file_is_added_and_what_was_refused_is_listed(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    facts = [{"content": "User plays chess", "confidence": 0.9}, {"content": "User may sing", "confidence": 0.1}]
    dialog = importing(page, "notes.json", json.dumps({"facts": facts}))
    expect(dialog).to_contain_text("Import notes.json?")
    expect(dialog).to_contain_text("The file has 2 facts.")
    dialog.get_by_role("button", name="Import", exact=True).click()
    done = card(page, "Take along, bring in")
    expect(done).to_contain_text("Imported. Memory has 2 facts now.")
    expect(done).to_contain_text("Refused: 1 item")
    expect(done).to_contain_text("is under the threshold")


def test_a_file_takes_the_place_of_memory_only_if_that_is_chosen(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    dialog = importing(page, "other.json", json.dumps(["User plays chess"]))
    dialog.get_by_role("radio", name="Put it in place of this memory").check()
    expect(dialog).to_contain_text("1 fact and the sections of today leave memory.")
    dialog.get_by_role("button", name="Replace memory").click()
    expect(card(page, "Take along, bring in")).to_contain_text("Imported. Memory has 1 fact now.")
    assert [one["content"] for one in server.get("/v1/facts?user=ada").json()["items"]] == ["User plays chess"]


def test_a_file_that_is_not_json_is_said_not_to_be(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    importing(page, "photo.json", "{not json")
    expect(card(page, "Take along, bring in").get_by_role("alert")).to_contain_text("This file is not JSON")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_view_follows_what_happens(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    expect(page.locator(".live-live")).to_be_visible()
    server.post("/v1/facts", {"content": "User plays chess"}, params={"user": "ada"})
    expect(card(page, "State")).to_contain_text("2 of at most 100")


def test_the_view_looks_again_at_a_calm_interval(open_on: OpenOn, server: ThreadServer) -> None:
    window = open_on(server, kept=False)
    window.page.clock.install()
    operations(window)
    asked = [url for url in window.requests if "/v1/status" in url]
    window.page.clock.run_for(16_000)
    window.settle()
    assert len([url for url in window.requests if "/v1/status" in url]) == len(asked) + 1


def test_what_a_right_forbids_is_not_offered(open_on: OpenOn, host: Host, home: Path) -> None:
    keys = {right: token(home, right, "ada", right=right)["Authorization"].split()[1] for right in ("read", "write")}
    with host.serving(home, clock=FakeClock(NOW)) as server:
        for right, count in (("read", 0), ("write", 1)):
            window = open_on(server, token=keys[right])
            page = operations(window)
            expect(page.get_by_role("button", name=f"Give up: {THREAD}")).to_have_count(count)
            expect(page.get_by_role("button", name="Import a file…")).to_have_count(count)
            # Metrics are about all users.
            expect(page.get_by_text("Metrics")).to_have_count(0)
            window.close()
        key = token(home, "all")["Authorization"].split()[1]
        page = operations(open_on(server, token=key))
        page.get_by_role("button", name="Metrics").click()
        expect(page.get_by_role("dialog")).to_contain_text("backstory_commits_total")


@pytest.mark.parametrize("dark", [False, True])
def test_the_view_fits_on_a_phone(open_on: OpenOn, server: ThreadServer, dark: bool) -> None:
    window = open_on(server, size=(360, 740), dark=dark, language="zh-CN")
    page = operations(window)
    expect(page.get_by_role("heading", level=1)).to_have_text("运维")
    assert window.too_wide() == []


def test_what_to_remember_is_shown_with_the_line_that_changes_it(open_on: OpenOn, server: ThreadServer) -> None:
    page = operations(open_on(server))
    expect(card(page, "What to remember")).to_contain_text("No instructions")
    stated = {"instructions": "Only diet.", "categories": [{"name": "diet", "description": "what she eats"}]}
    with server.client() as client:
        client.patch("/v1/policy?user=ada", json=stated).raise_for_status()
    shown = card(page, "What to remember")
    expect(shown).to_contain_text("Only diet.")
    expect(shown.get_by_role("listitem")).to_have_text("diet – what she eats")
    expect(shown).to_contain_text('backstory --user ada policy --set instructions="…"')
