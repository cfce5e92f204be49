"""The prefix of requests stays the same, so that prompt caches hold: what stands, and what is found for a question."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import open_home
from served import FACT, Served, served
from upstreams import Answer, Request, StandIn, completion, failure, response

from backstory import Backstory


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Backstory]:
    with open_home(tmp_path / "home", max_facts=500) as bs:
        bs.memory("ada").add_fact(FACT, "context", 0.9)
        yield bs


OPENING = "<memory>\nFacts for this question:\n"


def learn(home: Backstory, facts: int) -> None:
    """Fill ada's memory."""
    kinds = ("likes", "avoids", "has read about", "wants to see")
    said = [{"content": f"User {kinds[n % 4]} place number {n} by the sea", "confidence": 0.9} for n in range(facts)]
    home.memory("ada").import_document(said)


def talk(proxy: Served, upstream: StandIn, requests: int, between: Callable[[int], None] = lambda _: None) -> None:
    """Ask one question after the other in one conversation, each about something else."""
    said: list[str] = []
    for n in range(requests):
        between(n)
        said.append(f"What of place number {7 * n % 40}, question {n}?")
        upstream.then(completion(f"It is answer {n}."))
        proxy.chat(*said)
        said.append(f"It is answer {n}.")


def standing(upstream: StandIn) -> list[str]:
    return [request.body["messages"][0]["content"] for request in upstream.requests]


def kept_prefixes(upstream: StandIn) -> float:
    """The share of requests whose bytes up to the last request's newest question are the last request's."""
    kept = []
    for before, after in itertools.pairwise(upstream.requests):
        newest = before.body["messages"][-1]["content"]
        question = json.dumps(newest, ensure_ascii=False).encode()
        end = before.raw.rindex(b'{"role":"user","content":' + question)
        kept.append(before.raw[:end] == after.raw[:end])
    return sum(kept) / len(kept)


@pytest.mark.parametrize("facts", [12, 300])
def test_fifty_requests_of_one_conversation_have_one_standing_part(proxy, upstream, home, facts):
    learn(home, facts)
    talk(proxy, upstream, 50)
    assert len(set(standing(upstream))) == 1
    assert kept_prefixes(upstream) == 1
    found = [OPENING in request.body["messages"][-1]["content"] for request in upstream.requests]
    assert found == [facts == 300] * 50
    # Nothing of it is in what was said before, or recorded.
    assert all(OPENING not in json.dumps(request.body["messages"][1:-1]) for request in upstream.requests)
    assert "memory" not in str(proxy.turns())


@pytest.mark.parametrize("facts", [12, 300])
def test_a_fact_learned_every_tenth_request_makes_six_standing_parts(proxy, upstream, home, facts):
    learn(home, facts)
    memory = home.memory("ada")
    talk(proxy, upstream, 50, lambda n: n % 10 == 5 and memory.add_fact(f"User was in town number {n}", confidence=1))
    assert len(set(standing(upstream))) == 6
    assert kept_prefixes(upstream) >= 0.85


def test_what_was_found_is_in_front_of_the_newest_question(proxy, upstream, home):
    learn(home, 300)
    proxy.chat("Hello", "Hi.", "What of place number 33?")
    system, *said = upstream.last.body["messages"]
    assert [message["content"] for message in said[:2]] == ["Hello", "Hi."]
    found, _, question = said[2]["content"].rpartition("\n\n")
    assert found.startswith(OPENING)
    assert "place number 33 by the sea" in found
    assert "place number 33 by the sea" not in system["content"]
    assert question == "What of place number 33?"


