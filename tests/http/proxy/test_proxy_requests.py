"""Requests in all their shapes: paths of Azure, compressed bodies, who the user is; and streams that go wrong."""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Callable

import httpx
import openai
import pytest
from served import FACT, Served, served
from upstreams import StandIn, chat_stream, completion, delta, document, event, events, response

from backstory import Backstory
from backstory.http.access.callers import Caller, Right

AskedAs = Callable[[Caller, dict[str, str]], dict[str, list[str]]]
QUESTION = "Where do I live?"
BODY = {"model": "m", "user": "ada", "messages": [{"role": "user", "content": QUESTION}]}


# Azure.


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        ("/openai/deployments/gpt-5/chat/completions?api-version=2024-10-21", "chat"),
        ("/openai/v1/chat/completions", "chat"),
        ("/openai/v1/responses", "responses"),
        ("/openai/responses?api-version=2025-04-01-preview", "responses"),
    ],
)
def test_the_paths_of_azure_have_memory(proxy, upstream, path, protocol):
    body = BODY if protocol == "chat" else {"user": "ada", "input": QUESTION}
    upstream.then(completion("In Bergen.") if protocol == "chat" else document(response("In Bergen.")))
    answer = proxy.post(path, json=body, headers={"api-key": "k"})
    assert answer.headers["x-backstory-memory"] == "used"
    assert (upstream.last.path, upstream.last.header("api-key")) == (f"/v1{path}", "k")
    assert FACT in upstream.last.raw.decode()
    assert proxy.turns() == {"thread-1": [QUESTION, "In Bergen."]}


def test_the_client_of_azure_has_a_memory_by_its_endpoint(proxy, upstream):
    with openai.AzureOpenAI(azure_endpoint=proxy.url, api_key="k", api_version="2024-10-21") as client:
        client.chat.completions.create(model="gpt-5", user="ada", messages=BODY["messages"])  # type: ignore[arg-type]
    assert FACT in upstream.last.raw.decode()
    assert proxy.turns() == {"thread-1": [QUESTION, "You live in Bergen."]}


@pytest.mark.parametrize("path", ["/openai/deployments/a/b/chat/completions", "/openai/deployments/gpt-5/embeddings"])
def test_other_paths_of_azure_pass_through(proxy, path):
    assert proxy.post(path, json=BODY).headers["x-backstory-memory"] == "other-path"


# The user.


@pytest.fixture
def asked_as(home: Backstory, upstream: StandIn) -> AskedAs:
    return lambda caller, fields: _asked_as(home, upstream, caller, fields)


def _asked_as(home: Backstory, upstream: StandIn, caller: Caller, fields: dict[str, str]) -> dict[str, list[str]]:
    with served(home, upstream.base_url, caller) as proxy:
        body = {"model": "m", "messages": BODY["messages"], "safety_identifier": "bo", **fields}
        outcome = proxy.post(json=body).headers["x-backstory-memory"]
        return {outcome: [user for user in ("ada", "bo", "cy") if proxy.turns(user)]}


@pytest.mark.parametrize(
    ("users", "default", "fields", "expected"),
    [
        (None, None, {}, {"used": ["bo"]}),
        (None, "cy", {}, {"used": ["cy"]}),
        (None, None, {"user": "ada"}, {"used": ["ada"]}),
        (frozenset({"ada"}), None, {}, {"used": ["ada"]}),
        (frozenset({"ada", "bo"}), None, {}, {"used": ["bo"]}),
        (frozenset({"ada", "cy"}), None, {}, {"no-user": []}),
        (None, None, {"safety_identifier": ""}, {"no-user": []}),
    ],
)
def test_a_safety_identifier_names_the_user_last_of_all(asked_as, users, default, fields, expected):
    assert asked_as(Caller("token", Right.WRITE, users, default), fields) == expected


# Compressed bodies.


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_request_is_read(proxy, upstream, encoding, pack):
    raw = pack(json.dumps(BODY).encode())
    answer = proxy.post(content=raw, headers={"content-encoding": encoding, "content-type": "application/json"})
    assert answer.headers["x-backstory-memory"] == "used"
    assert upstream.last.header("content-encoding") is None
    assert FACT in upstream.last.raw.decode()
    assert proxy.turns() == {"thread-1": [QUESTION, "You live in Bergen."]}


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        ("gzip", json.dumps(BODY).encode()),
        # Without the time: all processes of a run have to collect the same tests.
        ("gzip", gzip.compress(json.dumps(BODY).encode(), mtime=0)[:-9]),
        ("br", json.dumps(BODY).encode()),
    ],
    ids=["no gzip", "gzip cut short", "an encoding that is not known"],
)
def test_a_body_that_cannot_be_unpacked_arrives_as_it_came(proxy, upstream, encoding, raw):
    answer = proxy.post(content=raw, headers={"content-encoding": encoding})
    assert answer.headers["x-backstory-memory"] == "unreadable"
    assert (upstream.last.raw, upstream.last.header("content-encoding")) == (raw, encoding)


