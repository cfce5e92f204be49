"""Two moments side by side on the page, and what memory would be under other rules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import OpenOn
from fakes import open_home
from hosting import Host
from playwright.sync_api import Locator, Page, Request, Route, expect
from serving import ThreadServer, token

TRUE_FACT = "Ada is severely allergic to peanuts and carries an EpiPen"
WRONG_FACT = "Ada is no longer allergic to peanuts"
SURE = {"User lives in Oslo": 0.95, "User likes rye bread": 0.85, "User plays chess": 0.75}
UNSURE = "User may like jazz"


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which a model's update added three facts and was refused a fourth for its confidence."""
    home = tmp_path_factory.mktemp("learned") / "home"
    facts = {**SURE, UNSURE: 0.55}
    reply = {"newFacts": [{"content": text, "confidence": sure} for text, sure in facts.items()]}
    with open_home(home) as bs:
        memory = bs.memory(user_id="ada")
        memory.record("talk", [{"role": "user", "content": "Oslo, rye bread, chess", "id": "u1"}])
        memory.extract([{"thread_id": "talk", "reply": reply}])
        memory.add_fact("User has a dog")
    return home


@pytest.fixture(scope="module")
def tried(host: Host, learned: Path) -> Iterator[ThreadServer]:
    """A server for tests that write nothing."""
    with host.serving(learned) as server:
        yield server


def questions(page: Page) -> list[object]:
    """The policies that are asked for from now on."""
    asked: list[object] = []

    def hear(request: Request) -> None:
        if "/v1/what-if" in request.url:
            asked.append(json.loads(request.post_data or "{}")["policy"])

    page.on("request", hear)
    return asked


def rule(page: Page, key: str) -> Locator:
    return page.locator(f".rule[data-key={key}]")


def zone(page: Page, name: str) -> Locator:
    return page.locator(f".zone-{name} .fact")


# Two moments.


def test_the_last_update_is_compared_unless_moments_are_named(open_on: OpenOn, told_story: ThreadServer) -> None:
    page = open_on(told_story).go("#/compare?user=ada")
    expect(page.locator(".only-first .fact")).to_have_count(1)
    expect(page.locator(".only-first .fact")).to_contain_text(TRUE_FACT)
    expect(page.locator(".only-second .fact")).to_contain_text(WRONG_FACT)
    section = page.locator("article", has_text="On their mind")
    expect(section.locator(".only-first")).to_contain_text("without peanuts")
    expect(section.locator(".only-second")).to_contain_text("peanuts are fine now")
    expect(page.get_by_role("heading", name="1 fact only at the first moment")).to_be_visible()
    assert "a=" not in page.url
    expect(page.locator(".compare-caption").last).to_contain_text("+1 fact, −1 fact, 1 section rewritten")
    expect(page.get_by_role("slider", name="First moment: update by slider")).to_have_attribute("min", "1")


def test_a_link_names_both_moments_and_swapping_them_turns_it_round(open_on: OpenOn, told_story: ThreadServer) -> None:
    page = open_on(told_story).go("#/compare?user=ada&a=1&b=2")
    expect(page.get_by_text("No fact was lost on the way.")).to_be_visible()
    count = page.locator(".only-second .fact").count()
    assert count > 1
    page.get_by_role("button", name="Swap the two moments").click()
    expect(page.locator(".only-first .fact")).to_have_count(count)
    expect(page.get_by_text("No fact was gained on the way.")).to_be_visible()
    assert page.url.endswith("a=2&b=1")


def test_a_moment_is_chosen_by_slider_number_and_time(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story)
    page = window.go("#/compare?user=ada")
    page.get_by_role("slider", name="Second moment: update by slider").press("ArrowLeft")
    expect(page.get_by_text("Memory is the same at both moments.")).to_be_visible()
    page.get_by_role("spinbutton", name="First moment: number of the update").fill("1")
    page.keyboard.press("Enter")
    expect(page.locator(".compare-moment").first).to_contain_text("0 facts")
    assert page.url.endswith("a=1&b=2")
    page.get_by_label("Second moment: date and time").fill("2026-03-04T12:00:00")
    window.settle()
    assert page.url.endswith("b=2026-03-04T11%3A00%3A00.000Z")
    expect(page.get_by_role("spinbutton", name="Second moment: number of the update")).to_have_value("2")
    window.settle()
    page.get_by_role("spinbutton", name="Second moment: number of the update").fill("999")
    page.keyboard.press("Enter")
    expect(page.get_by_role("slider", name="Second moment: update by slider")).to_have_value("3")


