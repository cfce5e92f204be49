"""Names and texts that try to be more than text: shown as text on each view, and breaking no layout."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from browsing import OpenOn, Window
from fakes import FakeClock
from hosting import Host
from serving import ThreadServer

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(1)</script>"
LONG = "Wide" * 2500
RIGHT_TO_LEFT = "\u202eعائشة تحب الشاي\u202c و قهوة"
TEXTS = (IMAGE, SCRIPT, LONG, RIGHT_TO_LEFT)
AGENT = "Agent-" + "A" * 58
"""The longest name that an agent may have; no other signs are allowed in it."""
EMPTY = '() => document.querySelectorAll("img, main script, main iframe, [onerror]").length'


def learn(server: ThreadServer, scope: dict[str, str], thread: str, said: str, reply: object) -> None:
    """Record a message and the model's answer to it."""
    where = urlencode(scope)
    message = {"role": "user", "content": said, "id": f"turn {said[:40]}", "name": IMAGE}
    delivery = {"thread": thread, "messages": [message], "mode": "append"}
    assert server.post(f"/v1/record?{where}", delivery).is_success
    asked = {"thread": thread, "replies": [{"thread_id": thread, "reply": reply}]}
    done = server.post(f"/v1/extract?{where}", asked).json()
    assert done["failed"] == 0, done


@pytest.fixture(scope="module")
def hostile(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    """A server on memories in which each name and text is hostile."""
    home = tmp_path_factory.mktemp("hostile")
    with host.serving(home, clock=FakeClock()) as server:
        for user in (IMAGE, RIGHT_TO_LEFT, LONG[:400]):
            scope = {"user": user}
            for number, text in enumerate(TEXTS):
                facts = [
                    {"content": text, "category": "context", "confidence": 0.9, "sourceError": text[:900]},
                    {"content": f"{text} refused", "category": text[:60], "confidence": 0.1},
                ]
                summary = {"summary": text, "shouldUpdate": True}
                gone = [] if not number else [{"id": f"fact_{number + 1}_0", "reason": text[:900]}]
                reply = {"user": {"topOfMind": summary}, "newFacts": facts, "factsToRemove": gone}
                learn(server, scope, text[:400], text, reply)
            server.post(f"/v1/revert?{urlencode(scope)}", {"seq": 4})
        learn(
            server, {"user": IMAGE, "agent": AGENT}, IMAGE, IMAGE, {"newFacts": [{"content": LONG, "confidence": 0.9}]}
        )
        yield server
    shutil.rmtree(home)


VIEWS: dict[str, dict[str, str]] = {
    "memory": {},
    "memory ": {"q": "img wide refused"},
    "timeline": {"at": "3"},
    "timeline ": {"thread": IMAGE},
    "graph": {},
    "graph ": {"thread": RIGHT_TO_LEFT},
    "compare": {"a": "2", "b": "5"},
    "compare ": {"what-if": "fact_confidence_threshold 0"},
    "operations": {},
    "why": {"fact": "fact_5_0"},
    "why ": {"fact": "fact_2_0"},
    "why  ": {"section": "user.topOfMind"},
    "why   ": {"commit": "4"},
    "why    ": {"text": IMAGE},
}
"""Views with their parameters; spaces tell those of one name apart."""


def look(window: Window, scope: dict[str, str], views: dict[str, dict[str, str]], found: dict[str, object]) -> None:
    """Open each view and note what is wrong with it."""
    for view, params in views.items():
        page = window.go(f"#/{view.strip()}?{urlencode({**scope, **params}, quote_via=quote)}")
        if wide := window.too_wide():
            found[f"{view} {scope} is too wide"] = wide
        if page.evaluate(EMPTY):
            found[f"{view} {scope} has markup of a text"] = page.locator("main").inner_html()[:2000]


@pytest.mark.parametrize(
    "size", [pytest.param((1280, 800), marks=pytest.mark.torture), (360, 740)], ids=["wide", "narrow"]
)
def test_hostile_names_and_texts_are_text(open_on: OpenOn, hostile: ThreadServer, size: tuple[int, int]) -> None:
    found: dict[str, object] = {}
    window = open_on(hostile, size=size)
    look(window, {"user": IMAGE}, VIEWS, found)
    look(window, {"user": IMAGE, "agent": AGENT}, {"memory": {}, "graph": {}}, found)
    assert found == {}


def test_hostile_facts_are_shown_as_they_are(open_on: OpenOn, hostile: ThreadServer) -> None:
    window = open_on(hostile)
    page = window.go(f"#/memory?{urlencode({'user': LONG[:400]}, quote_via=quote)}")
    remembered = {item["content"] for item in hostile.get(f"/v1/facts?user={LONG[:400]}").json()["items"]}
    assert len(remembered) >= 2
    assert {text.strip() for text in page.locator(".fact-list .fact-text").all_text_contents()} == {
        text.strip() for text in remembered
    }
    assert window.too_wide() == []


def test_hostile_users_can_be_chosen(open_on: OpenOn, hostile: ThreadServer) -> None:
    window = open_on(hostile, size=(360, 740))
    page = window.go()
    options = page.get_by_role("option")
    assert IMAGE in "".join(options.all_inner_texts())
    assert window.too_wide() == []
    options.filter(has_text=IMAGE).first.click()
    window.settle()
    assert page.locator(".fact-list .fact").count() >= 1
    page.locator(".scope").first.click()
    assert window.too_wide() == []
