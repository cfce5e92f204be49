"""Why in the page: the words behind a fact, a section or an update, and what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from browsing import WEB, OpenOn, Window
from fakes import FakeClock, open_home
from hosting import Host
from playwright.sync_api import expect
from serving import ThreadServer

WRONG = "Ada is no longer allergic to peanuts"
TRUE = "Ada is severely allergic to peanuts and carries an EpiPen"
WORDS = "Wonderful news from the clinic today: my sister isn't allergic to peanuts any more! They tested her twice."
PRIMARY = re.compile("primary")
RULES = Path(__file__).resolve().parents[2] / "backstory/ledger/rules"


def request(server: ThreadServer, method: str, path: str, body: object = None) -> httpx.Response:
    """Send a request about ada's memory, as another program does."""
    with server.client() as client:
        return client.request(method, f"{path}{'&' if '?' in path else '?'}user=ada", json=body)


@pytest.fixture
def told(told_story: ThreadServer, open_on: OpenOn) -> Window:
    """A window on a story that stays as it is."""
    return open_on(told_story)


def learn(server: ThreadServer, thread: str, said: str, reply: object) -> None:
    """Record a message of ada's and the model's answer to it."""
    delivery = {"thread": thread, "messages": [{"role": "user", "content": said, "id": "x1"}], "mode": "append"}
    assert request(server, "POST", "/v1/record", delivery).is_success
    done = request(
        server, "POST", "/v1/extract", {"thread": thread, "replies": [{"thread_id": thread, "reply": reply}]}
    )
    assert done.json()["failed"] == 0, done.text


def test_a_fact_shows_the_words_that_it_was_learned_from(told: Window) -> None:
    page = told.go("#/why?user=ada&fact=fact_3_0")
    expect(page.get_by_role("heading", level=1)).to_have_text(WRONG)
    expect(page.locator(".lead")).to_have_text(re.compile("believed this since 6 Mar 2026, because of the words"))
    expect(page.locator("mark")).to_have_text([WORDS])
    expect(page.locator(".turn")).to_have_count(4)
    expect(page.locator(".why-kin")).to_contain_text(f"It replaced{TRUE}")
    page.get_by_role("link", name=TRUE).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(TRUE)


def test_a_fact_that_is_gone_shows_the_words_that_made_it_go(told: Window) -> None:
    page = told.go("#/why?user=ada&fact=fact_2_0")
    expect(page.locator(".lead")).to_contain_text("The agent believed this from 2 Mar 2026 until 6 Mar 2026.")
    expect(page.locator(".lead")).to_contain_text("the clinic found no allergy any more")
    expect(page.locator(".why-words").first).to_contain_text("It went because of these words")
    expect(page.locator(".why-words").first.locator("mark")).to_have_text([WORDS])
    expect(page.locator(".why-words").last.locator("mark")).to_have_text(re.compile("severely allergic to peanuts"))
    button = page.get_by_role("button", name="Undo the update of 6 Mar 2026 that took it out…")
    expect(button).not_to_have_class(PRIMARY)


def test_each_event_of_a_fact_has_its_way_back_beside_it(story: ThreadServer, window: Window) -> None:
    assert request(story, "PATCH", "/v1/facts/fact_3_0", {"content": "Ada eats peanuts", "confidence": 0.8}).is_success
    assert request(story, "DELETE", "/v1/facts/fact_3_0").is_success
    page = window.go("#/why?user=ada&fact=fact_3_0")
    events = page.locator(".why-history .event")
    expect(events).to_have_count(3)
    expect(events.nth(1)).to_contain_text(re.compile(f"From.*{WRONG}.*to.*Ada eats peanuts"))
    expect(events.nth(2)).to_contain_text("A person removed it.")
    for number in range(3):
        expect(events.nth(number).get_by_role("button", name="Undo this update…")).to_be_visible()


