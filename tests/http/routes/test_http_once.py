"""Requests with an Idempotency-Key: carried out once, however often they are sent."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fakes import exchange
from served_home import CheckedClient, Server, user

ADA = user("ada")
KEY = {"Idempotency-Key": "a-key"}


def ask(client: CheckedClient, method: str, path: str, body: object, **headers: str) -> Any:
    return client.request(method, f"/v1/{path}", params=ADA, json=body, headers={**KEY, **headers})


REQUESTS: dict[str, tuple[str, str, object, object]] = {
    f"record {mode}": (
        "POST",
        "record",
        {"thread": "t", "messages": exchange("tea"), "mode": mode},
        {"thread": "t", "messages": exchange("rum"), "mode": mode},
    )
    for mode in ("conversation", "append", "replace")
} | {
    "add": ("POST", "facts", {"content": "likes rum"}, {"content": "likes gin"}),
    "edit": ("PATCH", "facts/fact_2_0", {"content": "likes rum"}, {"content": "likes gin"}),
    "remove": ("DELETE", "facts/fact_2_0", None, None),
}


@pytest.mark.parametrize("tagged", [False, True], ids=["", "with If-Match"])
@pytest.mark.parametrize(("method", "path", "body", "other"), REQUESTS.values(), ids=REQUESTS)
def test_a_repeated_request_answers_the_same_and_changes_nothing_more(
    servers: Callable[..., Server], method: str, path: str, body: object, other: object, *, tagged: bool
) -> None:
    server = servers()
    server.home.memory("ada").add_fact("likes tea")
    with server.client() as client:
        tag = client.get("/v1/head", params=ADA).headers["etag"]
        seen = {"If-Match": tag} if tagged else {}
        first = ask(client, method, path, body, **seen)
        assert first.status_code in (200, 201), first.text
        again = ask(client, method, path, body, **seen)
        assert (again.status_code, again.content) == (first.status_code, first.content)
        # A later change by another: the repeated request still answers as it did.
        assert client.post("/v1/facts", params=ADA, json={"content": "likes milk"}).status_code == 201
        logs = {path: path.read_bytes() for path in server.path.rglob("*.jsonl")}
    with servers().client() as client:  # after a restart
        again = ask(client, method, path, body, **seen)
        assert (again.status_code, again.content) == (first.status_code, first.content)
        if other is not None:
            reused = ask(client, method, path, other)
            assert (reused.status_code, reused.json()["error"]) == (422, "KeyReusedError")
    assert logs == {path: path.read_bytes() for path in server.path.rglob("*.jsonl")}


@pytest.mark.parametrize(("method", "path", "body", "other"), REQUESTS.values(), ids=REQUESTS)
def test_a_first_request_with_a_key_is_made_on_the_head_that_was_seen_and_on_no_other(  # noqa: PLR0917
    server: Server, client: CheckedClient, method: str, path: str, body: object, other: object
) -> None:
    server.home.memory("ada").add_fact("likes tea")
    tag = client.get("/v1/head", params=ADA).headers["etag"]
    server.home.memory("ada").add_fact("likes milk")
    logs = {path: path.read_bytes() for path in server.path.rglob("*.jsonl")}
    refused = ask(client, method, path, body, **{"If-Match": tag})
    assert refused.status_code == 412, refused.text
    assert logs == {path: path.read_bytes() for path in server.path.rglob("*.jsonl")}
    now = client.get("/v1/head", params=ADA).headers["etag"]
    assert ask(client, method, path, body, **{"If-Match": f'"x", W/{now}'}).status_code in (200, 201)


def test_a_refusal_is_repeated_and_recorded_once(server: Server, client: CheckedClient) -> None:
    client.post("/v1/facts", params=ADA, json={"content": "likes tea"})
    first = ask(client, "POST", "facts", {"content": "likes tea"})
    again = ask(client, "POST", "facts", {"content": "likes tea"})
    assert (first.status_code, first.json()["rule"], first.json()["seq"]) == (409, "duplicate", 3)
    assert again.content == first.content
    assert server.home.memory("ada").head().seq == 3


def test_a_key_is_refused_where_it_would_not_be_heeded(server: Server, client: CheckedClient) -> None:
    takes = {"/v1/record", "/v1/facts", "/v1/facts/{fact_id}"}
    bodies = {"/v1/discard": {"thread": "t"}, "/v1/revert": {}, "/v1/rollback": {"to": 1}, "/v1/policy": {},
              "/v1/import": {"document": []}, "/v1/forget": {"everything": True}}  # fmt: skip
    asked = 0
    for path, operations in server.app.openapi()["paths"].items():
        for method, operation in operations.items():
            headers = {parameter["name"] for parameter in operation.get("parameters", ())}
            assert ("idempotency-key" in headers) == (path in takes and method != "get")
            if "if-match" in headers and path not in takes:
                refused = client.request(method.upper(), path, params=ADA, json=bodies.get(path, {}), headers=KEY)
                assert (refused.status_code, path) == (400, path)
                assert "takes no Idempotency-Key" in refused.json()["detail"]
                asked += 1
    assert asked == 11
    assert not (server.path / "users").exists()


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_has_1_to_255_characters(client: CheckedClient, key: str) -> None:
    headers = {"Idempotency-Key": key}
    assert client.post("/v1/facts", params=ADA, json={"content": "x"}, headers=headers).status_code == 422


def test_requests_at_once_with_one_key_make_one_change(server: Server, client: CheckedClient) -> None:
    def twice(_: int) -> tuple[bytes, bytes]:
        delivery = {"thread": "t", "messages": exchange("tea"), "mode": "append"}
        return ask(client, "POST", "facts", {"content": "likes tea"}).content, ask(
            client, "POST", "record", delivery
        ).content

    with ThreadPoolExecutor(6) as pool:
        answers = set(pool.map(twice, range(12)))
    assert len(answers) == 1
    memory = server.home.memory("ada")
    assert (memory.head().seq, len(memory.transcript("t"))) == (2, 2)
