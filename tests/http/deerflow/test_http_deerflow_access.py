"""Whose memory a request of DeerFlow's routes is about, and what its caller may do there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest
from gateway_client import FACTS, MEMORY, Gateway, contents, document

from backstory.http.access.callers import Caller, Right

READS = (
    ("GET", MEMORY, None),
    ("GET", f"{MEMORY}/export", None),
    ("GET", f"{MEMORY}/status", None),
    ("POST", f"{MEMORY}/reload", None),
)
CHANGES = (
    ("POST", FACTS, {"content": "Swims"}),
    ("PATCH", f"{FACTS}/fact_2_0", {"content": "Swims"}),
    ("DELETE", f"{FACTS}/fact_2_0", None),
    ("POST", f"{MEMORY}/import", document()),
    ("DELETE", MEMORY, None),
)
ADAS = frozenset({"ada"})


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_a_change_needs_the_right_to_write_and_no_more(gateway: Gateway, method: str, path: str, body: object) -> None:
    gateway.client().post(FACTS, json={"content": "Runs"})
    refused = gateway.client(Caller("reader", Right.READ)).request(method, path, json=body)
    assert refused.status_code == 403
    assert refused.json() == {"detail": "this needs a token with the right to write, and reader may only read"}
    assert contents(gateway.client().get(MEMORY)) == ["Runs"]
    allowed = gateway.client(Caller("writer", Right.WRITE)).request(method, path, json=body)
    assert allowed.status_code == 200
    assert contents(allowed) != ["Runs"]


@pytest.mark.parametrize(("method", "path", "body"), READS)
def test_reading_needs_the_right_to_read(gateway: Gateway, method: str, path: str, body: object) -> None:
    assert gateway.client(Caller("reader", Right.READ)).request(method, path, json=body).status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), READS + CHANGES)
def test_a_memory_that_the_token_does_not_cover_is_404(gateway: Gateway, method: str, path: str, body: object) -> None:
    gateway.client(user="bob").post(FACTS, json={"content": "Runs"})
    client = gateway.client(Caller("ada's", Right.ERASE, ADAS), user="bob")
    response = client.request(method, path, json=body)
    assert response.status_code == 404
    assert list(response.json()) == ["detail"]
    assert contents(gateway.client(user="bob").get(MEMORY)) == ["Runs"]


def test_each_user_has_a_memory_and_none_is_the_one_that_all_share(gateway: Gateway) -> None:
    for user in ("ada", "bob", None):
        gateway.client(user=user).post(FACTS, json={"content": f"Of {user}"})
    for user in ("ada", "bob", None):
        assert contents(gateway.client(user=user).get(MEMORY)) == [f"Of {user}"]
        assert [one.content for one in gateway.home.memory(user, scope=None if user else "global").facts()] == [
            f"Of {user}"
        ]


def test_the_only_user_of_a_token_need_not_be_named(gateway: Gateway) -> None:
    client = gateway.client(Caller("ada's", Right.WRITE, ADAS), user=None)
    client.post(FACTS, json={"content": "Runs"})
    assert [one.content for one in gateway.home.memory("ada").facts()] == ["Runs"]


def test_a_token_of_several_users_has_to_name_one(gateway: Gateway) -> None:
    caller = Caller("both", Right.WRITE, frozenset({"ada", "bob"}))
    assert gateway.client(caller, user=None).get(MEMORY).status_code == 404
    assert gateway.client(caller, user="bob").get(MEMORY).status_code == 200


def test_the_commit_names_the_caller(gateway: Gateway) -> None:
    client = gateway.client(Caller("settings page", Right.WRITE))
    client.post(FACTS, json={"content": "Runs"})
    client.post(f"{MEMORY}/import", json=document())
    client.delete(MEMORY)
    causes = [entry.cause for entry in gateway.home.memory("ada").log()]
    assert [(cause.kind, cause.actor) for cause in causes][:3] == [
        ("clear", "settings page"),
        ("import", "settings page"),
        ("manual", "settings page"),
    ]


@pytest.mark.parametrize("user", ["小明", "feishu|ou_AbC/123", "Ada Ü", "Ada", "ada"])
def test_any_user_id_is_taken_exactly_as_utf_8(gateway: Gateway, user: str) -> None:
    client = gateway.client(user=None)
    client.post(FACTS, json={"content": "Runs"}, headers={"X-Backstory-User": user.encode()})
    assert [one.content for one in gateway.home.memory(user).facts()] == ["Runs"]
    assert [owner.user for owner in gateway.home.owners()] == [user]


@pytest.mark.parametrize("value", ["", "x" * 1001])
def test_a_header_that_is_no_user_id_is_400(gateway: Gateway, value: str) -> None:
    response = gateway.client(user=None).get(MEMORY, headers={"X-Backstory-User": value})
    assert response.status_code == 400
    assert "user" in response.json()["detail"].lower()


def test_a_header_that_is_not_utf_8_is_400(gateway: Gateway) -> None:
    async def get() -> httpx.Response:
        # The test client encodes each header anew; this one sends the bytes as they are.
        transport = httpx.ASGITransport(gateway.client().app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.get(MEMORY, headers=[(b"X-Backstory-User", b"\xff\xfe")])

    response = asyncio.run(get())
    assert response.status_code == 400
    assert response.json() == {"detail": "X-Backstory-User is not UTF-8: encode the name so"}


def test_two_users_in_one_request_are_400(gateway: Gateway) -> None:
    headers = [("X-Backstory-User", "ada"), ("X-Backstory-User", "bob")]
    response = gateway.client(user=None).get(MEMORY, headers=headers)
    assert response.status_code == 400
    assert response.json() == {"detail": "X-Backstory-User is sent 2 times: send it once"}


def test_where_every_memory_needs_a_user_a_request_without_one_is_400(gateways: Callable[..., Gateway]) -> None:
    response = gateways(strict_user_scope=True).client(user=None).get(MEMORY)
    assert response.status_code == 400
    assert "user id" in response.json()["detail"]


def test_the_headers_and_parameters_of_others_name_no_user(gateway: Gateway) -> None:
    gateway.client(user="bob").post(FACTS, json={"content": "Runs"})
    client = gateway.client()
    response = client.get(f"{MEMORY}?user_id=bob&agent_name=lead", headers={"X-DeerFlow-Owner-User-Id": "bob"})
    assert contents(response) == []


def test_the_configuration_shows_no_secret_and_only_to_all_users_where_things_are(
    gateways: Callable[..., Gateway],
) -> None:
    model = {"model": "m-1", "api_key": "sk-very-secret", "base_url": "https://models.example/v1"}
    gateway = gateways(config={"memory": {"model": model, "proxy_upstream": "https://u:hidden@up.example/v1"}})
    shown = gateway.client().get(f"{MEMORY}/config")
    assert shown.json()["backend_config"]["model"] == {
        "provider": "openai",
        "model": "m-1",
        "base_url": "https://models.example/v1",
    }
    assert shown.json()["backend_config"]["event_store"] == "jsonl:"
    confined = gateway.client(Caller("ada's", Right.ERASE, ADAS))
    for response in (confined.get(f"{MEMORY}/config"), confined.get(f"{MEMORY}/status")):
        assert response.status_code == 200
        config = response.json().get("config", response.json())
        assert config["backend_config"]["model"] == {"provider": "openai", "model": "m-1"}
        assert "event_store" not in config["backend_config"]
        assert "example" not in json.dumps(response.json())
    assert "secret" not in shown.text
    assert "hidden" not in shown.text