def test_a_fact_that_came_back_says_so_and_does_not_invite_to_undo_that(story: ThreadServer, window: Window) -> None:
    page = window.go("#/why?user=ada&fact=fact_3_0")
    button = page.get_by_role("button", name="Undo the update of 6 Mar 2026 that added it…")
    expect(button).to_have_class(PRIMARY)
    assert request(story, "POST", "/v1/revert", {"seq": 3}).is_success
    page = window.go("#/why?user=ada&fact=fact_2_0")
    lead = "It first believed this on 2 Mar 2026, because of the words marked below."
    expect(page.locator(".lead")).to_have_text(
        re.compile(f"{lead}It was taken out on 6 Mar 2026 and came back on 8 Mar 2026. update 4")
    )
    button = page.get_by_role("button", name="Undo the update of 8 Mar 2026 that brought it back…")
    expect(button).not_to_have_class(PRIMARY)
    expect(page.locator(".why-kin")).to_contain_text(f"For a time it was replaced by{WRONG}")
    expect(page.locator(".why-actions .primary")).to_have_count(0)


def test_the_history_names_what_undid_an_update_as_long_as_that_holds(story: ThreadServer, window: Window) -> None:
    assert request(story, "POST", "/v1/revert", {"seq": 3}).is_success
    page = window.go("#/why?user=ada&fact=fact_3_0")
    learned, undone = page.locator("[data-seq='3']"), page.locator("[data-seq='4']")
    expect(learned).to_contain_text("Undone by update 4")
    expect(learned.get_by_role("button")).to_have_count(0)
    expect(undone.get_by_role("button")).to_have_text("Undo this update…")
    assert request(story, "POST", "/v1/revert", {"seq": 4}).is_success
    expect(undone).to_contain_text("Undone by update 5")
    expect(learned.get_by_role("button")).to_have_text("Undo this update…")
    learned.get_by_role("link", name="update 3").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Update 3")


def test_a_reason_has_no_line_above_it(told: Window) -> None:
    page = told.go("#/why?user=ada&fact=fact_2_0")
    reason = page.get_by_text("A model's update removed it.").first
    assert reason.evaluate("(one) => getComputedStyle(one).borderTopWidth") == "0px"


def test_where_nothing_was_cited_it_says_so(story: ThreadServer, window: Window) -> None:
    learn(story, "walk", "I have a dog.", {"newFacts": [{"content": "Ada has a dog", "confidence": 0.9}]})
    page = window.go("#/why?user=ada&fact=fact_4_0")
    expect(page.locator(".lead")).to_contain_text("The model did not say which words")
    expect(page.locator(".why-words")).to_contain_text("The model cited nothing.")
    expect(page.locator(".turn.is-read")).to_have_text(re.compile("I have a dog."))
    expect(page.locator("mark")).to_have_count(0)


def test_a_fact_entered_by_hand_has_no_words(story: ThreadServer, window: Window) -> None:
    fact = request(story, "POST", "/v1/facts", {"content": "Ada likes Thai food"}).json()["fact"]["id"]
    page = window.go(f"#/why?user=ada&fact={fact}")
    expect(page.locator(".lead")).to_contain_text("Entered by hand on 8 Mar 2026.")
    expect(page.locator(".conversation")).to_have_count(0)


def test_more_of_a_long_conversation_comes_on_request(story: ThreadServer, window: Window) -> None:
    said = [{"role": "user", "content": f"Message {n} about nothing", "id": f"n{n}"} for n in range(60)]
    assert request(story, "POST", "/v1/record", {"thread": "long", "messages": said, "mode": "append"}).is_success
    reply = {"newFacts": [{"content": "Ada talks a lot", "confidence": 0.9, "evidence": ["n30"]}]}
    answer = [{"thread_id": "long", "reply": reply}]
    assert request(story, "POST", "/v1/extract", {"thread": "long", "replies": answer}).json()["failed"] == 0
    page = window.go("#/why?user=ada&fact=fact_4_0")
    expect(page.locator("mark")).to_have_text("Message 30 about nothing")
    assert page.locator(".turn").count() < 12
    page.get_by_role("button", name="What was said before").click()
    expect(page.get_by_text("Message 12 about nothing")).to_be_visible()
    page.get_by_role("button", name="What was said after").click()
    expect(page.get_by_text("Message 40 about nothing")).to_be_visible()
    numbers = [int(re.findall(r"Message (\d+)", text)[0]) for text in page.locator(".turn").all_inner_texts()]
    assert numbers == sorted(set(numbers))


def test_a_section_shows_what_was_read_and_every_text_it_had(told: Window) -> None:
    page = told.go("#/why?user=ada&section=user.topOfMind")
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "A festive dinner for two on Sunday; peanuts are fine now."
    )
    expect(page.locator(".turn.is-read")).to_have_count(4)
    expect(page.locator(".event")).to_have_count(2)
    expect(page.locator(".event").first.get_by_role("button", name="Undo this update…")).to_be_visible()
    told.allow("404")
    page = told.go("#/why?user=ada&section=history.recentMonths")
    expect(page.locator(".lead")).to_have_text("Nothing was ever written here.")


