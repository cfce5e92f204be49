"""Event streams of long requests: progress, then one result or error; the work ends when the client goes away."""

from __future__ import annotations

import json
import queue
import threading
from pathlib import Path

import pytest
from fakes import PATIENCE, open_home
from served_home import CheckedClient, Json, Server, user
from serving import Stream, thread_server

from backstory.http.routes import explaining
from backstory.ledger.core.errors import StoreError
from backstory.memory import MemoryHandle
from backstory.services.services import Progress

ADA = user("ada")
EVENTS = {"Accept": "text/event-stream"}
QUESTION = {"policy": {"max_facts": 2}}
REQUESTS = [("GET", "/v1/verify", None), ("POST", "/v1/what-if", QUESTION)]


@pytest.fixture(autouse=True)
def memory(server: Server) -> MemoryHandle:
    found = server.home.memory("ada")
    for n in range(5):
        found.add_fact(f"likes number {n}")
    return found


def events_of(text: str) -> list[tuple[str, Json]]:
    found = []
    for block in text.split("\n\n"):
        if block:
            name, data = block.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS, ids=str)
def test_the_result_is_the_one_that_others_get(client: CheckedClient, method: str, path: str, body: Json) -> None:
    streamed = client.request(method, path, params=ADA, json=body, headers=EVENTS)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.headers["cache-control"] == "no-store"
    *steps, (name, result) = events_of(streamed.text)
    assert name == "result"
    assert result == client.request(method, path, params=ADA, json=body).json()
    assert {name for name, _ in steps} <= {"progress"}


def test_a_damaged_log_is_the_result_of_a_verification_not_its_error(tmp_path: Path) -> None:
    with open_home(tmp_path) as backstory:
        backstory.memory("ada").add_fact("likes tea")
    log = next(tmp_path.rglob("ledger.jsonl"))
    log.write_bytes(log.read_bytes().replace(b"likes tea", b"likes mud"))
    with thread_server(tmp_path) as served, served.client(EVENTS) as client:
        *_, (name, result) = events_of(client.get("/v1/verify?user=ada").text)
    assert name == "result"
    assert [problem["kind"] for problem in result["problems"]] == ["altered"]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS, ids=str)
def test_the_steps_that_are_done_are_told(
    client: CheckedClient, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Json
) -> None:
    """Each step waits until the one before it was sent."""
    told: queue.Queue[int] = queue.Queue()

    def step(self: explaining._Steps, done: int) -> None:
        self.done = done
        while told.get(timeout=PATIENCE) != done:
            pass

    spelled = explaining._event

    def event(name: str, data: Json) -> bytes:
        if name == "progress":
            told.put(data["done"])
        return spelled(name, data)

    monkeypatch.setattr(explaining, "_SECONDS", 0.001)
    monkeypatch.setattr(explaining, "_event", event)
    monkeypatch.setattr(explaining._Steps, "__call__", step)
    *steps, (last, _) = events_of(client.request(method, path, params=ADA, json=body, headers=EVENTS).text)
    assert last == "result"
    done = [data["done"] for name, data in steps if name == "progress"]
    assert done == sorted(done)
    assert set(range(1, 7)) <= set(done)
    assert {data["total"] for _, data in steps} == {6}


def test_an_error_before_the_work_has_its_status(client: CheckedClient) -> None:
    for params, status in (({"user": "u" * 1001}, 400), ({**ADA, "usr": "x"}, 400)):
        assert client.get("/v1/verify", params=params, headers=EVENTS).status_code == status
    wrong = client.post("/v1/what-if", params=ADA, json={"policy": {"most_facts": 2}}, headers=EVENTS)
    assert (wrong.status_code, wrong.headers["content-type"]) == (400, "application/problem+json")


def test_an_error_of_the_work_is_an_event_with_the_problem(client: CheckedClient) -> None:
    asked = {"policy": {"max_facts": -1}}
    plain = client.post("/v1/what-if", params=ADA, json=asked)
    streamed = client.post("/v1/what-if", params=ADA, json=asked, headers=EVENTS)
    assert streamed.status_code == 200
    assert events_of(streamed.text)[-1] == ("error", plain.json())


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/event-stream", True),
        ("Text/Event-Stream;q=0.9", True),
        ("", False),
    ],
)
def test_only_who_asks_for_events_gets_them(client: CheckedClient, accept: str, streams: bool) -> None:
    answer = client.get("/v1/verify", params=ADA, headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("text/event-stream") is streams


def test_the_work_ends_when_the_client_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gone, ended = threading.Event(), threading.Event(), threading.Event()

    def verify(self: MemoryHandle, *, expect_head: str | None = None, progress: Progress | None = None) -> None:
        assert progress is not None
        done = 0
        begun.set()
        try:
            while not gone.is_set() or done < 10**9:
                done += 1
                progress(done)
        finally:
            ended.set()

    monkeypatch.setattr(MemoryHandle, "verify", verify)
    with thread_server(tmp_path / "served") as running:
        with Stream(running, "/v1/verify?user=ada", EVENTS) as stream:
            stream.wait_for(b"event: progress")
            assert begun.wait(PATIENCE)
            assert not ended.is_set()
        gone.set()
        assert ended.wait(PATIENCE)


def test_an_error_of_the_store_in_the_middle_is_told(client: CheckedClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(self: MemoryHandle, *, expect_head: str | None = None, progress: Progress | None = None) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(MemoryHandle, "verify", verify)
    streamed = client.get("/v1/verify", params=ADA, headers=EVENTS)
    name, problem = events_of(streamed.text)[-1]
    assert (name, problem["status"], problem["detail"]) == ("error", 503, "the disk is gone")
