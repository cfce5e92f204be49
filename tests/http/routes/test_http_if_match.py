"""Writes with If-Match: made on the memory that the client has seen, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fakes import exchange
from served_home import CheckedClient, Server, user

from backstory import Backstory, MemoryHandle
from backstory.outbox.outbox import Outbox

ADA = user("ada")

BODIES: Mapping[str, object] = {
    "record": {"thread": "t", "messages": exchange("tea")},
    "extract": {"replies": []},
    "flush": {"timeout": 0},
    "retry": {},
    "discard": {"thread": "t"},
    "facts": {"content": "likes rum"},
    "facts/{fact_id}": {"category": "goal"},
    "revert": {"seq": 2},
    "rollback": {"to": 2},
    "clear": {},
    "import": {"document": ["likes rum"]},
    "policy": {"max_facts": 20},
    "forget": {"matching": "tea"},
    "forget-user": {},
}


def writes(server: Server) -> list[tuple[str, str]]:
    """Every route of the document that changes something: its method and its path below `/v1`."""
    found = []
    for path, operations in server.app.openapi()["paths"].items():
        for method, operation in operations.items():
            headers = {parameter["name"] for parameter in operation.get("parameters", ())}
            if path.startswith("/v1/") and method != "get" and path not in ("/v1/context", "/v1/what-if"):
                assert "if-match" in headers, path
                found.append((method, path.removeprefix("/v1/")))
            else:
                assert "if-match" not in headers, path
    return found


def send(client: CheckedClient, method: str, path: str, fact: str, **headers: str) -> Any:
    body = None if method == "delete" else BODIES[path]
    return client.request(method.upper(), f"/v1/{path.format(fact_id=fact)}", params=ADA, json=body, headers=headers)


@pytest.fixture
def other(server: Server) -> Backstory:
    return server.other()


def parked(memory: MemoryHandle) -> str:
    """Fill a memory so that every write has something to do; returns the id of a fact."""
    fact = memory.add_fact("likes tea").fact.id
    memory.record("t", exchange("milk"))
    memory.extract([{"thread_id": "t", "reply": "nothing"}])  # type: ignore[list-item]
    return fact


def test_every_write_is_known_here(server: Server) -> None:
    assert {path for _, path in writes(server)} == set(BODIES)


def test_no_write_is_made_on_a_memory_that_another_process_has_changed(
    server: Server, client: CheckedClient, other: Backstory
) -> None:
    folder = server.path / "users" / "ada"
    with other:
        memory = other.memory("ada")
        fact = parked(memory)
        tag = client.get("/v1/head", params=ADA).headers["etag"]
        memory.add_fact("likes gin")
        logs = {name: (folder / f"{name}.jsonl").read_bytes() for name in ("ledger", "transcript")}
        for method, path in writes(server):
            for stated in (tag, f"W/{tag}", '"x"', f'"x", {tag}', ""):
                refused = send(client, method, path, fact, **{"If-Match": stated})
                assert (refused.status_code, path) == (412, path), refused.text
                assert refused.json()["error"] == "WrongExpectedVersionError"
                assert logs == {name: (folder / f"{name}.jsonl").read_bytes() for name in logs}, path


@pytest.mark.parametrize("stated", ["{tag}", "W/{tag}", '"x", {tag}', '{tag},"x"', "*"])
def test_every_write_is_made_on_the_memory_that_was_seen(server: Server, client: CheckedClient, stated: str) -> None:
    for method, path in writes(server):
        # A user's removal begins again.
        if client.get("/v1/head", params=ADA).json()["seq"] == 0:
            fact = parked(server.home.memory("ada"))
        live = [one["id"] for one in client.get_json("/v1/facts", **ADA)["items"]]
        if not live or (path == "discard" and not client.get_json("/v1/parked", **ADA)["items"]):
            server.home.forget_user("ada")
            live = [parked(server.home.memory("ada"))]
        fact = live[0]
        tag = client.get("/v1/head", params=ADA).headers["etag"]
        made = send(client, method, path, fact, **{"If-Match": stated.format(tag=tag)})
        accepted = {"retry": 409}.get(path, 200)  # there is no model
        assert made.status_code in (accepted, 201), (path, made.text)


def test_any_tag_needs_a_memory(client: CheckedClient) -> None:
    refused = client.post("/v1/facts", params=ADA, json={"content": "x"}, headers={"If-Match": "*"})
    assert refused.status_code == 412
    tag = client.get("/v1/head", params=ADA).headers["etag"]
    assert client.post("/v1/facts", params=ADA, json={"content": "x"}, headers={"If-Match": tag}).status_code == 201


def at_once(start: threading.Barrier, client: CheckedClient, method: str, path: str, fact: str, tag: str) -> int:  # noqa: PLR0917
    start.wait()
    return int(send(client, method, path, fact, **{"If-Match": tag}).status_code)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("post", "facts"),
        ("patch", "facts/{fact_id}"),
        ("delete", "facts/{fact_id}"),
        ("post", "rollback"),
        ("post", "clear"),
        ("post", "import"),
        ("patch", "policy"),
        ("post", "forget"),
        ("post", "revert"),
        ("post", "forget-user"),
    ],
)
def test_of_many_writes_on_one_head_exactly_one_is_made(
    server: Server, client: CheckedClient, method: str, path: str
) -> None:
    for round_ in range(3):
        if round_ and path != "forget-user":
            server.home.forget_user("ada")
        fact = parked(server.home.memory("ada"))
        tag = client.get("/v1/head", params=ADA).headers["etag"]
        seq = server.home.memory("ada").head().seq
        start = threading.Barrier(6)
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(at_once, start, client, method, path, fact, tag) for _ in range(6)]
            answers = sorted(one.result() for one in asked)
        assert [answer for answer in answers if answer < 300], answers
        assert answers[1:] == [412] * 5, answers
        if path != "forget-user":
            assert server.home.memory("ada").head().seq == seq + 1


def test_clearing_all_agents_on_a_head_that_has_moved_clears_none(
    server: Server, client: CheckedClient, other: Backstory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own memory changes between the look at its head and the commit."""
    server.home.memory("ada").add_fact("likes tea")
    server.home.memory("ada", "coder").add_fact("likes Python")
    tag = client.get("/v1/head", params=ADA).headers["etag"]

    def moved(outbox: Outbox, scope: object) -> None:
        monkeypatch.undo()
        other.memory("ada").add_fact("likes milk")

    with other:
        monkeypatch.setattr(Outbox, "let_in", moved)
        refused = client.post("/v1/clear", params=ADA, json={"all_agents": True}, headers={"If-Match": tag})
        assert refused.status_code == 412
        assert len(other.memory("ada", "coder").facts(joined=False)) == 1
        assert len(other.memory("ada").facts()) == 2


