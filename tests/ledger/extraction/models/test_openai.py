from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import openai
import pytest
from doubles.misbehaving import (
    SILENCE,
    Behaviour,
    MisbehavingServer,
    Response,
    accepting,
    completion,
    cut_off,
    failure,
    json_response,
)

from backstory.ledger.core.errors import ModelRejectedError, ModelUnavailableError
from backstory.ledger.extraction.models.model import Answer, Model, Prompt, Usage
from backstory.ledger.extraction.models.openai import OpenAIModel

pytestmark = pytest.mark.slow  # servers and processes: more than an inner loop needs

KEY = "sk-very-secret-0123456789"
NAME = "asked-model"
SCHEMA = {"type": "object", "properties": {"facts": {"type": "array"}}}
PROMPT = Prompt(system="You extract facts as JSON.", user="我喜欢茶 🍵", digest="0" * 64, schema=SCHEMA)
ALL_FORMS = ["json_schema", "json_object", "text"]

Serve = Callable[..., MisbehavingServer]
Build = Callable[..., OpenAIModel]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith("OPENAI_") or variable.lower().endswith("_proxy"):
            monkeypatch.delenv(variable)


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[MisbehavingServer] = []

    def start(*script: Behaviour, repeat: bool = False) -> MisbehavingServer:
        server = MisbehavingServer(*script, repeat=repeat)
        servers.append(server)
        return server.__enter__()

    yield start
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture
def build() -> Iterator[Build]:
    models: list[OpenAIModel] = []

    def make(server: MisbehavingServer | None = None, **options) -> OpenAIModel:
        if server is not None:
            options = {"base_url": server.base_url, "api_key": KEY, "timeout": 30.0, **options}
        models.append(OpenAIModel(NAME, **options))
        return models[-1]

    yield make
    for model in models:
        model.close()


def shown(error: BaseException) -> str:
    """All that a log of this error would hold."""
    return "".join(traceback.format_exception(error))


def unavailable(model: OpenAIModel) -> ModelUnavailableError:
    with pytest.raises(ModelUnavailableError) as caught:
        model.ask(PROMPT)
    return caught.value


def rejected(model: OpenAIModel) -> ModelRejectedError:
    with pytest.raises(ModelRejectedError) as caught:
        model.ask(PROMPT)
    return caught.value


# The request and the answer


def test_a_prompt_goes_out_as_system_and_user_message_with_its_schema(serve, build):
    server = serve(completion("{}"))
    build(server).ask(PROMPT)
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": NAME,
        "messages": [{"role": "system", "content": PROMPT.system}, {"role": "user", "content": PROMPT.user}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": SCHEMA, "strict": False},
        },
    }


def test_the_answer_names_the_model_that_answered_and_the_bill(serve, build):
    model: Model = build(serve(completion('{"facts": []}')))
    assert model.name == NAME
    assert model.ask(PROMPT) == Answer(text='{"facts": []}', model="served-model", usage=Usage(input=11, output=7))


@pytest.mark.parametrize("stated", [{}, {"model": None}, {"model": " "}, {"model": 4}])
def test_a_server_that_names_no_model_is_taken_to_have_used_the_one_asked_for(serve, build, stated):
    server = serve(json_response({"choices": [{"message": {"content": "x"}}], **stated}))
    assert build(server).ask(PROMPT) == Answer(text="x", model=NAME, usage=None)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (None, None),
        ({}, None),
        ([3, 4], None),
        ({"prompt_tokens": 3}, Usage(input=3)),
        ({"prompt_tokens": 3, "completion_tokens": "4"}, Usage(input=3)),
        ({"prompt_tokens": True, "completion_tokens": 4}, Usage(output=4)),
        ({"prompt_tokens": -1, "completion_tokens": 2**70}, None),
        ({"prompt_tokens": 1.5, "completion_tokens": 0}, Usage(output=0)),
    ],
)
def test_only_plain_token_counts_are_believed(serve, build, usage, read):
    server = serve(json_response({"choices": [{"message": {"content": "x"}}], "usage": usage}))
    assert build(server).ask(PROMPT).usage == read


def test_a_temperature_is_sent_only_when_given(serve, build):
    server = serve(completion("x"), repeat=True)
    build(server).ask(PROMPT)
    build(server, temperature=0.0).ask(PROMPT)
    assert "temperature" not in server.requests[0].body
    assert server.requests[1].body["temperature"] == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "<think>\nTea? Yes.\n</think>\n\n  ```json\n{}\n```\n",
        "👩‍👩‍👧 \x00 \u2028 \ufeff 茶",
        pytest.param("茶🍵" * 1_700_000, id="ten megabytes"),
    ],
)
def test_text_comes_back_verbatim(serve, build, text):
    answer = build(serve(completion(text))).ask(PROMPT)
    assert answer.text == text


