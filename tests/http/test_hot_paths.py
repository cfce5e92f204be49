"""Hot paths of the server: kept answers are never outdated, bounded, and gone after an erasure; the short way to record
answers as the usual one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.responses import Response

from backstory import Backstory
from backstory.http.access.callers import LOCAL
from backstory.http.access.tokens import TokenFile
from backstory.http.app import create_app
from backstory.http.kept_answers import Answers, KeptAnswer
from backstory.http.limits import Limits
from backstory.ledger.core.commit import EMPTY, Head
from backstory.ledger.core.scope import Scope
from backstory.services.services import HeadsSeen

ADA = "/v1/document?user=ada"


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    """Opens servers on one home, with settings."""
    clients: list[TestClient] = []

    def make(**settings: object) -> TestClient:
        app = create_app(partial(Backstory.open, tmp_path, background=False, **settings), environ={})
        clients.append(TestClient(app, base_url="http://localhost"))
        return clients[-1].__enter__()

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(open_client: Callable[..., TestClient]) -> TestClient:
    return open_client()


def add(client: TestClient, content: str, user: str = "ada", **more: str) -> str:
    made = client.post("/v1/facts", params={"user": user, **more}, json={"content": content})
    assert made.status_code == 201, made.text
    return str(made.json()["fact"]["id"])


def contents(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [fact["content"] for fact in answer.json()["facts"]]


def blocks(client: TestClient, agent: str) -> list[str]:
    """The facts in the block of an agent of Ada's."""
    text = client.get("/v1/context", params={"user": "ada", "agent": agent}).json()["text"]
    return [line.partition("] ")[2] for line in text.splitlines() if line.startswith("- [")]


def kept(client: TestClient) -> Answers:
    found: Answers = client.app.state.answers  # type: ignore[attr-defined]
    return found


def holds(client: TestClient, text: str) -> bool:
    return any(text.encode() in (answer.whole.body if answer.whole else b"") for answer in kept(client)._kept.values())


