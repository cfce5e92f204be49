"""Changes by hand in the page: add, edit and remove a fact, and what refuses them."""

from __future__ import annotations

import httpx
import pytest
from browsing import Window
from playwright.sync_api import Locator, Page, Route, expect
from serving import ThreadServer

WRONG = "Ada is no longer allergic to peanuts"


def request(server: ThreadServer, method: str, path: str, body: object = None) -> httpx.Response:
    """Send a request about ada's memory, as another program does."""
    with server.client() as client:
        return client.request(method, f"{path}?user=ada", json=body)


def facts(server: ThreadServer) -> dict[str, dict[str, object]]:
    """Return ada's facts, by what they say."""
    return {fact["content"]: fact for fact in request(server, "GET", "/v1/facts").json()["items"]}


def head(server: ThreadServer) -> int:
    return int(request(server, "GET", "/v1/head").json()["seq"])


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def adding(window: Window, text: str = "Ada likes Thai food") -> Locator:
    """Open the dialog that adds a fact, from the search for what is missing."""
    page = window.go("#/why?user=ada")
    page.get_by_role("searchbox").fill(text)
    page.get_by_role("button", name="Why not?").click()
    page.get_by_role("button", name="Add it by hand…").click()
    return dialog(page)


def editing(window: Window, name: str = "Edit…") -> Locator:
    page = window.go("#/why?user=ada&fact=fact_3_0")
    page.locator(".why-actions").get_by_role("button", name=name).click()
    return dialog(page)


def test_a_fact_is_added_by_hand_with_category_and_confidence(story: ThreadServer, window: Window) -> None:
    shown = adding(window)
    field = shown.get_by_label("What should the agent know?")
    expect(field).to_be_focused()
    expect(field).to_have_value("Ada likes Thai food")
    shown.get_by_label("Category").select_option("preference")
    shown.get_by_label("How certain is it?").fill("0.55")
    shown.get_by_role("button", name="Save").click()
    expect(shown.get_by_role("status")).to_contain_text("Saved. This is update 4")
    added = facts(story)["Ada likes Thai food"]
    assert (added["category"], added["confidence"], added["byHand"]) == ("preference", 0.55, True)


def test_a_fact_states_when_it_holds(story: ThreadServer, window: Window) -> None:
    shown = adding(window)
    shown.get_by_label("True since").fill("2024-05")
    shown.get_by_label("Remember until").fill("2099")
    shown.get_by_role("button", name="Save").click()
    expect(shown).to_contain_text("true since 2024-05")
    added = facts(story)["Ada likes Thai food"]
    assert (added["validFrom"], added["expiresAt"], "validUntil" in added) == ("2024-05", "2099", False)


def test_a_fact_that_was_true_is_removed_as_ended(story: ThreadServer, window: Window) -> None:
    shown = editing(window, "Remove…")
    shown.get_by_label("It was true until now").check()
    shown.get_by_role("button", name="Remove it").click()
    expect(shown.get_by_role("status")).to_contain_text("Removed.")
    removed = request(story, "GET", "/v1/facts/fact_3_0/why").json()["removed"]
    assert removed["reason"] == "ended"


def test_a_fact_is_added_with_a_category_of_its_own(story: ThreadServer, window: Window) -> None:
    shown = adding(window)
    shown.get_by_label("Category").select_option("Another…")
    expect(shown.get_by_role("button", name="Save")).to_be_disabled()
    shown.get_by_label("Name of the category").fill("Diet")
    shown.get_by_role("button", name="Save").click()
    expect(shown.get_by_role("status")).to_contain_text("Saved.")
    assert facts(story)["Ada likes Thai food"]["category"] == "Diet"


def test_an_addition_is_undone_from_where_it_is_confirmed(story: ThreadServer, window: Window) -> None:
    shown = adding(window)
    shown.get_by_role("button", name="Save").click()
    shown.get_by_role("button", name="Undo this…").click()
    expect(dialog(window.page).get_by_role("heading", name="Undo update 4")).to_be_visible()
    dialog(window.page).get_by_role("button", name="Undo this update", exact=True).click()
    expect(dialog(window.page).get_by_role("link", name="This is update 5")).to_be_visible()
    assert "Ada likes Thai food" not in facts(story)


