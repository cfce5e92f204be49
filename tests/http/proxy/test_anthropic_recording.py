"""What the proxy records of Anthropic's protocol, whose it is, and what passes as it came."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import FACT, PATIENCE, Served, served_to_anthropic
from serving import app_client
from sizes import examples
from upstreams import (
    Answer,
    StandIn,
    block_events,
    document,
    events,
    message,
    message_events,
    message_stream,
    named,
)

from backstory import Backstory
from backstory.config.settings import Settings
from backstory.http.access.callers import Caller, Right
from backstory.http.app import ServerOptions
from backstory.http.limits import Limits
from backstory.http.proxy.anthropic.protocol import ANTHROPIC
from backstory.http.proxy.upstream import Upstream

QUESTION = "Where do I live?"
CALL = {"type": "tool_use", "id": "toolu_1", "name": "where", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
THOUGHT = {"type": "thinking", "thinking": "They ask where.", "signature": "s"}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def agent(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def last(proxy: Served, thread: str = "thread-1") -> tuple[str, dict[str, object]]:
    turn = proxy.home.memory("ada").transcript(thread)[-1]
    return turn.content, {name: value for name, value in turn.metadata.items() if name != "context"}


# Answers.


@pytest.mark.parametrize("stream", [False, True])
def test_question_and_answer_are_durable_when_the_client_has_the_answer(claude, upstream, stream):
    upstream.then(message_stream("You live ", "in Bergen.") if stream else message("You live in Bergen."))
    answer = claude.ask(QUESTION, stream=stream)
    assert answer.content == b"".join(upstream._script[0].parts)
    assert answer.headers["x-backstory-memory"] == "used"
    assert claude.turns() == {"thread-1": [QUESTION, "You live in Bergen."]}
    assert last(claude)[1] == {}


def test_the_end_of_a_stream_waits_for_the_record(claude, upstream):
    last_one = threading.Event()
    upstream.then(message_stream("In Bergen.", hold=lambda n: n < 7 or last_one.wait(PATIENCE)))
    body = {"max_tokens": 9, "metadata": {"user_id": "ada"}, "stream": True, "messages": [user(QUESTION)]}
    seen, turns = b"", {}
    with claude.client.stream("POST", claude.url + "/v1/messages", json=body) as answer:
        for chunk in answer.iter_raw():
            seen += chunk
            if b"message_stop" in seen and not turns:
                turns = claude.turns()
                last_one.set()
    assert turns == {"thread-1": [QUESTION, "In Bergen."]}
    assert seen == b"".join(upstream._script[0].parts)


@pytest.mark.parametrize("sizes", [1, 7, 1_000_000])
def test_a_stream_passes_byte_for_byte_however_it_is_cut(claude, upstream, sizes):
    whole = b"".join(message_stream("Grüße ", "aus Bergen 😀", "\r\n\r\n.").parts).replace(b"\n\n", b"\r\n\r\n", 2)
    upstream.then(events(*(whole[n : n + sizes] for n in range(0, len(whole), sizes))))
    assert claude.ask(QUESTION, stream=True).content == whole
    assert claude.turns()["thread-1"][1] == "Grüße aus Bergen 😀\r\n\r\n."


@pytest.mark.parametrize("stream", [False, True])
def test_of_an_answer_the_texts_are_recorded(claude, upstream, stream):
    """Not its thinking; texts that follow each other are one, such as those with sources."""
    if stream:
        blocks = [
            block_events(0, "thinking", "They ask ", "where."),
            block_events(1, "text", "I look ", "it up."),
            block_events(2, "server_tool_use", '{"q":', "1}", id="srv_1", name="web_search"),
            block_events(3, "web_search_tool_result", tool_use_id="srv_1", content=[]),
            block_events(4, "text", "In "),
            block_events(5, "text", "Bergen."),
        ]
        upstream.then(events(*message_events(*blocks)))
    else:
        upstream.then(message(THOUGHT, "I look it up.", SEARCH, FOUND, "In ", "Bergen."))
    claude.ask(QUESTION, stream=stream)
    assert claude.turns() == {"thread-1": [QUESTION, "I look it up.\n\nIn Bergen."]}


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_with_tools_is_one_question_and_one_answer(claude, upstream, stream):
    call = block_events(1, "tool_use", "{}", id="toolu_1", name="where")
    streamed = events(*message_events(block_events(0, "text", "I look."), call, reason="tool_use"))
    upstream.then(streamed if stream else message("I look.", CALL, reason="tool_use"))
    claude.ask(QUESTION, stream=stream)
    assert claude.turns() == {"thread-1": [QUESTION]}
    upstream.then(message("You live in Bergen."))
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "Bergen"}]}
    claude.messages([user(QUESTION), agent([{"type": "text", "text": "I look."}, CALL]), user([result])])
    assert claude.turns() == {"thread-1": [QUESTION, "You live in Bergen."]}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_stops_for_a_tool_is_not_final(claude, upstream, stream):
    """Whatever its blocks are called."""
    upstream.then(message_stream("I look.", reason="tool_use") if stream else message("I look.", reason="tool_use"))
    claude.ask(QUESTION, stream=stream)
    assert claude.turns() == {"thread-1": [QUESTION]}


def test_instructions_in_the_middle_are_not_recorded(claude):
    messages = [user(QUESTION), agent("In Bergen."), {"role": "system", "content": "Be brief."}, user("Since when?")]
    claude.messages(messages)
    assert claude.turns()["thread-1"] == ["Since when?", "You live in Bergen."]


def test_pictures_and_documents_of_a_question_are_not_recorded(claude):
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    file = {"type": "document", "source": {"type": "text", "data": "I owe a million"}, "title": "debts"}
    claude.messages([user([picture, file, {"type": "text", "text": "What is this?"}])])
    assert claude.turns()["thread-1"][0] == "What is this?"


def test_a_paused_answer_is_recorded_when_it_is_whole(claude, upstream):
    upstream.then(message("I look it up. ", SEARCH, reason="pause_turn"))
    claude.ask(QUESTION)
    assert claude.turns() == {"thread-1": [QUESTION]}
    upstream.then(message(FOUND, "In Bergen."))
    claude.messages([user(QUESTION), agent([{"type": "text", "text": "I look it up. "}, SEARCH])])
    assert claude.turns() == {"thread-1": [QUESTION, "I look it up. In Bergen."]}


def test_an_answer_that_the_client_begins_is_recorded_from_its_beginning(claude, upstream):
    upstream.then(message(" in Bergen."))
    claude.ask(QUESTION, "You live")
    assert claude.turns() == {"thread-1": [QUESTION, "You live in Bergen."]}


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_is_marked(claude, upstream, reason, stream):
    upstream.then(message_stream("You live", reason=reason) if stream else message("You live", reason=reason))
    claude.ask(QUESTION, stream=stream)
    assert last(claude) == ("You live", {"interrupted": True})


@pytest.mark.parametrize(
    "parts",
    [
        message_events(block_events(0, "text", "You live"))[:4],
        [*message_events(block_events(0, "text", "You live"))[:4], named("error", error=OVERLOADED["error"])],
        [*message_events(block_events(0, "text", "You live"))[:-1], named("error", error=OVERLOADED["error"])],
    ],
    ids=["without an end", "an error in the middle", "an error at the end"],
)
def test_a_stream_without_its_end_is_no_final_answer(claude, upstream, parts):
    upstream.then(events(*parts))
    assert claude.ask(QUESTION, stream=True).content == b"".join(parts)
    assert last(claude) == ("You live", {"interrupted": True})


def test_a_stream_that_breaks_off_in_a_call_is_no_answer(claude, upstream):
    parts = message_events(
        block_events(0, "text", "I look."), block_events(1, "tool_use", "{", id="toolu_1", name="where")
    )
    upstream.then(events(*parts[:6], breaks=True))
    with pytest.raises(httpx.RemoteProtocolError):
        claude.ask(QUESTION, stream=True)
    claude.until(lambda: claude.answers == {"broken-off": 1})
    # The exchange is over when the thread may be continued.
    claude.until(lambda: not claude.proxy._recordings._tasks)
    assert claude.turns() == {"thread-1": [QUESTION]}


@pytest.mark.parametrize("body", [{"type": "message"}, {"content": "x"}, {"content": ["x", None]}, []])
def test_a_document_that_is_no_message_is_no_answer(claude, upstream, body):
    upstream.then(document(body))
    claude.ask(QUESTION)
    assert claude.turns() == {"thread-1": [QUESTION]}


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"type": "content_block_delta", "delta": 3}', b'{"type": 7}'])
def test_an_event_that_cannot_be_read_is_passed_over(claude, upstream, data):
    whole = message_events(block_events(0, "text", "In Bergen."))
    upstream.then(events(*whole[:3], b"data: " + data + b"\n\n", *whole[3:]))
    claude.ask(QUESTION, stream=True)
    assert last(claude) == ("In Bergen.", {})


# Threads.


def test_a_conversation_is_one_thread(claude, upstream):
    upstream.then(*(message(f"Answer {n}.") for n in (1, 2, 3)))
    said: list[str] = []
    for n in (1, 2, 3):
        said.append(f"Question number {n}?")
        assert claude.ask(*said).headers["x-backstory-thread"] == "thread-1"
        said.append(f"Answer {n}.")
    assert claude.turns() == {"thread-1": said}


def test_conversations_of_both_protocols_are_in_one_memory(claude, upstream, proxy):
    claude.ask("I live in Bergen, by the sea", X_Backstory_Thread="t")
    assert proxy.turns() == {"t": ["I live in Bergen, by the sea", "You live in Bergen."]}


# The user.


@pytest.mark.parametrize(
    ("user_id", "headers", "expected"),
    [
        ("ada", {}, {"used": ["ada"]}),
        ("bo", {"X-Backstory-User": "ada"}, {"used": ["ada"]}),
        ("user_51b1_account_9e8f_session_0b2c", {}, {"no-user": []}),
        ("Session-7", {}, {"no-user": []}),
        ('{"device_id": "d", "account_uuid": "a", "session_id": "s"}', {}, {"no-user": []}),
        ('{"id": "x"}', {}, {"no-user": []}),
        ("", {}, {"no-user": []}),
        (7, {}, {"no-user": []}),
        (None, {}, {"no-user": []}),
    ],
)
def test_the_user_is_that_of_the_header_or_of_the_metadata(claude, user_id, headers, expected):
    body = {"max_tokens": 9, "messages": [user(QUESTION)], "metadata": {"user_id": user_id}}
    outcome = claude.post("/v1/messages", json=body, headers=headers).headers["x-backstory-memory"]
    assert {outcome: [one for one in ("ada", "bo") if claude.turns(one)]} == expected


@pytest.mark.parametrize("name", ["obsession@example.com", "Sessions", "Jo Session2"])
def test_a_name_that_holds_session_is_not_taken_for_the_servers_user(home, upstream, name):
    upstream.then(message("In Oslo."))
    with served_to_anthropic(home, upstream.base_url, Caller("open", Right.WRITE, None, "ada")) as proxy:
        proxy.post("/v1/messages", json={"messages": [user("I live in Oslo.")], "metadata": {"user_id": name}})
        assert FACT not in upstream.last.raw.decode()
        assert (proxy.turns("ada"), proxy.turns(name)) == ({}, {"thread-1": ["I live in Oslo.", "In Oslo."]})


@pytest.mark.parametrize("metadata", [None, 3, [], {}, "ada"])
def test_a_token_of_one_user_names_it(home, upstream, metadata):
    upstream.then(message("In Bergen."))
    caller = Caller("token", Right.WRITE, frozenset({"ada"}), None)
    with served_to_anthropic(home, upstream.base_url, caller) as proxy:
        body = {"max_tokens": 9, "messages": [user(QUESTION)], "metadata": metadata}
        proxy.post("/v1/messages", json=body)
        assert proxy.turns() == {"thread-1": [QUESTION, "In Bergen."]}


# What passes.


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b"not json", "unreadable"),
        (b'{"messages": 3}', "unreadable"),
        (b'{"messages": [3]}', "unreadable"),
        (b'{"prompt": "ada"}', "unreadable"),
        (b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "unreadable"),
        (b'{"messages": [], "system": 3, "metadata": {"user_id": "ada"}}', "unreadable"),
        (b'{"messages": [], "system": [3], "metadata": {"user_id": "ada"}}', "unreadable"),
        (gzip.compress(b'{"messages": []}', mtime=0), "unreadable"),
        (b'{ "messages" : [ {"role": "user", "content": "hi"} ] }', "no-user"),
        (b'{ "messages" : [ {"role": "user", "content": "hi"} ], "metadata": {"user_id": "bo"} }', "used"),
    ],
)
def test_a_body_that_memory_has_nothing_to_do_with_arrives_byte_for_byte(claude, upstream, body, outcome):
    answer = claude.post("/v1/messages", content=body)
    assert (answer.status_code, answer.headers["x-backstory-memory"]) == (200, outcome)
    assert upstream.last.raw == body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["system", "messages", "metadata", "tools", "thinking", "x", "max_tokens", "stream"])
SAID = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": JSON})


@given(
    body=JSON | st.dictionaries(KEYS, JSON | st.lists(SAID, max_size=3), max_size=5),
    dumps=st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (",", ":")}]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples())
def test_any_body_that_gets_no_block_arrives_byte_for_byte(claude: Served, upstream: StandIn, body: Any, dumps: Any):
    """Of a user without a memory, or one that is no request."""
    raw = json.dumps(body, **dumps).encode("utf-8", "replace")
    for whose in ("bo", "ada"):
        answer = claude.post("/v1/messages", content=raw, headers={"X-Backstory-User": whose})
        assert answer.status_code == 200
        used = whose == "ada" and answer.headers["x-backstory-memory"] == "used"
        assert (FACT in upstream.last.raw.decode()) if used else (upstream.last.raw == raw)


def test_other_paths_pass_through(claude, upstream):
    upstream.then(document({"input_tokens": 7}))
    counted = b'{ "model": "m", "messages": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "ada"} }'
    assert claude.post("/v1/messages/count_tokens?beta=true", content=counted).json() == {"input_tokens": 7}
    assert (upstream.last.path, upstream.last.raw) == ("/v1/messages/count_tokens?beta=true", counted)
    assert claude.client.get(claude.url + "/v1/models?limit=2").status_code == 200
    assert (upstream.last.method, upstream.last.path) == ("GET", "/v1/models?limit=2")
    assert claude.post("/v1/messages/batches", content=b"raw").status_code == 200
    assert upstream.last.raw == b"raw"
    assert claude.client.get(claude.url + "/v1/messages").status_code == 200
    assert claude.memory_outcomes == {"other-path": 4}
    assert claude.turns() == {}


def test_the_headers_of_the_protocol_pass(claude, upstream):
    headers = {
        "x-api-key": "sk-ant-1",
        "authorization": "Bearer oauth",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "context-1m-2025-08-07,interleaved-thinking-2025-05-14",
        "X-Backstory-User": "ada",
        "X-Backstory-Token": "t",
    }
    upstream.then(document({"content": []}, **{"request-id": "req_1", "anthropic-ratelimit-requests-remaining": "3"}))
    got = claude.post("/v1/messages?beta=true", json={"messages": [user(QUESTION)]}, headers=headers).headers
    assert {name: upstream.last.header(name) for name in list(headers)[:4]} == dict(list(headers.items())[:4])
    assert upstream.last.path == "/v1/messages?beta=true"
    assert not [name for name, _ in upstream.last.headers if name.lower().startswith("x-backstory")]
    assert (got["request-id"], got["anthropic-ratelimit-requests-remaining"]) == ("req_1", "3")
    assert FACT in upstream.last.raw.decode()


# Errors.


@pytest.mark.parametrize("status", [400, 401, 429, 529])
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_upstream_passes_back_byte_for_byte(claude, upstream, status, stream):
    upstream.then(document({**OVERLOADED, "request_id": "req_1"}, status, **{"retry-after": "7"}))
    answer = claude.ask(QUESTION, stream=stream)
    assert (answer.status_code, answer.content) == (status, upstream._script[0].parts[0])
    assert answer.headers["retry-after"] == "7"
    claude.until(lambda: claude.turns() == {"thread-1": [QUESTION]})


def test_our_own_errors_are_in_the_shape_of_the_protocol(home, upstream):
    upstream.then(Answer(breaks=True))
    with served_to_anthropic(home, upstream.base_url) as proxy:
        answer = proxy.ask(QUESTION)
        assert (answer.status_code, answer.json()["type"]) == (502, "error")
        assert answer.json()["error"]["type"] == "api_error"
        answer = proxy.ask(QUESTION, X_Backstory_Mode="perhaps")
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        released = threading.Event()
        upstream.then(lambda _: message("late") if released.wait(60) else Answer())
        proxy.proxy._upstream = Upstream(upstream.base_url.removesuffix("/v1"), httpx.AsyncClient(timeout=0.05))
        answer = proxy.ask(QUESTION)
        released.set()
        assert (answer.status_code, answer.json()["error"]["type"]) == (504, "timeout_error")


def test_a_token_that_does_not_cover_the_user_is_refused_in_the_shape_of_the_protocol(
    home: Backstory, upstream: StandIn
) -> None:
    caller = Caller("token", Right.WRITE, frozenset({"ada", "cy"}), None)
    with served_to_anthropic(home, upstream.base_url, caller) as proxy:
        answer = proxy.ask(QUESTION, user="bo")
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
        assert upstream.requests == []


def test_an_upstream_that_is_the_proxy_itself_is_not_asked(claude):
    claude.proxy._upstream.base_url = claude.url
    answer = claude.ask(QUESTION)
    assert answer.status_code == 502
    assert answer.json()["error"]["message"].endswith("set anthropic_base_url to the address of the model server")


def test_there_is_nothing_outside_the_protocol(claude, upstream):
    answer = claude.client.get(claude.url + "/%2e%2e/admin")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "there is nothing here: use /proxy/anthropic/v1/messages"
    assert upstream.requests == []


# The server.


def test_the_server_has_the_proxy_at_its_path(tmp_path: Path, upstream: StandIn) -> None:
    """What is too large for it is for the upstream to decide."""
    upstream.then(message("In Bergen."))
    options = ServerOptions(user="ada", limits=Limits(body_bytes=10))
    with app_client(tmp_path / "home", options, anthropic_base_url=upstream.base_url) as client:
        answer = client.post("/proxy/anthropic/v1/messages", json={"max_tokens": 9, "messages": [user(QUESTION)]})
        assert answer.json()["content"] == [{"type": "text", "text": "In Bergen."}]
        assert upstream.last.path == "/v1/messages"
        home: Backstory = client.app.state.home  # type: ignore[attr-defined]
        turns = home.memory("ada").transcript(answer.headers["x-backstory-thread"])
        assert [turn.content for turn in turns] == [QUESTION, "In Bergen."]


@pytest.mark.parametrize(
    ("stated", "environ", "expected"),
    [
        (None, {}, "https://api.anthropic.com"),
        (None, {"ANTHROPIC_BASE_URL": " http://one.example/ "}, "http://one.example"),
        ("http://two.example/v1/", {"ANTHROPIC_BASE_URL": "http://one.example"}, "http://two.example"),
    ],
)
def test_the_model_server_is_configured(stated: str | None, environ: dict[str, str], expected: str) -> None:
    assert ANTHROPIC.upstream(Settings(anthropic_base_url=stated), environ) == expected


@pytest.mark.parametrize("slash", ["%2F", "%2f", "%2F%2F"])
def test_a_path_cannot_name_another_server(claude, upstream, slash):
    """The base URL has no path, so what follows it without a slash would be a part of its host."""
    claimed = upstream.base_url.partition("//")[2].split("/")[0]
    connection = http.client.HTTPConnection(claude.url.partition("//")[2].split("/")[0])
    connection.request("GET", f"/proxy/anthropic{slash}@{claimed}/v1/models")
    assert connection.getresponse().status == 404
    connection.close()
    assert upstream.requests == []