def reading_is_forbidden(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> object:
        raise AssertionError("it was read again")

    monkeypatch.setattr("backstory.memory.MemoryHandle.document", fail)


# Kept answers.


def test_a_kept_answer_is_the_same_to_the_byte_and_reads_nothing(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(client, "likes tea")
    first = client.get(ADA)
    reading_is_forbidden(client, monkeypatch)
    again = client.get(ADA)
    assert (again.status_code, again.content, again.headers) == (200, first.content, first.headers)
    unchanged = client.get(ADA, headers={"If-None-Match": f'W/{first.headers["ETag"]}, "x"'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["ETag"] == first.headers["ETag"]
    assert client.get(ADA, headers={"If-None-Match": '"x"'}).content == first.content
    counted = '/document",status="200"} 3.0'
    assert counted in client.get("/metrics").text  # under its route, as those that were read


def test_an_unchanged_answer_is_known_by_its_tag_alone(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart every client has the bytes already; the server does not have them yet."""
    add(client, "likes tea")
    tag = client.get("/v1/head?user=ada").headers["ETag"]
    assert client.get(ADA, headers={"If-None-Match": tag}).status_code == 304
    with monkeypatch.context() as patch:
        patch.setattr("backstory.http.exchange.run_in_thread", None)
        assert client.get(ADA, headers={"If-None-Match": tag}).status_code == 304
    assert contents(client.get(ADA)) == ["likes tea"]
    reading_is_forbidden(client, monkeypatch)
    assert contents(client.get(ADA)) == ["likes tea"]


def test_each_change_shows_in_the_next_answer_whoever_makes_it(client: TestClient, tmp_path: Path) -> None:
    with Backstory.open(tmp_path, background=False) as other:
        for n in range(5):
            add(client, f"one {n}")
            assert contents(client.get(ADA))[-1] == f"one {n}"
            # Another home stands for another process.
            other.memory("ada").add_fact(f"two {n}")
            tag = client.get("/v1/head?user=ada").headers["ETag"]
            assert contents(client.get(ADA, headers={"If-None-Match": '"x"'}))[-1] == f"two {n}"
            assert client.get(ADA).headers["ETag"] == tag


def test_turns_show_in_what_depends_on_them(client: TestClient, tmp_path: Path) -> None:
    with Backstory.open(tmp_path, background=False) as other:
        for n in range(3):
            other.memory("ada").record("t", [{"role": "user", "content": f"word {n}"}], mode="append")
            shown = client.get("/v1/turns?user=ada&thread=t").json()["items"]
            assert [turn["content"] for turn in shown] == [f"word {i}" for i in range(n + 1)]


def test_an_agent_that_reads_its_users_memory_sees_changes_of_both(client: TestClient) -> None:
    of_agent = f"{ADA}&agent=scout"
    add(client, "likes tea")
    assert blocks(client, "scout") == ["likes tea"]
    add(client, "likes rye")
    assert sorted(blocks(client, "scout")) == ["likes rye", "likes tea"]
    add(client, "is a scout", agent="scout")
    assert sorted(blocks(client, "scout")) == ["is a scout", "likes rye", "likes tea"]
    assert contents(client.get(of_agent)) == ["is a scout"]
    assert contents(client.get(ADA)) == ["likes tea", "likes rye"]


def test_nothing_is_kept_where_agents_share_sections(open_client: Callable[..., TestClient]) -> None:
    """There a read first delivers what is under way, which no head of its own tells."""
    client = open_client(shared_summaries=True)
    add(client, "likes tea")
    assert contents(client.get(ADA)) == ["likes tea"]
    assert not kept(client)._kept


def test_a_kept_answer_is_for_those_alone_who_may_see_it(
    tmp_path: Path, open_client: Callable[..., TestClient]
) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    ada, bob = (file.add(name, "write", [name]) for name in ("ada", "bob"))
    client = open_client()
    of_ada, of_bob = ({"Authorization": f"Bearer {made.token}"} for made in (ada, bob))
    client.post("/v1/facts", json={"content": "likes tea"}, headers=of_ada)
    assert contents(client.get(ADA, headers=of_ada)) == ["likes tea"]
    assert contents(client.get("/v1/document", headers=of_ada)) == ["likes tea"]
    assert client.get(ADA, headers=of_bob).status_code == 404
    assert contents(client.get("/v1/document", headers=of_bob)) == []
    assert client.get(ADA).status_code == 401
    file.revoke("ada")
    assert client.get(ADA, headers=of_ada).status_code == 401


def test_a_kept_answer_takes_no_place(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    add(client, "likes tea")
    first = client.get(ADA)

    async def refuse(*_: object) -> None:
        raise AssertionError("it took a place")

    monkeypatch.setattr("backstory.http.limits.Limiter.__call__", refuse)
    assert client.get(ADA).content == first.content


def test_a_read_with_a_body_that_is_too_large_is_refused_although_its_answer_is_kept(client: TestClient) -> None:
    add(client, "likes tea")
    assert client.get(ADA).status_code == 200
    too_large = b" " * (Limits().body_bytes + 1)
    for body in (too_large, iter([too_large])):  # with its length, and in chunks
        assert client.request("GET", ADA, content=body).status_code == 413


# Erasure.


def test_an_erasure_leaves_nothing_of_it_in_kept_answers(client: TestClient) -> None:
    fact = add(client, "likes peanuts")
    add(client, "likes peanuts too", user="bob")
    client.get(ADA)
    client.get("/v1/facts?user=ada&limit=5")
    client.get("/v1/document?user=bob")
    client.get("/v1/turns?user=ada&thread=none")
    assert holds(client, "likes peanuts")
    assert client.post("/v1/forget?user=ada", json={"fact_id": fact}).status_code == 200
    assert [key[2] for key in kept(client)._kept] == [b"user=bob"]
    assert kept(client).bytes == sum(answer.size for answer in kept(client)._kept.values()) > 0


def test_a_removed_user_leaves_nothing_in_kept_answers(client: TestClient) -> None:
    add(client, "likes peanuts")
    add(client, "knows of peanuts", agent="scout")
    client.get(ADA)
    client.get(f"{ADA}&agent=scout")
    assert holds(client, "likes peanuts")
    assert holds(client, "knows of peanuts")
    assert client.post("/v1/forget-user?user=ada").status_code == 200
    assert not holds(client, "peanuts")
    assert contents(client.get(ADA)) == []


def test_what_another_process_erases_is_dropped_by_the_next_sweep(client: TestClient, tmp_path: Path) -> None:
    fact = add(client, "likes peanuts")
    client.get(ADA)
    with Backstory.open(tmp_path, background=False) as other:
        other.memory("ada").forget(fact)
    assert client.portal is not None
    client.portal.call(kept(client).sweep)
    assert not holds(client, "peanuts")


# Bounds.


class Tells:
    """An engine whose heads are stated."""

    def __init__(self) -> None:
        self.heads: dict[str, Head] = {}

    def head_at_once(self, stream: str) -> Head | None:
        return self.heads.get(stream, EMPTY)


def answer(tells: Tells | None, body: bytes | None, head: Head = EMPTY) -> KeptAnswer:
    seen = HeadsSeen(
        (head,),
        ("ledger",),
        (Scope("ada"),),
        tells and tells.head_at_once,
        0,
        None,
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
    )
    return KeptAnswer(seen, Response(status_code=304, headers={"ETag": '"t"'}), body and Response(body), None)


def key(number: int) -> tuple[object, str, bytes]:
    return LOCAL, "/v1/document", b"user=%d" % number


def test_kept_answers_are_bounded_in_number_and_bytes() -> None:
    answers, tells = Answers(most=3, most_bytes=800), Tells()
    for n in range(5):
        answers.keep(key(n), answer(tells, b"x" * 10))  # type: ignore[arg-type]
    assert (len(answers._kept), answers.bytes) == (3, 30)
    assert answers.find(key(2)) is not None  # type: ignore[arg-type]
    answers.keep(key(6), answer(tells, b"x"))  # type: ignore[arg-type]
    # What was asked for last stays.
    assert [each[2] for each in answers._kept] == [b"user=4", b"user=2", b"user=6"]
    many = Answers(most=1000, most_bytes=800)
    for n in range(20):
        many.keep(key(n), answer(tells, b"x" * 100))  # type: ignore[arg-type]
        assert many.bytes <= 800
    assert len(many._kept) == 8


def test_a_large_answer_is_known_by_its_tag_alone() -> None:
    answers = Answers(most_bytes=800)
    answers.keep(key(1), answer(Tells(), b"x" * 101))  # type: ignore[arg-type]
    found = answers.find(key(1))  # type: ignore[arg-type]
    assert found is not None
    assert (found.unchanged.headers["ETag"], found.whole, answers.bytes) == ('"t"', None, 0)


def test_an_answer_that_was_outdated_before_it_was_kept_is_not_kept() -> None:
    """An erasure may have ended between the read and this: nothing would drop the answer then."""
    answers, tells = Answers(), Tells()
    tells.heads["ledger"] = Head(2, "b" * 64)
    answers.keep(key(1), answer(tells, b"peanuts", Head(1, "a" * 64)))  # type: ignore[arg-type]
    answers.keep(key(2), answer(None, b"peanuts"))  # type: ignore[arg-type]
    assert (len(answers._kept), answers.bytes) == (0, 0)


# The short way to record.

TEA = {"thread": "t", "messages": [{"role": "user", "content": "I like tea."}, {"role": "assistant", "content": "Ok."}]}


@pytest.mark.parametrize(
    ("query", "body", "headers"),
    [
        ("user=ada", TEA, {}),
        ("user=ada&agent=scout", {**TEA, "mode": "append", "immediate": True}, {}),
        ("", TEA, {}),
        ("user=", TEA, {}),
        ("user=a&user=b", TEA, {}),
        ("user=ada&unknown=1", TEA, {}),
        ("user=%20", TEA, {}),
        ("user=ada", {**TEA, "mode": "other"}, {}),
        ("user=ada", {**TEA, "more": 1}, {}),
        ("user=ada", {"thread": "", "messages": []}, {}),
        ("user=ada", {"thread": "t", "messages": [{"role": "nobody", "content": "x"}]}, {}),
        ("user=ada", {"thread": "t", "messages": [{"role": "user", "content": "\ud800 half"}]}, {}),
        ("user=ada", [], {}),
        ("user=ada", TEA, {"Idempotency-Key": "k"}),
        ("user=ada", TEA, {"Idempotency-Key": ""}),
        ("user=ada", TEA, {"Idempotency-Key": "k" * 256}),
        ("user=ada", TEA, {"If-Match": '"' + "0" * 64 + '"'}),
        ("agent=no%20name", TEA, {}),
    ],
)
def test_the_short_way_to_record_answers_as_the_usual_one(  # noqa: PLR0917 pytest passes them by name
    client: TestClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    body: object,
    headers: dict[str, str],
) -> None:
    async def never(_: object) -> None:
        return None

    def send(to: TestClient) -> list[tuple[int, object]]:
        data = json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        answers = [to.post(f"/v1/record?{query}", content=data, headers=sent) for _ in range(2)]
        return [(each.status_code, each.json()) for each in answers]

    short = send(client)
    with monkeypatch.context() as patch:
        patch.setattr("backstory.http.routes.recording._plain", never)
        app = create_app(partial(Backstory.open, tmp_path / "usual", background=False), environ={})
        with TestClient(app, base_url="http://localhost") as usual:
            assert send(usual) == short


def test_a_plain_request_takes_the_short_way(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def solved(**_: object) -> object:
        raise AssertionError("it went FastAPI's way")

    monkeypatch.setattr("fastapi.routing.solve_dependencies", solved)
    for headers in ({}, {"Idempotency-Key": "k"}):
        assert client.post("/v1/record?user=ada&agent=scout", json=TEA, headers=headers).status_code == 200


def test_a_body_that_is_no_json_is_refused(client: TestClient) -> None:
    for kind in ("application/json", "text/plain"):
        sent = client.post("/v1/record?user=ada", content=b"{nothing", headers={"Content-Type": kind})
        assert (sent.status_code, sent.headers["content-type"]) == (422, "application/problem+json")
