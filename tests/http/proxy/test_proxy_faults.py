"""Faults: of memory, of the client and of the upstream. No fault of memory reaches an answer."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import threading
from pathlib import Path

import httpx
import openai
import pytest
from fakes import open_home
from served import FACT, PATIENCE, Served, served
from upstreams import StandIn, chat_stream, completion, delta, events, failure, response_stream

from backstory import Backstory
from backstory.http.access.callers import Caller, Right
from backstory.ledger.core.errors import CorruptLogError, StoreError
from backstory.ledger.log.writer import Writer
from backstory.memory import MemoryHandle

ASKED = {"user": "ada", "stream": True, "messages": [{"role": "user", "content": "Where do I live?"}]}


def last_turn(proxy: Served) -> tuple[str, dict[str, object]]:
    turn = proxy.home.memory("ada").transcript("thread-1")[-1]
    return turn.content, {name: value for name, value in turn.metadata.items() if name != "context"}


def faults(home: Backstory, user: str = "ada") -> dict[str, str]:
    return {fault.doing: fault.kind for fault in home.memory(user).status().faults}


# The client.


def hang_up(url: str, body: dict[str, object], until: bytes) -> None:
    """Close the connection once these bytes came."""
    with httpx.Client(timeout=PATIENCE, trust_env=False) as client, client.stream("POST", url, json=body) as answer:
        seen = b""
        for chunk in answer.iter_raw():
            seen += chunk
            if until in seen:
                return
    raise AssertionError(seen)


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
def test_what_was_said_before_a_client_hung_up_is_recorded_and_marked(proxy, upstream, path):
    released = threading.Event()
    stream = chat_stream if path == "/chat/completions" else response_stream
    upstream.then(stream("You live ", "in Bergen.", hold=lambda n: n != 2 or released.wait(PATIENCE)))
    body = {**ASKED, "input": "Where do I live?"} if path == "/responses" else ASKED
    hang_up(proxy.url + path, body, b"You live ")
    proxy.until(lambda: proxy.answers == {"hung-up": 1})
    proxy.until(lambda: len(proxy.turns().get("thread-1", ())) == 2)
    assert last_turn(proxy) == ("You live ", {"interrupted": True})
    released.set()


def test_a_client_that_hangs_up_ends_the_request_to_the_upstream(proxy, upstream):
    parts = [delta(content="word ")] * 100_000
    upstream.then(events(*parts))
    hang_up(proxy.url + "/chat/completions", ASKED, b"word ")
    assert upstream.gone.wait(PATIENCE)


def test_a_client_that_hangs_up_before_the_answer_leaves_its_question(proxy, upstream):
    asked, released = threading.Event(), threading.Event()

    def stall(_: object) -> object:
        asked.set()
        released.wait(PATIENCE)
        return completion("late")

    upstream.then(stall)
    sock = socket.create_connection(("127.0.0.1", int(proxy.url.split(":")[2].split("/")[0])))
    body = json.dumps(ASKED).encode()
    head = b"POST /proxy/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    sock.sendall(head + body)
    assert asked.wait(PATIENCE)
    sock.close()
    proxy.until(lambda: proxy.answers == {"hung-up": 1})
    proxy.until(lambda: proxy.turns() == {"thread-1": ["Where do I live?"]})
    released.set()
    upstream.then(completion("In Bergen."))
    proxy.chat("Where do I live?")
    assert proxy.turns() == {"thread-1": ["Where do I live?", "In Bergen."]}


def test_a_client_that_hangs_up_while_it_asks_is_counted(proxy, upstream):
    sock = socket.create_connection(("127.0.0.1", int(proxy.url.split(":")[2].split("/")[0])))
    sock.sendall(b"POST /proxy/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
    sock.close()
    proxy.until(lambda: proxy.answers == {"hung-up": 1})
    assert upstream.requests == []


# The upstream.


def test_an_answer_that_breaks_off_is_recorded_marked_and_not_ended(proxy, upstream):
    upstream.then(events(delta(content="You live "), delta(content="in"), breaks=True))
    with pytest.raises(httpx.RemoteProtocolError):
        proxy.chat("Where do I live?", stream=True)
    proxy.until(lambda: proxy.answers == {"broken-off": 1})
    proxy.until(lambda: len(proxy.turns().get("thread-1", ())) == 2)
    assert last_turn(proxy) == ("You live in", {"interrupted": True})


def test_a_document_that_breaks_off_is_no_answer_and_not_ended(proxy, upstream):
    whole = completion("You live in Bergen.")
    upstream.then(type(whole)((whole.parts[0][:50],), headers=whole.headers, breaks=True))
    with pytest.raises(httpx.RemoteProtocolError):
        proxy.chat("Where do I live?")
    proxy.until(lambda: proxy.turns() == {"thread-1": ["Where do I live?"]})


def test_a_stream_that_ends_without_its_last_event_is_marked(proxy, upstream):
    upstream.then(events(delta(content="You live "), delta(content="in")))
    assert proxy.chat("Where do I live?", stream=True).status_code == 200
    assert last_turn(proxy) == ("You live in", {"interrupted": True})


# Memory.


def broken(error: BaseException, monkeypatch: pytest.MonkeyPatch, *verbs: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for verb in verbs:
        monkeypatch.setattr(MemoryHandle, verb, fail)


@pytest.mark.parametrize(
    "error", [StoreError("cannot read"), CorruptLogError("damaged", kind="k", stream="s", line=1, byte=0), TypeError()]
)
def test_a_memory_that_cannot_be_read_leaves_the_request_as_it_was(proxy, upstream, monkeypatch, error, caplog):
    broken(error, monkeypatch, "context")
    response = proxy.chat("Where do I live?")
    assert (response.status_code, response.headers["x-backstory-memory"]) == (200, "unavailable")
    assert upstream.last.body["messages"] == [{"role": "user", "content": "Where do I live?"}]
    assert faults(proxy.home) == {"inject": type(error).__name__}
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen."]}


def test_a_damaged_log_leaves_the_request_as_it_was(tmp_path, upstream, caplog):
    with open_home(tmp_path / "home") as bs:
        bs.memory("ada").add_fact(FACT)
        bs.memory("ada").record("t", [{"role": "user", "content": "I like tea"}] * 1)
    for log in (tmp_path / "home").rglob("*.jsonl"):
        raw = bytearray(log.read_bytes())
        raw[len(raw) // 3] ^= 0x01
        log.write_bytes(raw)
    with open_home(tmp_path / "home") as bs, served(bs, upstream.base_url) as proxy:
        response = proxy.chat("Where do I live?", stream=True)
        assert (response.status_code, response.headers["x-backstory-memory"]) == (200, "unavailable")
        assert response.content == upstream._script[0].parts[0]
        proxy.until(lambda: bs.outbox.count)
    assert "CorruptLogError" in caplog.text


def test_what_a_full_disk_refused_is_recorded_when_there_is_room(proxy, upstream, monkeypatch, caplog):
    record = Writer.record
    full = True

    def refuse(self: Writer, *args: object, **options: object) -> object:
        if full:
            raise StoreError("no space left")
        return record(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Writer, "record", refuse)
    response = proxy.chat("Where do I live?")
    assert (response.status_code, response.json()["choices"][0]["message"]["content"]) == (200, "You live in Bergen.")
    assert FACT in upstream.last.raw.decode()
    assert proxy.home.outbox.count == 1
    assert faults(proxy.home) == {"record": "StoreError"}
    full = False
    assert proxy.home.outbox.flush(PATIENCE)
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen."]}


def test_a_locked_memory_does_not_hold_up_the_answer(tmp_path, upstream, caplog):
    with open_home(tmp_path / "home", file_lock_timeout_seconds=1) as bs:
        bs.memory("ada").add_fact(FACT)
        lock = next((tmp_path / "home").rglob("ledger.lock")).with_name("transcript.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with served(bs, upstream.base_url, record_seconds=0.05) as proxy:
                response = proxy.chat("Where do I live?")
                assert (response.status_code, response.headers["x-backstory-memory"]) == (200, "used")
                assert FACT in upstream.last.raw.decode()
                proxy.until(lambda: bs.outbox.count == 1)
                proxy.until(lambda: not proxy.proxy._recordings._tasks)
        finally:
            os.close(descriptor)
        assert bs.outbox.flush(PATIENCE)
        assert [turn.content for turn in bs.memory("ada").transcript("thread-1")] == [
            "Where do I live?",
            "You live in Bergen.",
        ]


def test_memory_that_is_slow_to_read_is_left_out_and_records_all_the_same(home, upstream, monkeypatch, caplog):
    released = threading.Event()
    context = MemoryHandle.context
    readings = []

    def slow(self: MemoryHandle, *args: object, **options: object) -> object:
        readings.append(options)
        released.wait(PATIENCE)
        return context(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryHandle, "context", slow)
    with served(home, upstream.base_url, read_seconds=0.05, record_seconds=0.05) as proxy:
        for words in ("Where do I live?", "Where is my cello?"):
            # The second one does not even wait.
            response = proxy.chat(words)
            assert (response.status_code, response.headers["x-backstory-memory"]) == (200, "slow")
            assert FACT not in upstream.last.raw.decode()
        proxy.until(lambda: faults(home) == {"inject": "SlowMemory"})
        assert len(readings) == 1
        released.set()
        proxy.until(lambda: list(map(len, proxy.turns().values())) == [2, 2])
        proxy.until(lambda: not proxy.proxy._late)
        assert proxy.chat("And now, where do I live?").headers["x-backstory-memory"] == "used"


def test_a_bug_of_ours_forwards_the_request_as_it_was(proxy, upstream, monkeypatch, caplog):
    def bug(*_: object) -> None:
        raise AttributeError("sk-secret words")

    monkeypatch.setattr("backstory.http.proxy.openai.requests.heard", bug)
    assert proxy.chat("Where do I live?").headers["x-backstory-memory"] == "unreadable"
    assert "AttributeError" in caplog.text
    assert "secret" not in caplog.text


def test_too_many_recordings_are_counted_and_not_begun(proxy, upstream, monkeypatch, caplog):
    monkeypatch.setattr("backstory.http.proxy.recorder._MOST", 0)
    assert proxy.chat("Where do I live?").status_code == 200
    assert faults(proxy.home) == {"record": "DeliveryLost"}
    assert proxy.turns() == {}


@pytest.mark.parametrize("message", [{"role": "critic", "content": "no"}, {"role": "user", "content": 3}])
def test_a_message_that_cannot_be_read_is_counted_and_the_others_are_recorded(proxy, upstream, message, caplog):
    body = {"user": "ada", "messages": [message, {"role": "user", "content": "Where do I live?"}]}
    assert proxy.post(json=body).headers["x-backstory-memory"] == "used"
    assert message in upstream.last.body["messages"]
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen."]}
    assert faults(proxy.home) == {"record": "InputError"}


# Users.


@pytest.mark.parametrize("user", ["../../etc", "a/b", ".", "\x00", "😀", "x" * 1000, "CON", "' OR 1=1", "{}", "a\nb"])
def test_a_hostile_user_id_names_a_memory_and_nothing_else(proxy, upstream, user, tmp_path):
    before = set(tmp_path.iterdir())
    assert proxy.chat("Where do I live?", user=user).headers["x-backstory-memory"] == "used"
    assert list(proxy.turns(user).values()) == [["Where do I live?", "You live in Bergen."]]
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("header", [b"x" * 1001, b"a\xffb" + b"y" * 1000])
def test_a_header_that_is_no_name_is_no_memory(proxy, upstream, header):
    response = proxy.post(content=json.dumps(ASKED), headers={"X-Backstory-User": header})
    assert (response.status_code, response.headers["x-backstory-memory"]) == (200, "invalid-name")
    assert upstream.last.body == ASKED


def test_an_agent_that_is_no_name_is_no_memory(proxy, upstream):
    assert proxy.chat("Hi", X_Backstory_Agent="../x").headers["x-backstory-memory"] == "invalid-name"


def test_a_token_reaches_no_other_user(home, upstream):
    caller = Caller("app", Right.WRITE, frozenset({"ada", "cy"}))
    with served(home, upstream.base_url, caller) as proxy:
        for denied in (proxy.chat("Hi", user="bo"), proxy.chat("Hi", user="ada", X_Backstory_User="bo")):
            assert denied.status_code == 404
            error = denied.json()["error"]
            assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "memory_not_found")
        assert upstream.requests == []
        assert proxy.memory_outcomes == {"refused": 2}
        assert proxy.chat("Hi", user=None).headers["x-backstory-memory"] == "no-user"
        assert proxy.chat("Hi", user="cy").headers["x-backstory-memory"] == "used"
    assert [str(owner) for owner in home.owners()] == ["user ada", "user cy"]


def test_a_token_of_one_user_need_not_name_it(home, upstream):
    with served(home, upstream.base_url, Caller("app", Right.WRITE, frozenset({"ada"}))) as proxy:
        proxy.chat("Where do I live?", user=None)
        assert FACT in upstream.last.raw.decode()
        assert list(proxy.turns().values()) == [["Where do I live?", "You live in Bergen."]]
        assert proxy.chat("Hi", user="bo").status_code == 404


def test_a_token_that_may_only_read_records_nothing(home, upstream):
    with served(home, upstream.base_url, Caller("app", Right.READ)) as proxy:
        assert proxy.chat("Where do I live?").headers["x-backstory-memory"] == "used"
        assert FACT in upstream.last.raw.decode()
    assert home.memory("ada").threads() == ()


# The caller's key.


def test_the_callers_key_is_nowhere(tmp_path: Path, upstream: StandIn, caplog: pytest.LogCaptureFixture):
    key = "sk-proj-5up3rs3cr3t"
    caplog.set_level(logging.DEBUG)
    with open_home(tmp_path / "home") as bs:
        with served(bs, upstream.base_url) as proxy:

            def ask(**more: str) -> httpx.Response:
                headers = {"Authorization": f"Bearer {key}", **more}
                return proxy.post(f"/chat/completions?key={key}", json=ASKED, headers=headers)

            ask()
            assert upstream.last.header("authorization") == f"Bearer {key}"
            upstream.then(failure(401), failure(500), events(delta(content="x"), breaks=True))
            ask()
            ask()
            with pytest.raises(httpx.RemoteProtocolError):
                ask()
            broken_client = openai.OpenAI(base_url=proxy.url, api_key=key, max_retries=0)
            upstream.then(completion("yes"))
            broken_client.chat.completions.create(model="m", user="ada", messages=ASKED["messages"])  # type: ignore[call-overload]
            broken_client.close()
        with served(bs, "http://127.0.0.1:9/v1") as proxy:
            assert key not in ask().text
            assert key not in ask(**{"X-Bad": "a\x01"}).text
    # Those of the client in this test are its own.
    ours = [r for r in caplog.records if "/proxy/v1" not in r.getMessage() and not r.name.startswith("openai")]
    assert ours
    assert not [record.name for record in ours if key in record.getMessage() or key in str(record.exc_text)]
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if key.encode() in path.read_bytes()]
