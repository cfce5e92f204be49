"""Scaffolding and titles: what harnesses put into messages is forwarded, and not recorded as the user's words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import open_home
from served import served
from upstreams import StandIn, completion, document, response

from backstory.http.proxy import Proxy
from backstory.ledger.core.errors import ConfigError

AGENTS = "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nI always use tabs.\n</INSTRUCTIONS>"
ENVIRONMENT = "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>"
QUESTION = "Where do I live?"


def asks(*messages: tuple[str, object]) -> dict[str, object]:
    said = [{"role": role, "content": content} for role, content in messages]
    return {"model": "m", "user": "ada", "messages": said}


def test_what_a_harness_puts_before_the_words_is_forwarded_and_not_recorded(proxy, upstream):
    body = asks(("user", AGENTS), ("user", f"{ENVIRONMENT}\n{QUESTION}"))
    answer = proxy.post(json=body)
    assert upstream.last.body["messages"][-2:] == body["messages"]
    assert answer.headers["x-backstory-skipped"] == "agents-md, environment-context"
    assert proxy.turns() == {"thread-1": [QUESTION, "You live in Bergen."]}
    memory = proxy.home.memory("ada")
    assert [(one.wrapper, one.characters, one.turn) for one in memory.skipped("thread-1")] == [
        ("agents-md", len(AGENTS), "t1"),
        ("environment-context", len(ENVIRONMENT), "t1"),
    ]


def test_a_harness_puts_it_into_parts_of_a_message(proxy, upstream):
    texts = (AGENTS, QUESTION, "<environment_details>\n</environment_details>")
    parts = [{"type": "input_text", "text": text} for text in texts]
    upstream.then(document(response("In Bergen.")))
    answer = proxy.post("/responses", json={"user": "ada", "input": [{"role": "user", "content": parts}]})
    assert answer.headers["x-backstory-skipped"] == "agents-md, environment-details"
    assert proxy.turns() == {"thread-1": [QUESTION, "In Bergen."]}


def test_a_harness_that_tells_it_again_does_not_hide_the_thread(proxy):
    proxy.post(json=asks(("user", AGENTS), ("user", QUESTION)))
    told = [
        ("user", AGENTS),
        ("user", QUESTION),
        ("assistant", "Bergen!"),
        ("user", ENVIRONMENT),
        ("user", "Since when?"),
    ]
    assert proxy.post(json=asks(*told)).headers["x-backstory-skipped"] == "environment-context"
    assert proxy.turns() == {"thread-1": [QUESTION, "You live in Bergen.", "Since when?", "You live in Bergen."]}


def test_the_steps_of_an_agent_that_acts_in_text_are_answers_to_one_question(proxy, upstream):
    told: list[tuple[str, object]] = [("user", QUESTION)]
    steps = ["Thought: I look it up.\nAction: search[home]", "Action: search[address]", "Final Answer: in Bergen"]
    for n, step in enumerate(steps):
        upstream.then(completion(step))
        proxy.post(json=asks(*told))
        told += [("assistant", step.strip()), ("user", f"Observation: page {n}")]
    assert proxy.turns() == {"thread-1": [QUESTION, *steps]}


def test_a_request_of_scaffolding_alone_is_not_recorded(proxy):
    answer = proxy.post(json=asks(("user", AGENTS)))
    assert answer.headers["x-backstory-skipped"] == "agents-md"
    assert proxy.turns() == {}


def test_words_in_the_middle_and_a_persons_own_tags_stay(proxy):
    said = f"What is this: {ENVIRONMENT}?"
    answer = proxy.chat(said)
    assert "x-backstory-skipped" not in answer.headers
    assert proxy.turns()["thread-1"][0] == said


def test_a_folder_of_patterns_adds_wrappers(tmp_path: Path, upstream: StandIn):
    patterns = tmp_path / "patterns"
    patterns.mkdir()
    (patterns / "scaffolding.toml").write_text('[[wrapper]]\nname = "crm"\nbegins = "[customer"\nends = "]"\n')
    with open_home(tmp_path / "home", patterns_dir=str(patterns)) as bs, served(bs, upstream.base_url) as proxy:
        assert proxy.chat("[customer 12] Where is my order?").headers["x-backstory-skipped"] == "crm"
        assert proxy.turns()["thread-1"][0] == "Where is my order?"
    (patterns / "scaffolding.toml").write_text("[[wrapper]")
    with open_home(tmp_path / "home", patterns_dir=str(patterns)) as bs, pytest.raises(ConfigError):
        Proxy(bs)


@pytest.mark.parametrize(
    ("system", "said"),
    [
        (None, "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\nUSER: hi"),
        ("You are a title generator. You output ONLY a thread title. Nothing else.\n<task>", "Say where I live"),
    ],
)
def test_a_request_for_a_title_has_no_memory_and_says_so(proxy, upstream, system, said):
    body = asks(*([("system", system)] if system else []), ("user", said))
    raw = json.dumps(body).encode()
    assert proxy.post(content=raw).headers["x-backstory-memory"] == "title"
    assert upstream.last.raw == raw
    assert proxy.turns() == {}


# Modes.


def test_a_client_reads_memory_without_being_recorded(proxy, upstream):
    answer = proxy.chat(QUESTION, X_Backstory_Mode="read")
    assert answer.headers["x-backstory-memory"] == "used"
    assert "User lives in Bergen" in upstream.last.raw.decode()
    assert proxy.turns() == {}


def test_a_client_switches_memory_off_for_a_request(proxy, upstream):
    answer = proxy.chat(QUESTION, X_Backstory_Mode="off")
    assert answer.headers["x-backstory-memory"] == "off"
    assert "Bergen" not in upstream.last.raw.decode()
    assert proxy.turns() == {}


@pytest.mark.parametrize("mode", ["read", "off"])
def test_what_was_said_while_a_client_was_not_recorded_is_not_recorded_later(proxy, mode):
    said = ["I live in Bergen by the sea", "You live in Bergen."]
    proxy.chat(said[0])
    said += ["I owe my bank a million", "You live in Bergen."]
    proxy.chat(*said[:3], X_Backstory_Mode=mode)
    for question in ("What is the weather like?", "And tomorrow, what will it be?"):
        proxy.chat(*said, question)
        said += [question, "You live in Bergen."]
    assert proxy.turns() == {"thread-1": [*said[:2], *said[4:]]}


@pytest.mark.parametrize("name", ["Mode", "History", "Facts"])
def test_a_value_that_a_header_cannot_have_is_refused(proxy, upstream, name):
    answer = proxy.chat(QUESTION, **{f"X_Backstory_{name}": "perhaps"})
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message.startswith(f"X-Backstory-{name} must be ")
    assert message.endswith("got 'perhaps'")
    assert upstream.requests == []