def test_the_last_update_follows_what_is_committed_now(open_on: OpenOn, story: ThreadServer) -> None:
    page = open_on(story).go("#/compare?user=ada")
    expect(page.locator(".live-live")).to_be_visible()
    story.post("/v1/facts", {"content": "Ada has a dog"}, params={"user": "ada"})
    expect(page.locator(".only-second .fact")).to_contain_text("Ada has a dog")
    expect(page.locator(".only-first .fact")).to_have_count(0)


def test_changed_facts_show_both_sides(open_on: OpenOn, story: ThreadServer) -> None:
    fact = story.get("/v1/facts?user=ada").json()["items"][0]
    with story.client() as client:
        client.patch(f"/v1/facts/{fact['id']}", params={"user": "ada"}, json={"content": "Ada lives in Bergen"})
    page = open_on(story).go("#/compare?user=ada")
    expect(page.get_by_role("heading", name="1 fact changed")).to_be_visible()
    expect(page.locator(".compare-pair .only-first")).to_contain_text(fact["content"])
    expect(page.locator(".compare-pair .only-second")).to_contain_text("Ada lives in Bergen")


def test_hostile_texts_are_shown_as_texts_and_break_no_layout(open_on: OpenOn, story: ThreadServer) -> None:
    texts = ["<img src=x onerror=alert(1)></p>", "y" * 900, "أحب القهوة"]
    for text in texts:
        assert story.post("/v1/facts", {"content": text}, params={"user": "ada"}).status_code == 201
    window = open_on(story, size=(360, 740), dark=True)
    page = window.go("#/compare?user=ada&a=3&b=6")
    for text in texts:
        expect(page.locator(".only-second .fact", has_text=text)).to_have_count(1)
    assert window.too_wide() == []
    assert page.locator("main img").count() == 0


def test_the_view_in_chinese_on_a_phone(open_on: OpenOn, told_story: ThreadServer) -> None:
    window = open_on(told_story, size=(360, 740), language="zh-CN")
    page = window.go("#/compare?user=ada")
    expect(page.get_by_role("heading", level=1)).to_have_text("对比")
    expect(page.locator(".only-second .fact")).to_contain_text(WRONG_FACT)
    assert window.too_wide() == []
    window.go("#/compare?user=ada&what-if=none")
    assert window.too_wide() == []


def test_an_empty_memory_is_said_to_be_empty(open_on: OpenOn, host: Host, tmp_path: Path) -> None:
    with host.serving(tmp_path) as server:
        page = open_on(server).go("#/compare")
        expect(page.get_by_text("Nothing is remembered yet")).to_be_visible()


# What if.


def test_a_link_with_rules_shows_what_would_go(open_on: OpenOn, tried: ThreadServer) -> None:
    window = open_on(tried)
    asked = questions(window.page)
    page = window.go("#/compare?user=ada&what-if=max_facts+2")
    expect(page.locator(".what-if-state")).to_have_text("2 facts instead of 4: 2 would go, 0 would come")
    expect(zone(page, "goes")).to_have_count(2)
    expect(page.locator(".zone-goes")).to_contain_text("User plays chess")
    expect(page.locator(".zone-goes")).to_contain_text("would go")
    expect(zone(page, "both")).to_have_count(2)
    assert asked == [{"max_facts": 2}]


