"""What the proxy forwards: memory goes in, and everything else passes through untouched."""

from __future__ import annotations

import gzip
import json

import pytest
from served import FACT, Served
from upstreams import Answer, StandIn, completion, document, failure

from backstory.integrations.prompt_block import text_with_block

QUESTION = {"role": "user", "content": "Where do I live?"}


def sent(proxy: Served, upstream: StandIn, **body: object) -> dict[str, object]:
    """What arrives of a body that ada sends."""
    response = proxy.post(json={"user": "ada", **body})
    assert response.status_code == 200
    assert response.headers["x-backstory-memory"] == "used"
    return upstream.last.body


# The block.


def test_the_block_goes_to_the_end_of_the_system_message(proxy, upstream):
    system, question = sent(proxy, upstream, messages=[{"role": "system", "content": "Be kind."}, QUESTION])["messages"]
    assert system["content"].startswith("Be kind.\n\n<memory>")
    assert FACT in system["content"]
    assert question == QUESTION


def test_the_block_goes_into_a_developer_message(proxy, upstream):
    first, _ = sent(proxy, upstream, messages=[{"role": "developer", "content": "Be kind.", "name": "x"}, QUESTION])[
        "messages"
    ]
    assert (first["role"], first["name"]) == ("developer", "x")
    assert FACT in first["content"]


def test_without_a_system_message_the_block_comes_first(proxy, upstream):
    system, question = sent(proxy, upstream, messages=[QUESTION])["messages"]
    assert system["role"] == "system"
    assert FACT in system["content"]
    assert question == QUESTION


def test_the_block_goes_into_a_list_of_parts(proxy, upstream):
    parts = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    system, _ = sent(proxy, upstream, messages=[{"role": "system", "content": parts}, QUESTION])["messages"]
    assert system["content"][0] == parts[0]
    assert system["content"][1]["type"] == "text"
    assert FACT in system["content"][1]["text"]


@pytest.mark.parametrize("as_parts", [False, True])
def test_an_earlier_block_is_replaced(proxy, upstream, as_parts):
    before = text_with_block("Be kind.", "<memory>\nFacts:\n- [context] User lives in Oslo\n</memory>")
    content = [{"type": "text", "text": before}] if as_parts else before
    system, _ = sent(proxy, upstream, messages=[{"role": "system", "content": content}, QUESTION])["messages"]
    text = json.dumps(system["content"])
    assert text.count("<memory>") == 1
    assert "Oslo" not in text
    assert FACT in text


@pytest.mark.parametrize(("instructions", "begin"), [("Be kind.", "Be kind.\n\n<memory>"), (None, "<memory>")])
def test_the_block_goes_into_the_instructions_of_a_response(proxy, upstream, instructions, begin):
    body = {"user": "ada", "input": "Where do I live?", "instructions": instructions}
    assert proxy.post("/responses", json=body).status_code == 200
    assert upstream.last.body["instructions"].startswith(begin)
    assert FACT in upstream.last.body["instructions"]
    assert upstream.last.body["input"] == "Where do I live?"


def test_everything_else_keeps_its_bytes(proxy, upstream):
    rest = b'"temperature":0.10,"seed":123456789012345678901234567890,"x":1e400,"z":{"b" : 1.0,"a":"\\u00e9"},"n":1.50'
    question = b'{"content":"Where? \\ud83d\\ude00","role":"user","weight":1.0}'
    body = b'{"user":"ada",' + rest + b',"messages":[{"role":"system","content":"s","w":2.0},' + question + b"]}"
    assert proxy.post(content=body).headers["x-backstory-memory"] == "used"
    raw = upstream.last.raw
    assert rest in raw
    assert question in raw
    assert b'"w":2.0' in raw
    assert list(upstream.last.body) == list(json.loads(body))


def test_the_summary_of_the_thread_is_not_asked_for_by_a_wrong_name(proxy, upstream):
    """The block is that of the thread which the header names, also where there is none yet."""
    assert proxy.chat("Hello", X_Backstory_Thread="mine").headers["x-backstory-thread"] == "mine"


