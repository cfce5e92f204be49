"""Dry runs: the ETag of the memory that a preview was computed on, with which the change does what was previewed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import exchange
from served_home import CheckedClient, Json, Server, user

from backstory.ledger.core.errors import BackstoryError
from backstory.memory import MemoryHandle

ADA = user("ada")

PREVIEWED: list[tuple[str, dict[str, object]]] = [
    ("revert", {"seq": 2}),
    ("rollback", {"to": 2}),
    ("forget", {"matching": "tea"}),
    ("forget", {"thread": "t"}),
    ("forget", {"fact_id": "fact_2_0"}),
    ("forget", {"everything": True}),
    ("forget-user", {}),
]


@pytest.fixture
def memory(server: Server) -> MemoryHandle:
    found = server.home.memory("ada")
    found.add_fact("likes tea")
    found.add_fact("likes milk")
    found.record("t", exchange("tea"))
    return found


def preview(client: CheckedClient, path: str, body: dict[str, object]) -> tuple[str, Json]:
    answer = client.post(f"/v1/{path}", params=ADA, json={**body, "dry_run": True})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store"), answer.text
    return answer.headers["etag"], answer.json()


def confirm(client: CheckedClient, path: str, body: dict[str, object], tag: str) -> int:
    return int(client.post(f"/v1/{path}", params=ADA, json=body, headers={"If-Match": tag}).status_code)


@pytest.mark.parametrize(("path", "body"), PREVIEWED, ids=str)
def test_what_was_previewed_is_done(
    client: CheckedClient, memory: MemoryHandle, path: str, body: dict[str, object]
) -> None:
    tag, shown = preview(client, path, body)
    made = client.post(f"/v1/{path}", params=ADA, json=body, headers={"If-Match": tag})
    assert made.status_code == 200
    same = ("events", "superseded", "conflicts", "redacted", "also", "scopes", "user")
    assert {key: made.json().get(key) for key in same} == {key: shown.get(key) for key in same}


@pytest.mark.parametrize(("path", "body"), PREVIEWED, ids=str)
def test_after_another_commit_it_is_not_done(
    client: CheckedClient, memory: MemoryHandle, path: str, body: dict[str, object]
) -> None:
    tag, _ = preview(client, path, body)
    memory.add_fact("likes rum")
    head = memory.head()
    assert confirm(client, path, body, tag) == 412
    assert memory.head() == head


@pytest.mark.parametrize(("path", "body"), [each for each in PREVIEWED if each[0].startswith("forget")], ids=str)
def test_an_erasure_is_not_done_after_other_turns(
    client: CheckedClient, memory: MemoryHandle, path: str, body: dict[str, object]
) -> None:
    tag, _ = preview(client, path, body)
    memory.record("t", exchange("more tea"), mode="append")
    assert confirm(client, path, body, tag) == 412
    assert len(memory.transcript("t")) == 4


def test_a_commit_during_a_preview_has_it_computed_again(
    client: CheckedClient, memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: Callable[..., object] = MemoryHandle.rollback
    raced: list[object] = []

    def rollback(self: MemoryHandle, to: int | str, *, dry_run: bool = False) -> object:
        found = usual(self, to, dry_run=dry_run)
        if not raced:
            raced.append(memory.add_fact("likes rum"))
        return found

    monkeypatch.setattr(MemoryHandle, "rollback", rollback)
    tag, shown = preview(client, "rollback", {"to": 2})
    assert tag == client.get("/v1/head", params=ADA).headers["etag"]
    assert "likes rum" in str(shown["events"])
    assert confirm(client, "rollback", {"to": 2}, tag) == 200


def test_a_preview_between_endless_commits_has_no_tag(
    client: CheckedClient, memory: MemoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: Callable[..., object] = MemoryHandle.rollback
    count = iter(range(99))

    def rollback(self: MemoryHandle, to: int | str, *, dry_run: bool = False) -> object:
        memory.add_fact(f"number {next(count)}")
        return usual(self, to, dry_run=dry_run)

    monkeypatch.setattr(MemoryHandle, "rollback", rollback)
    answer = client.post("/v1/rollback", params=ADA, json={"to": 2, "dry_run": True})
    assert (answer.status_code, "etag" in answer.headers) == (200, False)


def test_a_preview_of_what_is_not_there_fails_as_the_change_does(client: CheckedClient, memory: MemoryHandle) -> None:
    for path, body in (("revert", {"seq": 99}), ("forget", {"matching": "nothing of that"})):
        dry = client.post(f"/v1/{path}", params=ADA, json={**body, "dry_run": True})
        wet = client.post(f"/v1/{path}", params=ADA, json=body)
        assert (dry.status_code, dry.json()) == (wet.status_code, wet.json()) == (404, wet.json())
    with pytest.raises(BackstoryError):
        memory.forget(matching="nothing of that")