@pytest.mark.parametrize(
    "body",
    [{"matching": "tea"}, {"thread": "t"}, {"fact_id": "fact_2_0"}, {"everything": True}],
    ids=lambda body: next(iter(body)),
)
@pytest.mark.parametrize("shared", [False, True])
def test_an_erasure_that_another_was_faster_with_is_told_that_the_memory_has_changed(
    servers: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, body: dict[str, object], shared: bool
) -> None:
    """The other one erases the same between the look at the head and the lock, so that nothing is left to erase."""
    server = servers(shared_summaries=shared)
    memory = server.home.memory("ada")
    parked(memory)
    given = {"thread": "thread_id"}
    named = {given.get(name, name): value for name, value in body.items()}

    def raced(outbox: Outbox, scope: object) -> int:
        monkeypatch.undo()
        memory.forget(**named)  # type: ignore[arg-type]
        return 0

    with server.client() as client:
        tag = client.get("/v1/head", params=ADA).headers["etag"]
        monkeypatch.setattr(Outbox, "let_in", raced)
        refused = client.post("/v1/forget", params=ADA, json=body, headers={"If-Match": tag})
        assert (refused.status_code, refused.json()["error"]) == (412, "WrongExpectedVersionError")
        assert [entry.cause.kind for entry in memory.log()].count("redaction") == 1