def test_a_lower_threshold_brings_in_what_was_refused(open_on: OpenOn, tried: ThreadServer) -> None:
    window = open_on(tried)
    page = window.go("#/compare?user=ada&what-if=none")
    expect(zone(page, "both")).to_have_count(4)
    expect(page.locator(".what-if-state")).to_contain_text("Nothing is changed yet")
    rule(page, "fact_confidence_threshold").get_by_role("spinbutton").fill("0.5")
    page.keyboard.press("Enter")
    expect(zone(page, "comes")).to_have_count(1)
    expect(page.locator(".zone-comes")).to_contain_text(UNSURE)
    assert page.url.endswith("what-if=fact_confidence_threshold+0.5")
    rule(page, "fact_confidence_threshold").get_by_role("button", name="Reset: How sure a fact must be").click()
    expect(page.locator(".zone-comes")).to_have_count(0)
    assert page.url.endswith("what-if=none")


def test_a_slider_asks_when_it_is_let_go_and_where_it_rests(open_on: OpenOn, tried: ThreadServer) -> None:
    window = open_on(tried)
    asked = questions(window.page)
    page = window.go("#/compare?user=ada&what-if=none")
    slider = rule(page, "fact_confidence_threshold").get_by_role("slider")
    slider.evaluate("(one) => { one.value = 90; one.dispatchEvent(new Event('input', { bubbles: true })) }")
    expect(rule(page, "fact_confidence_threshold").get_by_role("spinbutton")).to_have_value("0.9")
    window.settle()
    assert asked == []
    slider.evaluate(
        "(one) => { for (one.value of [80, 90]) one.dispatchEvent(new Event('change', { bubbles: true })) }"
    )
    expect(zone(page, "goes")).to_have_count(2)
    assert asked == [{"fact_confidence_threshold": 0.9}]