def test_an_update_shows_what_it_did_not_take_in_and_what_it_would_take(told: Window) -> None:
    page = told.go("#/why?user=ada&commit=2")
    expect(page.locator(".changes .fact.is-added")).to_have_count(3)
    refusal = page.locator(".refusal")
    expect(refusal).to_contain_text("Ada likes Thai food")
    expect(refusal).to_contain_text("It was not certain enough for the policy.")
    refusal.get_by_text("What would it take?").click()
    expect(refusal).to_contain_text("A confidence threshold of 0.40 or less.")
    expect(page.locator(".json")).to_be_hidden()
    page.get_by_text("All events, as recorded").click()
    expect(page.locator(".json")).to_contain_text('"type": "CandidateRejected"')
    expect(page.locator("dl.cause")).to_contain_text("an answer supplied by a program")


def test_what_the_cap_took_out_was_pushed_out_in_every_view(open_on: OpenOn, host: Host, tmp_path: Path) -> None:
    with open_home(tmp_path, clock=FakeClock(), max_facts=10) as backstory:
        memory = backstory.memory(user_id="ada")
        facts = [{"content": f"Ada owns book {n}", "confidence": 0.72 + n / 100} for n in range(10)]
        memory.import_document({"facts": facts})
        gone = memory.add_fact("Ada has a dog").evicted[0]
    with host.serving(tmp_path, clock=FakeClock(), max_facts=10) as server:
        window = open_on(server)
        for address in ("#/timeline?user=ada", "#/why?user=ada&commit=3"):
            page = window.go(address)
            expect(page.locator(".mark-removed")).to_have_text(["pushed out"])
        page = window.go(f"#/why?user=ada&fact={gone.id}")
        expect(page.locator(".rule-said").first).to_have_text(
            "It was pushed out: memory was full, and all the others ranked higher."
        )


def test_what_is_missing_is_found_with_its_rule(told: Window) -> None:
    page = told.go("#/why?user=ada")
    page.get_by_role("searchbox").fill("thai food")
    page.keyboard.press("Enter")
    expect(page.locator(".refusal")).to_contain_text("It was not certain enough for the policy.")
    assert "text=thai+food" in page.url
    page.get_by_role("searchbox").fill("vegetarian")
    page.keyboard.press("Enter")
    expect(page.locator(".why-not .fact")).to_contain_text("Ada is vegetarian")
    page.get_by_role("searchbox").fill("unicorns")
    page.keyboard.press("Enter")
    expect(page.locator(".why-not")).to_contain_text("Nothing like it was ever suggested")


def test_an_open_view_shows_what_another_tab_changes(story: ThreadServer, window: Window) -> None:
    page = window.go("#/why?user=ada&fact=fact_3_0")
    expect(page.locator(".live-live")).to_have_count(1)
    assert request(story, "POST", "/v1/revert", {"seq": 3}).is_success
    expect(page.locator(".why-kind")).to_have_text("No longer in memory")
    expect(page.locator("[data-seq='4']")).to_contain_text("An undo took it out.")
    window.settle()


def test_a_fact_that_never_was_is_not_found(told: Window) -> None:
    told.allow("404")
    page = told.go("#/why?user=ada&fact=fact_9_9")
    expect(page.get_by_role("heading", level=1)).to_have_text("No fact ever had this id.")


HOSTILE = {
    "image": "<img src=x onerror=alert(1)>",
    "closing": "</mark><script>alert(1)</script>",
    "long": "x" * 2_500,
    "right-to-left": "\u202eمرحبا بالعالم\u202c",
}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=name, marks=pytest.mark.torture if name == "image" else ())
        for name, text in HOSTILE.items()
    ],
)
def test_hostile_words_are_shown_as_text(story: ThreadServer, open_on: OpenOn, text: str) -> None:
    thread = text[:200]
    learn(story, thread, text, {"newFacts": [{"content": f"A {text}", "confidence": 0.9, "evidence": ["x1"]}]})
    window = open_on(story, size=(360, 740))
    page = window.go("#/why?user=ada&fact=fact_4_0")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"A {text}")
    expect(page.locator("mark")).to_have_text([text])
    assert window.too_wide() == []
    page.get_by_role("button", name="Forget…").click()
    window.settle()
    assert page.get_by_role("dialog").evaluate("(one) => one.scrollWidth <= one.clientWidth")