def test_what_was_found_is_a_part_in_front_of_a_question_in_parts(proxy, upstream, home):
    learn(home, 300)
    parts = [{"type": "text", "text": "What of place number 33?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    proxy.post(json={"user": "ada", "messages": [{"role": "user", "content": parts}]})
    first, *rest = upstream.last.body["messages"][1]["content"]
    assert (first["type"], rest) == ("text", parts)
    assert first["text"].startswith(OPENING)


@pytest.mark.parametrize("as_items", [False, True])
def test_what_was_found_is_in_front_of_the_input_of_a_response(proxy, upstream, home, as_items):
    learn(home, 300)
    question = "What of place number 33?"
    given = [{"role": "user", "content": [{"type": "input_text", "text": question}]}] if as_items else question
    proxy.post("/responses", json={"user": "ada", "input": given})
    sent = upstream.last.body["input"]
    if as_items:
        first, second = sent[0]["content"]
        assert (first["type"], second) == ("input_text", given[0]["content"][0])
        assert first["text"].startswith(OPENING)
    else:
        assert sent.startswith(OPENING)
        assert sent.endswith(f"\n\n{question}")
    assert "number 33 by" not in upstream.last.body["instructions"]


def test_in_a_loop_of_tool_calls_the_question_keeps_what_was_found(proxy, upstream, home):
    learn(home, 300)
    question = {"role": "user", "content": "What of place number 33?"}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    calls = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
    proxy.post(json={"user": "ada", "messages": [question]})
    proxy.post(json={"user": "ada", "messages": [question, calls, result]})
    first, second = (request.body["messages"] for request in upstream.requests)
    assert second[:2] == first
    assert second[2:] == [calls, result]


# An upstream that refuses a system message.


def template(request: Request) -> Answer:
    """A model server whose template knows no system role."""
    if any(message["role"] == "system" for message in request.body["messages"]):
        return failure(400, "System role not supported")
    return completion("You live in Bergen.")


def test_a_model_that_refuses_a_system_message_gets_what_stands_in_the_first_question(proxy, upstream):
    upstream.then(template)
    answer = proxy.chat("Where do I live?")
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "You live in Bergen."
    (message,) = upstream.last.body["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith(
        "<memory>\nFacts:\n- [context | 0.90] User lives in Bergen\n</memory>\n\nWhere"
    )
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen."]}
    # It is remembered: the next question is sent once, and what was said before is the same.
    proxy.chat("Where do I live?", "You live in Bergen.", "And why?")
    assert len(upstream.requests) == 3
    assert upstream.last.body["messages"][0] == message
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen.", "And why?", "You live in Bergen."]}


def test_the_model_is_remembered_by_its_name(proxy, upstream):
    upstream.then(template)
    proxy.chat("Where do I live?")
    upstream.then(completion("Bergen."))
    proxy.post(json={"user": "ada", "model": "another", "messages": [{"role": "user", "content": "Where?"}]})
    assert upstream.last.body["messages"][0]["role"] == "system"


@pytest.mark.parametrize(
    "refusal",
    [
        failure(400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
        failure(400, "Developer instruction is not enabled for models/small"),
        failure(500, "Conversation roles must alternate user/assistant/user/assistant/..."),
        failure(422, "this template has no system prompt"),
    ],
)
def test_refusals_of_a_system_message_are_known(proxy, upstream, refusal):
    upstream.then(refusal, completion("Bergen."))
    assert proxy.chat("Where do I live?").status_code == 200
    assert [message["role"] for message in upstream.last.body["messages"]] == ["user"]


@pytest.mark.parametrize("refusal", [failure(400, "context length exceeded"), failure(429, "system role is busy")])
def test_other_errors_pass_back_as_they_came(proxy, upstream, refusal):
    upstream.then(refusal)
    answer = proxy.chat("Where do I live?")
    assert (answer.status_code, answer.content) == (refusal.status, refusal.parts[0])
    assert len(upstream.requests) == 1


def test_a_refusal_of_the_clients_own_system_message_is_its_answer(proxy, upstream):
    upstream.then(template)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Where do I live?"}]
    assert proxy.post(json={"user": "ada", "model": "m", "messages": messages}).status_code == 400
    assert len(upstream.requests) == 1


def test_a_model_that_refuses_both_is_not_remembered(proxy, upstream):
    upstream.then(failure(400, "System role not supported"))
    assert proxy.chat("Where do I live?").status_code == 400
    assert len(upstream.requests) == 2
    upstream.then(completion("Bergen."))
    proxy.chat("Where do I live?")
    assert upstream.last.body["messages"][0]["role"] == "system"


# What an answer was given.


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
def test_the_turn_of_an_answer_notes_what_it_was_given(proxy, upstream, home, path):
    fact = next(iter(home.memory("ada").facts())).id
    if path == "/responses":
        upstream.then(Answer((json.dumps(response("Bergen.")).encode(),), headers={"Content-Type": "application/json"}))
        proxy.post(path, json={"user": "ada", "input": "Where do I live?"})
    else:
        proxy.chat("Where do I live?")
    question, answer = home.memory("ada").transcript("thread-1")
    noted = answer.metadata["context"]
    assert (noted["facts"], noted["turns"], noted["seq"]) == ([fact], [], home.memory("ada").head().seq)
    assert question.metadata == {}
    assert "Bergen" not in json.dumps(noted)


def test_an_answer_that_was_given_nothing_notes_nothing(proxy, upstream, home):
    proxy.chat("Where do I live?", user="bo")
    assert [turn.metadata for turn in home.memory("bo").transcript("thread-1")] == [{}, {}]


def test_the_share_can_be_switched_off(tmp_path, upstream):
    with (
        open_home(tmp_path / "other", max_facts=500, context_found_share=0) as bs,
        served(bs, upstream.base_url) as one,
    ):
        learn(bs, 300)
        one.chat("What of place number 33?")
        assert upstream.last.body["messages"][-1]["content"] == "What of place number 33?"
