"""From words to memory over a real server that speaks OpenAI's protocol, and misbehaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doubles.misbehaving import (
    SILENCE,
    Behaviour,
    MisbehavingServer,
    Request,
    Response,
    accepting,
    completion,
    cut_off,
    failure,
    json_response,
)
from fakes import PATIENCE, FakeClock, exchange, open_home, reply

from backstory.home import Backstory
from backstory.ledger.core.events import UpdateFailed
from backstory.ledger.extraction.models.openai import OpenAIModel
from backstory.memory import MemoryHandle

pytestmark = pytest.mark.slow  # servers and processes: more than an inner loop needs

KEY = "sk-secret-0123456789"


class Setting:
    """A server with a script, a home whose configuration points at it, and a conversation recorded in it."""

    def __init__(self, home: Path, server: MisbehavingServer, **settings: object) -> None:
        self.server = server
        self.clock = FakeClock()
        model = {"base_url": server.base_url, "api_key": KEY, "model": "asked-model"}
        self.backstory = open_home(home, clock=self.clock, **{"config": {"model": model}, **settings})
        self.memory: MemoryHandle = self.backstory.memory("ada")
        self.memory.record("t", exchange("tea"))

    @property
    def facts(self) -> list[str]:
        return [fact.content for fact in self.memory.facts()]

    @property
    def parked(self) -> list[tuple[str, int, str, int]]:
        return [(item.thread, item.turns, item.reason, item.attempts) for item in self.memory.status().parked]


Start = Callable[..., Setting]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    servers: list[MisbehavingServer] = []
    homes: list[Backstory] = []

    def begin(*script: Behaviour, repeat: bool = False, **settings: object) -> Setting:
        servers.append(MisbehavingServer(*script, repeat=repeat).__enter__())
        setting = Setting(tmp_path, servers[-1], **settings)
        homes.append(setting.backstory)
        return setting

    yield begin
    for backstory in homes:
        backstory.close()
        close = getattr(backstory._services.model, "close", None)
        if close is not None:
            close()
    for server in servers:
        server.__exit__(None, None, None)


def test_what_was_said_goes_out_and_what_comes_back_is_remembered(start):
    setting = start(completion(reply("Likes tea")))
    result = setting.memory.extract()
    assert (result.updates, result.failed) == (1, 0)
    assert setting.facts == ["Likes tea"]
    (request,) = setting.server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["model"] == "asked-model"
    system, user = request.body["messages"]
    assert "newFacts" in system["content"]
    assert "[1] user: I like tea." in user["content"]
    assert request.body["response_format"]["json_schema"]["schema"]["properties"]["newFacts"]["type"] == "array"
    (entry,) = setting.memory.log(limit=1)
    assert (entry.cause.model, entry.cause.tokens_in, entry.cause.tokens_out) == ("served-model", 11, 7)
    assert setting.memory.verify().ok


def test_what_is_remembered_goes_out_with_the_next_question(start):
    def answer(request: Request) -> Response:
        asked = request.body["messages"][1]["content"]
        return completion(reply("Likes milk", remove=("fact_2_0",)) if "fact_2_0" in asked else reply("Likes tea"))

    setting = start(answer, repeat=True)
    setting.memory.extract()
    setting.memory.record("t", exchange("milk"))
    setting.memory.extract()
    assert setting.facts == ["Likes milk"]


def test_thinking_prose_and_a_fence_around_the_reply_do_no_harm(start):
    text = f'<think>{{"newFacts": "no"}} Hmm.</think>\nSure!\n```json\n{reply("Likes tea")}\n```\nAnything else?'
    setting = start(completion(text))
    assert setting.memory.extract().failed == 0
    assert setting.facts == ["Likes tea"]


def test_a_rate_limit_is_waited_out_as_long_as_the_server_asks(start):
    setting = start(failure(429, "slow down", retry_after="17"), failure(429, "still"), completion(reply("Likes tea")))
    assert setting.memory.extract().failed == 0
    assert setting.facts == ["Likes tea"]
    assert setting.clock.slept == [17, 2]
    assert setting.parked == []


def test_a_server_that_only_fails_parks_the_turns_and_a_retry_mends_it(start):
    setting = start(failure(503, "overloaded"), repeat=True)
    assert setting.memory.extract().failed == 1
    assert len(setting.server.requests) == 5
    assert setting.clock.slept == [1, 2, 4, 8]
    assert setting.parked == [("t", 2, "unavailable", 5)]
    assert "overloaded" in setting.memory.status().parked[0].detail
    assert setting.memory.retry().failed == 1
    assert setting.parked == [("t", 2, "unavailable", 10)]
    setting.server._script = [completion(reply("Likes tea"))]
    assert setting.memory.retry().failed == 0
    assert (setting.facts, setting.parked) == (["Likes tea"], [])


def test_a_server_that_crashes_is_tried_in_every_form_and_parked(start):
    setting = start(failure(500, "crashed"), repeat=True, max_attempts=2)
    assert setting.memory.extract().failed == 1
    assert setting.server.forms == ["json_schema", "json_object", "text"] * 2
    assert setting.parked == [("t", 2, "unavailable", 2)]


@pytest.mark.parametrize(
    ("response", "told"),
    [
        (failure(401, f"bad key {KEY}"), "OPENAI_API_KEY"),
        (failure(403, "not yours"), "not yours"),
        (failure(404, "no such model"), "no such model"),
        (failure(429, "pay first", code="insufficient_quota"), "quota"),
        (failure(400, "prompt too long"), "prompt too long"),
    ],
    ids=["401", "403", "404", "429", "400"],
)
def test_what_waiting_does_not_mend_is_parked_at_once(start, response, told):
    setting = start(response, repeat=True)
    assert setting.memory.extract().failed == 1
    assert setting.clock.slept == []
    assert setting.parked == [("t", 2, "rejected", 1)]
    (parked,) = setting.memory.status().parked
    assert told in parked.detail
    assert KEY not in parked.detail
    assert KEY not in (setting.backstory.home / "users/ada/ledger.jsonl").read_text("utf-8")
    setting.server._script = [completion(reply("Likes tea"))]
    assert setting.memory.retry().failed == 0
    assert setting.facts == ["Likes tea"]


@pytest.mark.parametrize(
    "broken",
    [
        cut_off(completion(reply("x"))),
        Response(200, b"<html>Welcome</html>", {"Content-Type": "text/html"}),
        Response(200, b'{"choices": [', {"Content-Type": "application/json"}),
        Response(200),
        json_response({"choices": []}),
        completion(""),
        json_response({"error": {"message": "provider down"}}),
    ],
    ids=["cut off", "html", "half", "empty", "no choice", "no text", "an error under 200"],
)
def test_an_answer_that_got_lost_is_asked_for_again(start, broken):
    setting = start(broken, broken, completion(reply("Likes tea")))
    assert setting.memory.extract().failed == 0
    assert setting.facts == ["Likes tea"]
    assert setting.clock.slept == [1, 2]


def test_a_server_that_keeps_silent_is_given_up(start):
    silent = start(SILENCE, repeat=True)
    model = OpenAIModel("slow-model", base_url=silent.server.base_url, api_key=KEY, timeout=0.2)
    impatient = open_home(silent.backstory.home, model, clock=silent.clock, max_attempts=2)
    memory = impatient.memory("ada")
    try:
        assert memory.extract().failed == 1
    finally:
        model.close()
    (parked,) = memory.status().parked
    assert (parked.reason, parked.attempts) == ("unavailable", 2)
    assert "silent" in parked.detail
    silent.server._script = [completion(reply("Likes tea"))]
    assert silent.memory.retry().failed == 0
    assert silent.facts == ["Likes tea"]


@pytest.mark.parametrize(
    "text",
    ["I cannot do that.", '{"newFacts": [{"content": "half', "{}", '{"facts": []}', "<think>where was I"],
)
def test_an_answer_that_is_no_reply_parks_the_turns_at_once(start, text):
    setting = start(completion(text), completion(reply("Likes tea")))
    assert setting.memory.extract().failed == 1
    assert len(setting.server.requests) == 1
    assert setting.parked == [("t", 2, "reply", 1)]
    (entry,) = setting.memory.log(limit=1)
    assert [type(event) for event in entry.events] == [UpdateFailed]
    assert (entry.cause.model, entry.cause.tokens_out) == ("served-model", 7)
    assert setting.memory.retry().failed == 0
    assert setting.facts == ["Likes tea"]
    assert setting.parked == []


def test_a_refusal_is_no_reply(start):
    setting = start(completion(None, refusal="I would rather not."))
    assert setting.memory.extract().failed == 1
    assert setting.parked == [("t", 2, "reply", 1)]


def test_an_answer_cut_short_by_its_length_is_no_reply(start):
    setting = start(completion(reply("Likes tea")[:-20], finish_reason="length"))
    assert setting.memory.extract().failed == 1
    assert setting.parked == [("t", 2, "reply", 1)]
    assert setting.facts == []


@pytest.mark.parametrize("form", ["json_object", "text"])
@pytest.mark.parametrize("refusal", [400, 422, 500])
def test_a_server_without_schemas_is_asked_in_a_weaker_form(start, form, refusal):
    def answer(request: Request) -> Response:
        refused = accepting(form, refusal=refusal)(request)
        return completion(reply("Likes tea")) if refused.status == 200 else refused

    setting = start(answer, repeat=True)
    assert setting.memory.extract().failed == 0
    assert setting.facts == ["Likes tea"]
    assert setting.clock.slept == []
    assert setting.server.forms[-1] == form


def test_one_item_that_cannot_be_read_costs_nothing_else(start):
    said = {
        "user": {"workContext": {"summary": "Drinks tea.", "shouldUpdate": True}, "topOfMind": 5},
        "newFacts": [{"content": "Likes tea", "confidence": 0.9, "evidence": [1]}, {"content": 5}, None],
        "factsToRemove": [{"id": "fact_9_9"}],
        "mood": "fine",
    }
    setting = start(completion(json.dumps(said)))
    assert setting.memory.extract().failed == 0
    assert setting.facts == ["Likes tea"]
    assert setting.memory.document().user.work_context.summary == "Drinks tea."
    (fact,) = setting.memory.facts()
    assert [item.content for item in setting.memory.why(fact.id).evidence] == ["I like tea."]
    rules = [event.rule for event in setting.memory.log(limit=1)[0].events if hasattr(event, "rule")]
    assert sorted(rules) == ["malformed", "malformed", "malformed", "unknown_fact"]


def test_workers_learn_over_the_wire_too(start):
    setting = start(
        failure(429, "slow down"), completion(reply("Likes tea")), background=True, debounce_seconds=0, workers=1
    )
    assert setting.memory.flush(PATIENCE)
    assert setting.facts == ["Likes tea"]
    assert 1 in setting.clock.slept


def test_key_and_address_may_come_from_the_environment(start, monkeypatch):
    setting = start(completion(reply("Likes tea")))
    monkeypatch.setenv("OPENAI_BASE_URL", setting.server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("BACKSTORY_MODEL", "named-outside")
    with open_home(setting.backstory.home, clock=setting.clock) as backstory:
        assert backstory.memory("ada").extract().failed == 0
        model = backstory._services.model
        assert model is not None
        assert model.name == "named-outside"
        model.close()
    assert setting.server.requests[0].body["model"] == "named-outside"
    assert setting.facts == ["Likes tea"]