def test_a_duplicate_is_refused_in_place_with_a_link_to_the_fact_that_says_it(
    story: ThreadServer, window: Window
) -> None:
    shown = adding(window, "ada is VEGETARIAN")
    window.allow("409")
    shown.get_by_role("button", name="Save").click()
    alert = shown.get_by_role("alert")
    expect(alert).to_contain_text("Memory says this already.")
    expect(alert.get_by_role("link", name="Ada is vegetarian")).to_have_attribute(
        "href", "#/why?user=ada&fact=fact_2_1"
    )
    # Another text is another request.
    shown.get_by_label("What should the agent know?").fill("Ada eats no meat")
    shown.get_by_role("button", name="Save").click()
    expect(shown.get_by_role("status")).to_contain_text("Saved.")
    assert "Ada eats no meat" in facts(story)


def test_a_full_memory_refuses_in_place(story: ThreadServer, window: Window) -> None:
    assert request(story, "PATCH", "/v1/policy", {"max_facts": 10}).is_success
    for number in range(10):
        assert request(story, "POST", "/v1/facts", {"content": f"Ada owns the {number}th bowl"}).is_success
    shown = adding(window)
    window.allow("409")
    shown.get_by_role("button", name="Save").click()
    expect(shown.get_by_role("alert")).to_contain_text("Memory is full")
    expect(shown.get_by_role("alert").get_by_role("link")).to_have_count(1)


def test_what_made_room_is_shown(story: ThreadServer, window: Window) -> None:
    assert request(story, "PATCH", "/v1/policy", {"max_facts": 10}).is_success
    for number in range(7):
        assert request(story, "POST", "/v1/facts", {"content": f"Ada owns the {number}th bowl"}).is_success
    shown = adding(window)
    shown.get_by_role("button", name="Save").click()
    expect(shown.get_by_role("heading", name="Memory was full. These made room:")).to_be_visible()
    expect(shown.locator(".fact.is-removed")).to_have_count(1)


def test_a_fact_is_edited_by_hand(story: ThreadServer, window: Window) -> None:
    shown = editing(window)
    expect(shown.get_by_role("button", name="Save")).to_be_disabled()
    shown.get_by_label("What should the agent know?").fill("Ada's sister is no longer allergic to peanuts")
    shown.get_by_role("button", name="Save").click()
    expect(shown.get_by_role("status")).to_contain_text("Saved. This is update 4")
    edited = facts(story)["Ada's sister is no longer allergic to peanuts"]
    assert (edited["id"], edited["confidence"], edited["byHand"]) == ("fact_3_0", 0.95, True)
    dialog(window.page).get_by_role("button", name="Close").last.click()
    window.settle()
    expect(window.page.get_by_role("heading", level=1)).to_have_text("Ada's sister is no longer allergic to peanuts")
    expect(window.page.locator("[data-seq='4']")).to_contain_text("Edited.")


def test_what_another_tab_changes_while_a_fact_is_edited_is_shown(story: ThreadServer, window: Window) -> None:
    shown = editing(window)
    window.settle()
    expect(window.page.locator(".live-live")).to_have_count(1)
    shown.get_by_label("What should the agent know?").fill("something else")
    assert request(story, "PATCH", "/v1/facts/fact_3_0", {"content": "Ada eats peanuts"}).is_success
    expect(shown.locator(".renewed")).to_contain_text("This fact was changed meanwhile. It now says: Ada eats peanuts")
    expect(shown.get_by_label("What should the agent know?")).to_have_value("something else")
    shown.get_by_role("button", name="Start again from that").click()
    expect(shown.get_by_label("What should the agent know?")).to_have_value("Ada eats peanuts")
    expect(shown.locator(".renewed")).to_have_count(0)
    assert request(story, "DELETE", "/v1/facts/fact_3_0").is_success
    expect(shown.locator(".renewed")).to_contain_text("has left memory meanwhile")


def test_a_fact_is_removed_after_a_question_and_brought_back(story: ThreadServer, window: Window) -> None:
    shown = editing(window, "Remove…")
    expect(shown).to_contain_text("The history keeps it")
    expect(shown.get_by_role("button", name="Cancel")).to_be_focused()
    shown.get_by_role("button", name="Cancel").click()
    assert WRONG in facts(story)
    shown = editing(window, "Remove…")
    shown.get_by_role("button", name="Remove it").click()
    expect(shown.get_by_role("status")).to_contain_text("Removed. This is update 4")
    assert WRONG not in facts(story)
    shown.get_by_role("button", name="Undo this…").click()
    dialog(window.page).get_by_role("button", name="Undo this update", exact=True).click()
    expect(dialog(window.page).get_by_role("link", name="This is update 5")).to_be_visible()
    assert WRONG in facts(story)