# Untouched.


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b"not json", "unreadable"),
        (b"", "unreadable"),
        (b"[1]", "unreadable"),
        (b'{"messages": 3, "user": "ada"}', "unreadable"),
        (b'{"messages": [3], "user": "ada"}', "unreadable"),
        (b'{"user": "ada"}', "unreadable"),
        (b'\xff\xfe{"messages": []}', "unreadable"),
        (b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "unreadable"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "unreadable"),
        (b'{"messages": [ ], "n": NaN, "user": "ada"}', "unreadable"),
        (b'{"messages": [{"role": "system", "content": 3}], "user": "ada"}', "unreadable"),
        (gzip.compress(b'{"messages": [], "user": "ada"}', mtime=0), "unreadable"),
        (b'{ "messages" : [ {"role": "user", "content": "hi"} ] }', "no-user"),
        (b'{ "messages" : [ {"role": "user", "content": "hi"} ], "user": "" }', "no-user"),
        (b'{ "messages" : [ {"role": "user", "content": "hi"} ], "user": {} }', "no-user"),
        (b'{ "messages" : [ {"role": "user", "content": "hi"} ], "user": "%s" }' % (b"x" * 1001), "invalid-name"),
        # Another user: there is nothing to put in.
        (b'{ "messages" : [ {"role": "user", "content": "hi"} ], "user": "bo" }', "used"),
    ],
)
def test_a_body_that_memory_has_nothing_to_do_with_arrives_byte_for_byte(proxy, upstream, body, outcome):
    response = proxy.post(content=body)
    assert (response.status_code, response.headers["x-backstory-memory"]) == (200, outcome)
    assert upstream.last.raw == body
    assert response.json()["choices"][0]["message"]["content"] == "You live in Bergen."
    assert proxy.memory_outcomes == {outcome: 1}
    proxy.until(lambda: proxy.answers == {"answered": 1})


def test_a_body_that_is_too_large_streams_through(proxy, upstream, monkeypatch):
    monkeypatch.setattr("backstory.http.proxy.proxy._MOST_BYTES", 1_000)
    body = json.dumps({"user": "ada", "messages": [{**QUESTION, "content": "x" * 2_000_000}]}).encode()
    assert proxy.post(content=body).headers["x-backstory-memory"] == "too-large"
    assert upstream.last.raw == body
    chunks = (body[n : n + 10_000] for n in range(0, len(body), 10_000))
    assert proxy.post(content=chunks).status_code == 200
    assert upstream.last.raw == body


@pytest.mark.parametrize("setting", [{"enabled": False}])
def test_memory_that_is_switched_off_leaves_requests_alone(setting, tmp_path, upstream):
    from fakes import open_home
    from served import served

    with open_home(tmp_path / "off", **setting) as bs, served(bs, upstream.base_url) as proxy:
        assert proxy.chat("Hello").headers["x-backstory-memory"] == "disabled"
        assert upstream.last.body["messages"] == [{"role": "user", "content": "Hello"}]
        assert proxy.turns() == {}


def test_without_injection_words_are_recorded_and_nothing_is_put_in(tmp_path, upstream):
    from fakes import open_home
    from served import served

    with open_home(tmp_path / "off", injection_enabled=False) as bs, served(bs, upstream.base_url) as proxy:
        bs.memory("ada").add_fact(FACT)
        proxy.chat("Hello there")
        assert FACT not in upstream.last.raw.decode()
        assert proxy.turns() == {"thread-1": ["Hello there", "You live in Bergen."]}


def test_in_tool_mode_nothing_is_recorded_and_no_facts_are_put_in(tmp_path, upstream):
    from fakes import open_home
    from served import served

    with open_home(tmp_path / "off", mode="tool") as bs, served(bs, upstream.base_url) as proxy:
        bs.memory("ada").add_fact(FACT)
        proxy.chat("Hello there")
        assert FACT not in upstream.last.raw.decode()
        assert proxy.turns() == {}


# Other paths.


def test_other_paths_pass_through(proxy, upstream):
    upstream.then(document({"data": []}))
    response = proxy.client.get(proxy.url + "/models?limit=2&after=a%20b", headers={"Accept-Encoding": "br"})
    assert response.json() == {"data": []}
    assert (upstream.last.method, upstream.last.path) == ("GET", "/v1/models?limit=2&after=a%20b")
    assert upstream.last.header("accept-encoding") == "br"
    assert proxy.client.delete(proxy.url + "/responses/resp%2F1").status_code == 200
    assert (upstream.last.method, upstream.last.path) == ("DELETE", "/v1/responses/resp%2F1")
    assert proxy.client.post(proxy.url + "/embeddings", content=b"raw").status_code == 200
    assert upstream.last.raw == b"raw"
    assert proxy.client.get(proxy.url + "/chat/completions").status_code == 200
    assert proxy.memory_outcomes == {"other-path": 4}


@pytest.mark.parametrize("path", ["/../admin", "/%2e%2e/admin", "/a/..%2fadmin", "/..%5cadmin", "x", "/chat/../../x"])
def test_a_path_that_leads_out_of_the_base_url_is_refused(proxy, upstream, path):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", int(proxy.url.split(":")[2].split("/")[0]))
    connection.request("GET", f"/proxy/v1{path}")
    response = connection.getresponse()
    assert response.status == 404
    connection.close()
    assert upstream.requests == []


# Headers.