def test_a_category_called_as_what_each_object_inherits_is_shown_by_its_name(told: Window) -> None:
    shown = told.go("#/why?user=ada").evaluate(
        """async (names) => {
          const { html, render } = await import("/page/lib/html.js");
          const { Category } = await import("/page/components/fact.js");
          const place = document.createElement("div");
          render(html`<p>${names.map((category) => html`<${Category} category=${category} />`)}</p>`, place);
          return [...place.querySelectorAll(".category")].map((one) => [one.textContent, one.className]);
        }""",
        ["constructor", "toString", "goal"],
    )
    other = "category category-other"
    assert shown == [["constructor", other], ["toString", other], ["goal", "category category-goal"]]


def test_a_caller_of_this_machine_is_named_in_plain_words(story: ThreadServer, window: Window) -> None:
    assert request(story, "POST", "/v1/revert", {"seq": 3}).is_success
    page = window.go("#/why?user=ada&fact=fact_3_0")
    expect(page.locator("[data-seq='4'] .event-head")).to_contain_text("through the page or the API")
    page = window.go("#/why?user=ada&commit=4")
    expect(page.locator("dl.cause")).to_contain_text("through the page or the API")


SHOWN = ("fact=fact_3_0", "fact=fact_2_0", "section=user.topOfMind", "commit=2", "text=thai")


def test_it_fits_on_a_phone_in_chinese(told_story: ThreadServer, open_on: OpenOn) -> None:
    window = open_on(told_story, size=(360, 740), dark=True, language="zh-CN")
    for of in SHOWN:
        page = window.go(f"#/why?user=ada&{of}")
        expect(page.locator(".why")).to_contain_text("少了什么吗")
        assert window.too_wide() == [], of


def test_each_rule_has_a_sentence() -> None:
    code = "".join(file.read_text("utf-8") for file in sorted(RULES.glob("*.py")))
    rules = set(re.findall(r'(?:Verdict|CandidateRejected)\(\s*(?:[\w.]+,\s*)?"([a-z_]+)"', code))
    rules |= {"by_hand", "basis", "covered"}
    assert rules >= {"duplicate", "threshold", "cap", "unknown_fact", "older"}
    reasons = {"model", "stale", "consolidated", "hand", "clear", "import", "revert", "rollback", "erased"}
    words = (WEB / "components/refusals.words.js").read_text("utf-8")
    for language in words.split("zh: {"):
        assert {f"rule-{name}" for name in rules | reasons} - set(re.findall(r'"(rule-[a-z_]+)"', language)) == set()


def test_an_answer_shows_what_the_agent_had_read(story: ThreadServer, open_on: OpenOn) -> None:
    given = request(story, "POST", "/v1/context", {"messages": "Is satay made of peanuts?"}).json()
    note = {name: given[name] for name in ("seq", "digest", "facts", "turns")}
    messages = [
        {"role": "user", "content": "May I have satay? I like nuts.", "id": "q9"},
        {"role": "assistant", "content": "Better not.", "id": "a9", "metadata": {"context": note}},
    ]
    delivery = {"thread": "sunday", "messages": messages, "mode": "append"}
    assert request(story, "POST", "/v1/record", delivery).is_success
    reply = {
        "newFacts": [{"content": "Ada likes nuts", "category": "preference", "confidence": 0.9, "evidence": ["q9"]}]
    }
    done = request(
        story, "POST", "/v1/extract", {"thread": "sunday", "replies": [{"thread_id": "sunday", "reply": reply}]}
    )
    (seq,) = done.json()["commits"]
    page = open_on(story).go(f"#/why?user=ada&fact=fact_{seq}_0")
    page.get_by_role("button", name="What had it read?").click()
    expect(page.locator(".given-facts li")).to_have_count(len(given["facts"]))
    assert given["turns"]
    expect(page.locator(".given-turns li")).to_have_count(len(given["turns"]))
    expect(page.locator(".given-turns")).to_contain_text("peanuts")
    expect(page.locator(".given .hint").first).to_contain_text(f"commit {given['seq']}")
    expect(page.locator('[data-turn="q9"] .given')).to_have_count(0)