def test_removing_begins_also_where_a_fact_is_edited(story: ThreadServer, window: Window) -> None:
    editing(window).get_by_role("button", name="Remove this fact…").click()
    shown = dialog(window.page)
    expect(shown).to_have_count(1)
    shown.get_by_role("button", name="Remove it").click()
    expect(shown.get_by_role("status")).to_contain_text("Removed.")
    assert WRONG not in facts(story)


def test_a_double_click_counts_once(story: ThreadServer, window: Window) -> None:
    shown = adding(window)
    shown.get_by_role("button", name="Save").dblclick()
    expect(shown.get_by_role("status")).to_contain_text("Saved.")
    assert head(story) == 4


@pytest.mark.parametrize("name", ["Save", "Close"])
def test_the_second_click_of_a_double_click_does_not_close_what_has_come_meanwhile(
    story: ThreadServer, window: Window, name: str
) -> None:
    """The answer comes between the two; then `name`, or what is beside the dialog, is where the button was."""
    shown = adding(window)
    mouse = window.page.mouse
    place = shown.get_by_role("button", name="Save").bounding_box()
    assert place is not None
    mouse.move(place["x"] + 5, place["y"] + 5)
    mouse.down()
    mouse.up()
    expect(shown.get_by_role("status")).to_contain_text("Saved.")
    if name == "Close":
        place = shown.get_by_role("button", name="Close", exact=True).last.bounding_box()
        assert place is not None
        mouse.move(place["x"] + 5, place["y"] + 5)
    mouse.down(click_count=2)
    mouse.up(click_count=2)
    window.settle()
    expect(shown.get_by_role("status")).to_contain_text("Saved.")
    shown.get_by_role("button", name="Close", exact=True).last.click()
    expect(shown).to_have_count(0)


@pytest.mark.parametrize("arrives", [True, False])
def test_a_request_that_breaks_is_sent_again_and_counts_once(
    story: ThreadServer, window: Window, *, arrives: bool
) -> None:
    shown = adding(window)
    keys: list[str] = []

    def break_first(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) > 1:
            route.continue_()
            return
        if arrives:
            # The answer is lost on its way.
            route.fetch()
        route.abort("connectionreset")

    window.page.route("**/v1/facts?user=ada", break_first)
    window.allow("ERR_CONNECTION_RESET")
    shown.get_by_role("button", name="Save").click()
    expect(shown.get_by_role("alert")).to_contain_text("cannot be reached")
    shown.get_by_role("button", name="Save").click()
    expect(shown.get_by_role("status")).to_contain_text("This is update 4")
    assert keys[0] == keys[1]
    assert head(story) == 4


def test_text_that_is_selected_beyond_the_dialog_does_not_close_it(window: Window) -> None:
    shown = adding(window)
    field = shown.get_by_label("What should the agent know?").bounding_box()
    assert field is not None
    mouse = window.page.mouse
    mouse.move(field["x"] + 20, field["y"] + 12)
    mouse.down()
    mouse.move(3, 400)
    mouse.up()
    expect(shown).to_be_visible()
    mouse.click(3, 400)
    expect(shown).to_have_count(0)


def test_a_fact_is_tagged_and_found_by_its_tag(story: ThreadServer, window: Window) -> None:
    shown = adding(window)
    shown.get_by_label("Tags").fill("heron,  gull")
    shown.get_by_role("button", name="Save").click()
    expect(shown.locator(".tag")).to_have_text(["heron", "gull"])
    assert facts(story)["Ada likes Thai food"]["tags"] == ["heron", "gull"]
    page = window.go("#/memory?user=ada")
    page.get_by_role("combobox", name="Tag").select_option("gull")
    expect(page.locator(".fact-list .fact-text")).to_have_text(["Ada likes Thai food"])
    expect(page).to_have_url(f"{window.url}/#/memory?user=ada&tag=gull")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".fact-list .fact-text")).to_have_count(4)


def test_an_edit_changes_the_tags_alone_and_leaves_the_attributes(story: ThreadServer, window: Window) -> None:
    request(story, "PATCH", "/v1/facts/fact_3_0", {"tags": ["heron"], "attributes": {"team": "red"}})
    shown = editing(window)
    expect(shown.get_by_label("Tags")).to_have_value("heron")
    shown.get_by_label("Tags").fill("gull")
    shown.get_by_role("button", name="Save").click()
    expect(shown.locator(".tag")).to_have_text(["gull", "team=red"])
    (fact,) = (one for one in facts(story).values() if one["id"] == "fact_3_0")
    assert (fact["tags"], fact["attributes"]) == (["gull"], {"team": "red"})
    page = window.go("#/why?user=ada&fact=fact_3_0")
    expect(page.locator("main")).to_contain_text("Tags: heron, team=red → gull, team=red")