def test_end_to_end_headers_pass_and_all_others_stay(proxy, upstream):
    headers = {
        "Authorization": "Bearer sk-secret",
        "OpenAI-Organization": "org",
        "OpenAI-Project": "project",
        "X-Custom": "yes",
        "Connection": "keep-alive, X-Hop",
        "X-Hop": "no",
        "TE": "trailers",
        "Cookie": "session=1",
        "X-Backstory-User": "ada",
        "X-Backstory-Thread": "t",
        "X-Backstory-Token": "token",
        "X-Forwarded-For": "10.0.0.1",
        "Accept-Encoding": "gzip, br",
    }
    proxy.post("/chat/completions?a=1", json={"messages": [QUESTION]}, headers=headers)
    got = {name.lower(): value for name, value in upstream.last.headers}
    assert got["authorization"] == "Bearer sk-secret"
    assert (got["openai-organization"], got["openai-project"], got["x-custom"]) == ("org", "project", "yes")
    assert got["host"] == upstream.base_url.split("/")[2]
    assert got["accept-encoding"] == "identity"
    assert got["content-type"] == "application/json"
    assert int(got["content-length"]) == len(upstream.last.raw)
    assert upstream.last.path == "/v1/chat/completions?a=1"
    assert not {"x-hop", "te", "cookie", "x-forwarded-for"} & got.keys()
    assert not [name for name in got if name.startswith("x-backstory")]
    assert proxy.turns().keys() == {"t"}


def test_headers_of_the_answer_pass_back_and_those_of_the_connection_stay(proxy, upstream):
    headers = {
        "X-Request-Id": "r1",
        "X-RateLimit-Remaining": "3",
        "Set-Cookie": "a=1",
        "Keep-Alive": "timeout=5",
        "X-Backstory-Memory": "lie",
    }
    upstream.then(document({}, **headers))
    got = proxy.chat("Hello").headers
    assert (got["x-request-id"], got["x-ratelimit-remaining"]) == ("r1", "3")
    assert got["content-type"] == "application/json"
    assert not {"set-cookie", "keep-alive"} & got.keys()
    assert got.get_list("x-backstory-memory") == ["used"]
    assert len(got.get_list("date")) == 1


def test_a_redirect_is_passed_back(proxy, upstream):
    upstream.then(Answer((b"",), 307, {"Location": "http://127.0.0.1:1/"}))
    response = proxy.chat("Hello")
    assert (response.status_code, response.headers["location"]) == (307, "http://127.0.0.1:1/")
    assert len(upstream.requests) == 1


def test_an_upstream_that_is_the_proxy_itself_is_not_asked(proxy):
    from served import served

    port = proxy.url.split(":")[2].split("/")[0]
    with served(proxy.home, "http://127.0.0.1:9") as other:
        other.proxy._upstream.base_url = other.url
        response = other.chat("Hello")
        assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_is_this_proxy")
        # Another port is another server.
        other.proxy._upstream.base_url = f"http://localhost:{port}/proxy/v1"
        assert other.chat("Hello", user=None).status_code == 200


# Errors of the upstream.


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_upstream_passes_back_byte_for_byte(proxy, upstream, status, stream):
    answer = failure(status, "no, thank you")
    upstream.then(answer)
    response = proxy.chat("I live in Oslo now", stream=stream)
    assert (response.status_code, response.content) == (status, answer.parts[0])
    proxy.until(lambda: proxy.answers == {"upstream-error": 1})
    proxy.until(lambda: proxy.turns() == {"thread-1": ["I live in Oslo now"]})


def test_an_upstream_that_is_not_there_is_an_error_of_the_protocol(home, caplog):
    from served import served

    with served(home, "http://127.0.0.1:9/v1") as proxy:
        response = proxy.chat("Hello")
        assert response.status_code == 502
        error = response.json()["error"]
        assert (error["type"], error["param"], error["code"]) == ("server_error", None, "upstream_unreachable")
        proxy.until(lambda: proxy.answers == {"unreachable": 1})
        proxy.until(lambda: "the model server at 127.0.0.1:9 cannot be reached or does not answer" in caplog.text)


def test_an_upstream_that_closes_without_an_answer_is_an_error_of_the_protocol(proxy, upstream):
    upstream.then(Answer(breaks=True))
    assert proxy.chat("Hello").status_code == 502


def test_an_upstream_that_does_not_answer_in_time_is_an_error_of_the_protocol(home, upstream):
    import threading

    import httpx
    from served import served

    from backstory.http.proxy.upstream import Upstream

    released = threading.Event()

    def stall(_: object) -> Answer:
        released.wait(60)
        return completion("late")

    upstream.then(stall)
    with served(home, upstream.base_url) as proxy:
        proxy.proxy._upstream = Upstream(upstream.base_url, httpx.AsyncClient(timeout=0.05))
        response = proxy.chat("Hello")
        released.set()
        assert (response.status_code, response.json()["error"]["code"]) == (504, "upstream_timeout")
        proxy.until(lambda: proxy.answers == {"timeout": 1})