def test_lone_surrogates_in_an_answer_become_replacement_characters(serve, build):
    answer = build(serve(completion("a\ud800b\ud83c\udf75"))).ask(PROMPT)
    assert answer.text == "a\ufffdb🍵"


def test_lone_surrogates_in_a_prompt_do_not_stop_it(serve, build):
    server = serve(completion("x"))
    build(server).ask(Prompt(system="s\udfff", user="u\ud800", digest="0" * 64, schema=SCHEMA))
    assert [message["content"] for message in server.requests[0].body["messages"]] == ["s\ufffd", "u\ufffd"]


def test_a_cut_answer_is_returned_as_it_is(serve, build):
    assert build(serve(completion('{"fac', finish_reason="length"))).ask(PROMPT).text == '{"fac'


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_refusal_is_returned_as_text(serve, build, content):
    assert build(serve(completion(content, refusal="I would rather not."))).ask(PROMPT).text == "I would rather not."


def test_a_content_in_parts_is_joined_without_the_thinking(serve, build):
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "{"},
        {"type": "text", "text": "}"},
        "stray",
    ]
    assert build(serve(completion(parts))).ask(PROMPT).text == "{}"


def test_json_under_another_content_type_is_read(serve, build):
    server = serve(Response(200, completion("x").body, {"Content-Type": "text/plain"}))
    assert build(server).ask(PROMPT).text == "x"


# The form of the reply


@pytest.mark.parametrize("status", [400, 404, 415, 422, 500, 501])
def test_a_refused_schema_falls_back_to_a_json_object_and_stays_there(serve, build, status):
    server = serve(accepting("json_object", refusal=status), repeat=True)
    model = build(server)
    assert [model.ask(PROMPT).text, model.ask(PROMPT).text] == ["json_object", "json_object"]
    assert server.forms == ["json_schema", "json_object", "json_object"]
    assert server.requests[1].body["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("status", [400, 404, 415, 422, 500, 501])
def test_a_server_without_any_form_is_asked_for_plain_text_and_stays_there(serve, build, status):
    server = serve(accepting("text", refusal=status), repeat=True)
    model = build(server)
    assert [model.ask(PROMPT).text, model.ask(PROMPT).text] == ["text", "text"]
    assert server.forms == [*ALL_FORMS, "text"]
    assert "response_format" not in server.requests[3].body


def test_one_client_remembers_nothing_for_another(serve, build):
    server = serve(accepting("json_object", refusal=400), repeat=True)
    build(server).ask(PROMPT)
    build(server).ask(PROMPT)
    assert server.forms == ["json_schema", "json_object"] * 2


def test_a_form_that_has_worked_is_not_given_up_for_a_server_error(serve, build):
    server = serve(completion("x"), failure(500, "crashed"), completion("y"))
    model = build(server)
    model.ask(PROMPT)
    assert "crashed" in str(unavailable(model))
    assert model.ask(PROMPT).text == "y"
    assert server.forms == ["json_schema"] * 3


def test_a_form_that_has_worked_may_still_be_refused_for_one_schema(serve, build):
    server = serve(completion("x"), failure(400), completion("y"), completion("z"))
    model = build(server)
    assert [model.ask(PROMPT).text for _ in range(3)] == ["x", "y", "z"]
    assert server.forms == ["json_schema", "json_schema", "json_object", "json_schema"]


def test_a_form_does_not_count_as_working_before_it_gave_an_answer(serve, build):
    server = serve(completion(""), failure(500), completion("x"))
    model = build(server)
    unavailable(model)
    assert model.ask(PROMPT).text == "x"
    assert server.forms == ["json_schema", "json_schema", "json_object"]


@pytest.mark.parametrize("status", [408, 409, 425, 429, 502, 503, 504, 529])
def test_a_passing_failure_is_no_refusal_of_a_form(serve, build, status):
    server = serve(failure(status, "later"), completion("x"))
    model = build(server)
    error = unavailable(model)
    assert f"HTTP {status}" in str(error)
    assert "later" in str(error)
    assert server.forms == ["json_schema"]
    assert model.ask(PROMPT).text == "x"
    assert server.forms == ["json_schema", "json_schema"]


def test_a_server_error_in_every_form_is_unavailability(serve, build):
    server = serve(failure(500), repeat=True)
    assert "HTTP 500" in str(unavailable(build(server)))
    assert server.forms == ALL_FORMS


def test_a_bad_request_in_every_form_is_rejected_with_the_last_reason(serve, build):
    server = serve(failure(400, "no schema"), failure(400, "no object"), failure(400, "context too long"))
    error = rejected(build(server))
    assert "context too long" in str(error)
    assert "shorten the prompt" in str(error)
    assert server.forms == ALL_FORMS


def test_an_unknown_model_is_rejected_by_name_and_address(serve, build):
    server = serve(failure(404, "no such model"), repeat=True)
    error = rejected(build(server))
    assert NAME in str(error)
    assert server.base_url in str(error)
    assert server.forms == ALL_FORMS


def test_threads_share_one_client_and_what_it_learnt(serve, build, monkeypatch):
    built: list[openai.OpenAI] = []
    original = openai.OpenAI

    def counting(**options) -> openai.OpenAI:
        built.append(original(**options))
        return built[-1]

    monkeypatch.setattr(openai, "OpenAI", counting)
    server = serve(accepting("json_object", refusal=400), repeat=True)
    model = build(server)
    start = threading.Barrier(8)

    def work() -> list[str]:
        start.wait(30)
        return [model.ask(PROMPT).text for _ in range(3)]

    with ThreadPoolExecutor(8) as pool:
        answers = [future.result() for future in [pool.submit(work) for _ in range(8)]]
    assert answers == [["json_object"] * 3] * 8
    assert len(built) == 1
    # Each thread may find out for itself once, but none twice.
    assert server.forms.count("json_schema") <= 8
    assert server.forms.count("json_object") == 24


# Failures


def test_after_a_rate_limit_the_next_ask_is_answered(serve, build):
    server = serve(failure(429, "slow down"), completion("x"))
    model = build(server)
    error = unavailable(model)
    assert "slow down" in str(error)
    assert error.retry_after is None
    assert len(server.requests) == 1
    assert model.ask(PROMPT).text == "x"


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("-3", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("nan", None),
        ("9" * 400, None),
        ("soon", None),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
    ],
)
def test_the_wait_a_server_states_is_passed_on(serve, build, status, header, seconds):
    error = unavailable(build(serve(failure(status, Retry_After=header))))
    assert error.retry_after == seconds


