"""The list of scopes: pages, prefixes and totals are those of all users, also of users who have just come."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from served_home import CheckedClient, Json, Server
from serving import token

from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl import folder_names

NAMES = ("ada", "ada-b", "Ada", "ad", "b/c", "zoë", "zo", "x" * 39, "x" * 200, "x" * 201 + "y", "x" * 120, "é" * 60)
PREFIXES = ("", "a", "ad", "ada", "A", "b/", "zo", "zoë", "x", "x" * 41, "x" * 201, "x" * 121, "é" * 59, "none")


def fill(server: Server) -> None:
    for name in NAMES:
        server.home.memory(name).add_fact("x")
        server.home.memory(name, "coder").add_fact("x")
    server.home.memory(scope="global").add_fact("x")
    server.home.memory(agent_name="coder", scope="global").add_fact("x")


def walked(client: CheckedClient, limit: int, prefix: str) -> tuple[list[Json], set[int]]:
    cursor, found, totals = None, [], set()
    while True:
        page = client.get_json("/v1/scopes", limit=limit, prefix=prefix, cursor=cursor)
        found += page["items"]
        totals.add(page["total"])
        cursor = page["next"]
        if cursor is None:
            return found, totals


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_finds_the_users_whose_ids_begin_so(server: Server, client: CheckedClient, prefix: str) -> None:
    fill(server)
    every = [scope for scope in server.home.owners() if (scope.user or "").startswith(prefix)]
    for limit in (1, 3, 1000):
        found, totals = walked(client, limit, prefix)
        assert [(scope["user"], scope["agent"]) for scope in found] == [(scope.user, scope.agent) for scope in every]
        assert totals == {len({scope.user for scope in every} - {None})}


def test_users_who_come_and_go_are_listed_at_once(
    server: Server, client: CheckedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server)
    monkeypatch.setattr(folder_names, "_REMEMBERED_FROM", 1)
    users = server.path / "users"
    for n in range(5):
        # As if nothing had been written for long, so that the names are kept from one request to the next.
        os.utime(users, (1, 1 + n))
        before = client.get_json("/v1/scopes", limit=1000)
        server.home.memory(f"new{n}").add_fact("x")
        after = client.get_json("/v1/scopes", limit=1000)
        assert after["total"] == before["total"] + 1
        assert len(after["items"]) == len(before["items"]) + 1
    server.home.forget_user("new3")
    assert client.get_json("/v1/scopes", prefix="new3") == {"items": [], "next": None, "unreadable": [], "total": 0}


def test_the_folders_of_users_are_not_listed_again_while_nothing_changes(
    server: Server, client: CheckedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server)
    monkeypatch.setattr(folder_names, "_REMEMBERED_FROM", 1)
    os.utime(server.path / "users", (1, 1))
    client.get_json("/v1/scopes")
    listed: list[Path] = []
    scandir = os.scandir
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda path: listed.append(Path(path)) or scandir(path))  # type: ignore[func-returns-value]
        page = client.get_json("/v1/scopes", prefix="ada", limit=1)
    assert [scope["user"] for scope in page["items"]] == ["ada"]
    assert listed
    assert {folder.relative_to(server.path).parts[:2] for folder in listed} == {("users", "ada")}


def test_an_agent_that_another_process_adds_is_listed(server: Server, client: CheckedClient) -> None:
    fill(server)
    os.utime(server.path / "users", (1, 1))
    client.get_json("/v1/scopes")
    with server.other() as bs:
        bs.memory("ada", "writer").add_fact("x")
    found = client.get_json("/v1/scopes", prefix="ada")["items"]
    assert [scope["agent"] for scope in found if scope["user"] == "ada"] == [None, "coder", "writer"]


def test_a_token_lists_and_counts_its_own_users_only(server: Server) -> None:
    fill(server)
    headers = token(server.path, "some", "ada", "zoë", "nobody")
    with server.client(**headers) as client:
        found = client.get_json("/v1/scopes")
        assert {scope["user"] for scope in found["items"]} == {"ada", "zoë"}
        assert found["total"] == 2
        assert client.get_json("/v1/scopes", prefix="z")["total"] == 1


def test_a_name_is_cut_where_its_beginnings_say() -> None:
    from backstory.ledger.core.scope import folder_beginnings

    for name in NAMES:
        for length in range(len(name) + 1):
            folder = Scope(name).folder.removeprefix("users/")
            assert folder.startswith(folder_beginnings(name[:length]))