def test_a_bomb_is_not_unpacked(proxy, upstream, monkeypatch):
    monkeypatch.setattr("backstory.http.proxy.proxy._MOST_BYTES", 10_000)
    raw = gzip.compress(json.dumps({**BODY, "x": "x" * 1_000_000}).encode())
    assert proxy.post(content=raw, headers={"content-encoding": "gzip"}).headers["x-backstory-memory"] == "unreadable"
    assert upstream.last.raw == raw


def test_a_compressed_request_without_anything_to_put_in_arrives_as_it_came(proxy, upstream):
    raw = gzip.compress(json.dumps({**BODY, "user": "bo"}).encode())
    proxy.post(content=raw, headers={"content-encoding": "gzip"})
    assert (upstream.last.raw, upstream.last.header("content-encoding")) == (raw, "gzip")


# Streams that go wrong.

FAILED = {"message": "overloaded", "type": "server_error"}
DONE = event(b"[DONE]")


def last(proxy: Served) -> tuple[str, dict[str, object]]:
    turn = proxy.home.memory("ada").transcript("thread-1")[-1]
    return turn.content, {name: value for name, value in turn.metadata.items() if name != "context"}


@pytest.mark.parametrize(
    "parts",
    [
        (event({"error": FAILED}), DONE),
        (event({"error": FAILED}),),
        (b"event: error\n" + event(FAILED), DONE),
        (delta(finish_reason="stop"), event({"error": FAILED}), DONE),
    ],
)
def test_a_stream_with_an_error_is_marked_as_interrupted(proxy, upstream, parts):
    upstream.then(events(delta(content="You live"), *parts))
    proxy.chat(QUESTION, stream=True)
    assert last(proxy) == ("You live", {"interrupted": True})


@pytest.mark.parametrize("kind", ["response.failed", "response.incomplete", "error"])
@pytest.mark.parametrize("done", [True, False])
def test_a_response_that_fails_on_its_way_is_marked_as_interrupted(proxy, upstream, kind, done):
    status = kind.partition(".")[2]
    end = {"type": kind, "response": {**response("You live", "resp_1"), "status": status}}
    failed = {"type": kind, **FAILED} if kind == "error" else end
    said = event({"type": "response.output_text.delta", "delta": "You live"})
    upstream.then(events(said, event(failed), *([DONE] if done else [])))
    proxy.post("/responses", json={"user": "ada", "input": QUESTION, "stream": True})
    assert last(proxy) == ("You live", {"interrupted": True})


def test_a_response_that_is_incomplete_is_marked_as_interrupted(proxy, upstream):
    upstream.then(document({**response("You live"), "status": "incomplete"}))
    proxy.post("/responses", json={"user": "ada", "input": QUESTION})
    assert last(proxy) == ("You live", {"interrupted": True})


def test_an_upstream_that_dies_in_a_stream_logs_one_line(proxy, upstream, caplog):
    upstream.then(events(delta(content="You live "), breaks=True))
    # A server of its own would say that the response has no end, with a traceback or without.
    caplog.set_level(logging.WARNING, "uvicorn.error")
    with pytest.raises(httpx.RemoteProtocolError):
        proxy.chat(QUESTION, stream=True)
    proxy.until(lambda: proxy.answers == {"broken-off": 1})
    upstream.then(completion("In Bergen."))
    # Its connection has the same server, which has logged by now.
    proxy.chat(QUESTION)
    [line] = [record.getMessage() for record in caplog.records]
    assert line == "POST /chat/completions: the model server broke off its answer"


# Facts.


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_may_ask_which_facts_went_in(proxy, upstream, stream):
    upstream.then(chat_stream("In Bergen.") if stream else completion("In Bergen."))
    [fact] = proxy.home.memory("ada").facts()
    assert proxy.chat(QUESTION, stream=stream, X_Backstory_Facts="1").headers["x-backstory-facts"] == fact.id
    assert "x-backstory-facts" not in proxy.chat(QUESTION, stream=stream).headers
    assert proxy.chat(QUESTION, user="bo", X_Backstory_Facts="1").headers["x-backstory-facts"] == ""


def test_a_list_of_facts_that_is_too_long_for_a_header_says_how_many_are_left_out(proxy, monkeypatch):
    monkeypatch.setattr("backstory.http.proxy.recorder._MOST_LISTED", 30)
    memory = proxy.home.memory("ada")
    for n in range(5):
        memory.add_fact(f"User has {n} boats")
    listed = proxy.chat(QUESTION, X_Backstory_Facts="1").headers["x-backstory-facts"].split(",")
    assert listed[-1] == f"+{6 - len(listed) + 1}"
    assert {*listed[:-1]} < {fact.id for fact in memory.facts()}