@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_a_wait_until_a_date_is_passed_on_in_seconds(serve, build, zone):
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1)).replace("+0000", zone)
    error = unavailable(build(serve(failure(429, Retry_After=date))))
    assert error.retry_after is not None
    assert 3000 < error.retry_after <= 3600


@pytest.mark.parametrize("place", ["code", "type"])
def test_a_used_up_quota_is_not_worth_waiting_for(serve, build, place):
    body = {"error": {"message": "You exceeded your current quota", place: "insufficient_quota"}}
    error = rejected(build(serve(json_response(body, status=429, Retry_After="7"))))
    assert "exceeded your current quota" in str(error)
    assert "check the account's quota" in str(error)


@pytest.mark.parametrize("status", [401, 403])
def test_a_bad_key_is_rejected_at_once(serve, build, status):
    server = serve(failure(status, f"Incorrect API key provided: {KEY}"))
    error = rejected(build(server))
    assert "OPENAI_API_KEY" in str(error)
    assert "Incorrect API key provided: ***" in str(error)
    assert KEY not in shown(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [402, 405, 413, 418])
def test_other_refusals_are_rejected_at_once(serve, build, status):
    server = serve(failure(status, "not like this"))
    assert "not like this" in str(rejected(build(server)))
    assert len(server.requests) == 1


def test_a_redirect_to_nowhere_is_rejected(serve, build):
    assert "HTTP 304" in str(rejected(build(serve(Response(304)))))


def test_a_silent_server_is_given_up(serve, build):
    server = serve(SILENCE)
    error = unavailable(build(server, timeout=0.5))
    assert "timeout" in str(error)
    assert len(server.requests) <= 1


@pytest.mark.parametrize("response", [completion("x" * 1000), failure(400, "x" * 1000), failure(500, "x" * 1000)])
def test_a_body_cut_off_mid_way_is_unavailability(serve, build, response):
    server = serve(cut_off(response))
    assert "broke off" in str(unavailable(build(server)))
    assert len(server.requests) == 1


def test_a_closed_port_is_unavailability(build):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{holder.getsockname()[1]}/v1"
        error = unavailable(build(base_url=address))
    assert address in str(error)
    assert "refused" in str(error)
    assert error.__cause__ is not None