def test_a_question_under_way_says_so_and_can_be_stopped(open_on: OpenOn, tried: ThreadServer) -> None:
    window = open_on(tried)
    page = window.go("#/compare?user=ada&what-if=none")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/what-if*", hold)
    rule(page, "max_facts").get_by_role("spinbutton").fill("2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("progressbar", name="Deciding the history again…")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".what-if-state")).to_contain_text("Stopped.")
    page.unroute("**/v1/what-if*")
    page.get_by_role("button", name="Ask again").click()
    expect(zone(page, "goes")).to_have_count(2)


def test_every_policy_key_has_a_name_and_a_field(open_on: OpenOn, tried: ThreadServer) -> None:
    window = open_on(tried)
    page = window.go("#/compare?user=ada&what-if=none")
    for group in page.locator(".rule-group summary").all()[1:]:
        group.click()
    items = tried.get("/v1/policy/keys?user=ada").json()["items"]
    # What is named in words changes nothing where old replies are decided again.
    known = {item["key"]: item for item in items if item["type"] not in ("text", "categories")}
    assert {one.get_attribute("data-key") for one in page.locator(".rule").all()} == set(known)
    fields = {"boolean": "[role=switch]", "choice": "select", "list": "input[type=checkbox]"}
    for key, item in known.items():
        expect(rule(page, key).locator(fields.get(item["type"], "input[type=range]")).first).to_be_visible()
        assert rule(page, key).locator(".rule-name").inner_text() != key


def test_a_switch_a_choice_a_list_and_weights_go_into_the_link(open_on: OpenOn, tried: ThreadServer) -> None:
    window = open_on(tried)
    asked = questions(window.page)
    page = window.go("#/compare?user=ada&what-if=none")
    for group in page.locator(".rule-group summary").all()[1:]:
        group.click()
    rule(page, "gate_enabled").get_by_role("switch").uncheck()
    rule(page, "dedup_key").get_by_role("combobox").select_option("exact")
    rule(page, "staleness_protected_categories").get_by_role("checkbox", name="goal").check()
    rule(page, "eviction_confidence_weight").get_by_role("spinbutton").fill("0.3")
    with page.expect_request(lambda request: "eviction_confidence_weight" in (request.post_data or "")):
        page.keyboard.press("Enter")
    window.settle()
    first = asked[-1]
    # What the other two weights share keeps its proportion.
    assert first == {
        "eviction_confidence_weight": 0.3,
        "eviction_confirmation_weight": 0.5,
        "eviction_access_weight": 0.2,
        "gate_enabled": False,
        "dedup_key": "exact",
        "staleness_protected_categories": ["goal", "correction"],
    }
    address = page.url
    page.get_by_role("button", name="Reset all").click()
    expect(page.locator(".rule.is-chosen")).to_have_count(0)
    window.settle()
    window.close()
    # The link says it all.
    again = open_on(tried)
    asked = questions(again.page)
    with again.page.expect_request("**/v1/what-if*"):
        again.go(address.removeprefix(f"{tried.url}/"))
    assert asked == [first]


def test_a_value_out_of_range_and_an_unknown_rule_are_said_to_be(open_on: OpenOn, tried: ThreadServer) -> None:
    window = open_on(tried)
    asked = questions(window.page)
    window.allow("failure shown at .*what-if=nothing")
    page = window.go("#/compare?user=ada&what-if=nothing+3")
    expect(page.get_by_role("alert")).to_have_text("The link names a rule that this server does not know: nothing")
    rule(page, "max_facts").get_by_role("spinbutton").fill("0")
    page.keyboard.press("Enter")
    expect(rule(page, "max_facts").get_by_role("alert")).to_contain_text("between 1 and 1,000,000")
    assert asked == []


def test_trying_writes_nothing_and_applying_asks_first(
    open_on: OpenOn, host: Host, learned: Path, tmp_path: Path
) -> None:
    shutil.copytree(learned, tmp_path / "home")
    with host.serving(tmp_path / "home") as server:
        window = open_on(server)
        before = server.get("/v1/head?user=ada").json()
        page = window.go("#/compare?user=ada&what-if=max_facts+2")
        expect(zone(page, "goes")).to_have_count(2)
        assert server.get("/v1/head?user=ada").json() == before
        page.get_by_role("button", name="Use these rules from now on…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("row")).to_contain_text(["Rule", "Most facts in memory"])
        dialog.get_by_role("button", name="Cancel").click()
        assert server.get("/v1/head?user=ada").json() == before
        page.get_by_role("button", name="Use these rules from now on…").click()
        dialog.get_by_role("button", name="Use these rules", exact=True).click()
        expect(page.locator(".applied")).to_contain_text("2 facts left memory.")
        expect(zone(page, "both")).to_have_count(2)
        expect(rule(page, "max_facts")).to_contain_text("now 2")
        assert server.get("/v1/policy?user=ada").json()["policy"]["max_facts"] == 2
        expect(page.locator(".applied").get_by_role("link")).to_have_attribute(
            "href", f"#/timeline?user=ada&at={before['seq'] + 1}"
        )
        window.settle()


def test_who_may_only_read_may_try_and_not_apply(open_on: OpenOn, host: Host, tmp_path: Path) -> None:
    with open_home(tmp_path) as bs:
        bs.memory(user_id="ada").add_fact("User has a dog")
    reader = token(tmp_path, "reader", "ada", right="read")["Authorization"].split()[1]
    with host.serving(tmp_path) as server:
        page = open_on(server, token=reader).go("#/compare?user=ada&what-if=none")
        expect(page.get_by_text("Your token may read only")).to_be_visible()
        expect(page.get_by_role("button", name="Use these rules from now on…")).to_have_count(0)


def test_facts_glide_between_the_sides_unless_less_motion_is_wanted(open_on: OpenOn, tried: ThreadServer) -> None:
    for motion in ("no-preference", "reduce"):
        window = open_on(tried)
        window.page.emulate_media(reduced_motion=motion)
        page = window.go("#/compare?user=ada&what-if=none")
        page.evaluate(
            """() => {
              window.moved = 0;
              const animate = (window.animateAsEver = Element.prototype.animate);
              Element.prototype.animate = function (...given) { window.moved += 1; return animate.apply(this, given) };
            }"""
        )
        rule(page, "max_facts").get_by_role("spinbutton").fill("2")
        page.keyboard.press("Enter")
        expect(zone(page, "goes")).to_have_count(2)
        assert (page.evaluate("window.moved") > 0) is (motion == "no-preference")
        # What moved comes to rest, and nothing of it stays behind.
        expect(page.locator(".board [inert]")).to_have_count(0)
        page.evaluate("() => { Element.prototype.animate = window.animateAsEver }")
        window.close()