@pytest.mark.parametrize("content_type", ["application/json", "text/html"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Welcome</html>",
        b'{"choices": [',
        b"\xff\xfe\xff",
        b'"\xff"',
        b"[" * 200_000,
        b"9" * 10_000,
    ],
    ids=["nothing", "html", "half", "binary", "not utf-8", "brackets", "huge number"],
)
def test_a_body_that_is_no_json_is_unavailability(serve, build, body, content_type):
    server = serve(Response(200, body, {"Content-Type": content_type}))
    assert "no JSON" in str(unavailable(build(server)))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        7,
        {},
        {"choices": None},
        {"choices": []},
        {"choices": {}},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": None}}]},
        {"choices": [{"message": {"content": ""}}]},
        {"choices": [{"message": {"content": " \n"}}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"content": []}}]},
        {"choices": [{"message": {"content": None, "refusal": 5}}]},
        {"choices": [{"message": {"content": None, "refusal": " "}}]},
    ],
    ids=json.dumps,
)
def test_an_answer_without_text_is_unavailability(serve, build, body):
    server = serve(json_response(body))
    assert "without any text" in str(unavailable(build(server)))
    assert len(server.requests) == 1


def test_an_empty_answer_says_why_it_ended(serve, build):
    assert "content_filter" in str(unavailable(build(serve(completion("", finish_reason="content_filter")))))


def test_an_error_in_a_successful_body_is_told(serve, build):
    server = serve(json_response({"error": {"message": f"provider down, key {KEY}", "code": 502}}))
    error = unavailable(build(server))
    assert "provider down, key ***" in str(error)
    assert KEY not in shown(error)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error": "out of memory"}', "out of memory"),
        (b'{"message": "out of memory"}', "out of memory"),
        (b'{"detail": [{"loc": ["body"], "msg": "out of memory"}]}', "out of memory"),
        (b"<html><h1>Bad\n Gateway</h1></html>", "HTTP 502: Bad Gateway;"),
        (b"", "HTTP 502;"),
        (b"{}", "HTTP 502;"),
        (b"[]", "HTTP 502;"),
        (b'{"error": {"message": 5}}', "HTTP 502;"),
        (b'{"error":' * 800 + b"1" + b"}" * 800, "HTTP 502;"),
    ],
)
def test_what_a_server_says_is_found_wherever_it_says_it(serve, build, body, told):
    assert told in str(unavailable(build(serve(Response(502, body)))))


def test_what_a_server_says_is_told_on_one_line_and_in_brief(serve, build):
    error = rejected(build(serve(failure(418, "a\n b " + "x" * 5000))))
    assert "a b x" in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 600


def test_a_key_at_the_edge_of_what_is_told_is_hidden_whole(serve, build):
    error = rejected(build(serve(failure(418, "x" * 270 + KEY + "x" * 500))))
    assert KEY[:6] not in shown(error)


# Keys, addresses and clients


@pytest.mark.slow
def test_every_message_says_where_and_what_to_do_and_never_the_key(serve, build):
    scripts: list[Response] = [
        *[failure(status, f"you sent {KEY}") for status in (400, 401, 402, 403, 404, 413, 418, 422, 429, 500, 503)],
        failure(429, KEY, code="insufficient_quota"),
        cut_off(failure(500, KEY)),
        Response(200, f"<p>{KEY}".encode()),
        Response(500, f"<p>{KEY}".encode()),
        json_response({"error": KEY}),
        completion("", finish_reason=KEY),
        SILENCE,
    ]
    for response in scripts:
        server = serve(response, repeat=True)
        with pytest.raises((ModelRejectedError, ModelUnavailableError)) as caught:
            build(server, timeout=0.5 if response.silent else 30.0).ask(PROMPT)
        message = str(caught.value)
        assert KEY not in shown(caught.value)
        assert message.startswith(f"Model {NAME!r} at {server.base_url} ")
        assert "check" in message or "shorten" in message or "try again" in message


def test_the_secrets_of_an_address_are_not_told(serve, build):
    server = serve(failure(401), repeat=True)
    address = server.base_url.replace("http://", "http://me:hush-hush@") + "?token=hush-hush"
    error = rejected(build(server, base_url=address))
    assert "hush-hush" not in str(error)
    assert server.base_url in str(error)


@pytest.mark.parametrize("key", ["sk-secret\nX: y", "sk-secret\x00", "sk-sécret"])
def test_a_key_no_header_can_carry_is_rejected_unseen_and_unsent(serve, build, key):
    server = serve(completion("x"))
    error = rejected(build(server, api_key=key))
    assert "OPENAI_API_KEY" in str(error)
    assert key not in shown(error)
    assert repr(key)[1:-1] not in shown(error)
    assert server.requests == []


def test_the_line_end_of_a_key_file_does_no_harm(serve, build):
    server = serve(completion("x"))
    build(server, api_key=f"{KEY}\n").ask(PROMPT)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_key_and_address_come_from_the_environment(serve, build, monkeypatch):
    server = serve(completion("x"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert build().ask(PROMPT).text == "x"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_arguments_win_over_the_environment(serve, build, monkeypatch):
    server = serve(completion("x"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    assert build(server).ask(PROMPT).text == "x"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("source", ["argument", "environment"])
@pytest.mark.parametrize("empty", [False, True])
def test_a_server_with_an_address_of_its_own_needs_no_key(serve, build, monkeypatch, source, empty):
    server = serve(completion("x"))
    if empty:
        monkeypatch.setenv("OPENAI_API_KEY", "")
    if source == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    model = build(base_url=server.base_url if source == "argument" else None)
    assert model.ask(PROMPT).text == "x"


@pytest.mark.parametrize("address", [None, ""])
def test_without_key_and_address_nothing_is_asked(build, monkeypatch, address):
    if address is not None:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
    error = rejected(build())
    assert "set OPENAI_API_KEY" in str(error)
    assert "https://api.openai.com/v1" in str(error)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8080/v1", "localhost:8080", "ftp://127.0.0.1", "http://", "http://[::1", "http://h:99999"]
)
def test_an_address_that_is_none_is_rejected(build, address):
    assert "OPENAI_BASE_URL" in str(rejected(build(base_url=address)))


def test_an_address_the_client_cannot_take_is_rejected(build):
    error = rejected(build(base_url="http://a\x7fb/v1"))
    assert "no client could be set up" in str(error)
    assert error.__cause__ is not None


def test_a_prompt_that_cannot_be_spelt_is_rejected(serve, build):
    server = serve(completion("x"))
    model = build(server)
    broken = Prompt(system="s", user="u", digest="0" * 64, schema={"title": "\ud800"})
    with pytest.raises(ModelRejectedError, match="check the prompt"):
        model.ask(broken)
    assert server.requests == []


def test_a_given_client_keeps_its_settings_but_does_not_retry(serve):
    server = serve(failure(500), failure(500), failure(500, f"you sent {KEY}"), completion("x"))
    with openai.OpenAI(api_key=KEY, base_url=server.base_url, max_retries=5, timeout=30) as client:
        model = OpenAIModel(NAME, client=client)
        error = unavailable(model)
        assert KEY not in shown(error)
        assert server.base_url in str(error)
        assert server.forms == ALL_FORMS
        assert model.ask(PROMPT).text == "x"
        model.close()
        assert not client.is_closed()
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_given_client_that_is_closed_is_rejected(serve):
    server = serve(completion("x"))
    client = openai.OpenAI(api_key=KEY, base_url=server.base_url)
    client.close()
    assert "closed" in str(rejected(OpenAIModel(NAME, client=client)))


def test_a_closed_model_opens_again(serve, build):
    server = serve(completion("x"), completion("y"))
    model = build(server)
    model.ask(PROMPT)
    model.close()
    model.close()
    assert model.ask(PROMPT).text == "y"


def test_a_forked_child_asks_over_connections_of_its_own_and_leaves_its_parents_open(serve, build, monkeypatch):
    built: list[openai.OpenAI] = []
    original = openai.OpenAI

    def noted(**options) -> openai.OpenAI:
        built.append(original(**options))
        return built[-1]

    monkeypatch.setattr(openai, "OpenAI", noted)
    server = serve(completion("x"), repeat=True)
    model = build(server)
    model.ask(PROMPT)
    parents = model._connect()
    child = os.fork()
    if child == 0:
        # Whatever happens, the child must not go on with the tests.
        try:
            answered, opened = model.ask(PROMPT).text, len(built)
            model._connection = parents
            model.close()
            os._exit(0 if (answered, opened, built[0].is_closed()) == ("x", 2, False) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert model.ask(PROMPT).text == "x"
    assert len(built) == 1


def test_the_client_library_is_loaded_only_when_asked():
    script = (
        "import sys; from backstory.ledger.extraction.models.openai import OpenAIModel; OpenAIModel('m', api_key='k');"
        "sys.exit('openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
