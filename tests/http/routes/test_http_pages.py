"""Pages of lists: every item once, in the order of the whole list, whatever is changed between two pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fakes import exchange
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served_home import CheckedClient, Json, Server, user
from sizes import examples

ADA = user("ada")


def pages(client: CheckedClient, path: str, limit: int, **params: object) -> Iterator[Json]:
    cursor = None
    while True:
        page = client.get_json(f"/v1/{path}", limit=limit, cursor=cursor, **params)
        assert 0 < len(page["items"]) <= limit or (cursor is None and not page["items"])
        yield page
        cursor = page["next"]
        if cursor is None:
            return


def walked(client: CheckedClient, path: str, limit: int, **params: object) -> list[Json]:
    return [item for page in pages(client, path, limit, **params) for item in page["items"]]


def fill(server: Server) -> None:
    memory = server.home.memory("ada")
    for n in range(7):
        memory.add_fact(f"likes number {n}", category=("goal", "context")[n % 2])
        memory.record(f"t{n}", exchange(f"number {n}"))
        memory.record("long", exchange(f"more {n}"), mode="append")
    for name in ("Bob", "bob", "zoë", "a/b", "x" * 1000, "*", "~" * 300):
        server.home.memory(name).add_fact("x")
        server.home.memory(name, "a" * 64).add_fact("x")
    server.home.memory(scope="global").add_fact("x")
    server.home.memory(agent_name="coder", scope="global").add_fact("x")


LISTS: list[tuple[str, dict[str, object]]] = [
    ("facts", ADA),
    ("facts", {**ADA, "category": "goal"}),
    ("facts", {**ADA, "category": "GOAL"}),
    ("log", ADA),
    ("log", {**ADA, "since": "4"}),
    ("log", {**ADA, "fact": "fact_2_0"}),
    ("threads", ADA),
    ("turns", {**ADA, "thread": "long"}),
    ("scopes", {}),
    ("scopes", {"prefix": "x"}),
]


@pytest.mark.parametrize(("path", "params"), LISTS, ids=str)
def test_pages_of_any_size_hold_what_the_whole_list_holds(
    server: Server, client: CheckedClient, path: str, params: dict[str, object]
) -> None:
    fill(server)
    whole = client.get_json(f"/v1/{path}", limit=1000, **params)
    assert whole["next"] is None
    assert whole["items"]
    for limit in (1, 2, 3, len(whole["items"]), len(whole["items"]) + 1):
        assert walked(client, path, limit, **params) == whole["items"]


def test_pages_of_facts_are_of_one_moment(server: Server, client: CheckedClient) -> None:
    fill(server)
    memory = server.home.memory("ada")
    whole = client.get_json("/v1/facts", **ADA)
    found: list[Json] = []
    seqs = set()
    for page in pages(client, "facts", 2, **ADA):
        found += page["items"]
        seqs.add(page["seq"])
        memory.remove_fact(memory.facts()[0].id)
        memory.add_fact(f"new {len(found)}")
    assert (found, seqs) == (whole["items"], {whole["seq"]})


def test_pages_of_facts_miss_none_that_stands_while_others_are_erased(server: Server, client: CheckedClient) -> None:
    fill(server)
    memory = server.home.memory("ada")
    found: list[str] = []
    erased: list[str] = []
    for page in pages(client, "facts", 2, **ADA):
        found += [item["id"] for item in page["items"]]
        if len(erased) < 2:
            erased.append(found[0] if not erased else found[2])
            memory.forget(erased[-1])
    assert len(set(found)) == len(found)
    assert {fact.id for fact in memory.facts()} <= set(found)


def test_pages_of_the_log_and_of_turns_go_on_while_more_is_written(server: Server, client: CheckedClient) -> None:
    fill(server)
    memory = server.home.memory("ada")
    log = client.get_json("/v1/log", limit=1000, **ADA)["items"]
    turns = client.get_json("/v1/turns", limit=1000, thread="long", **ADA)["items"]
    threads = client.get_json("/v1/threads", limit=1000, **ADA)["items"]
    scopes = client.get_json("/v1/scopes", limit=1000)["items"]

    def walk(path: str, change: Callable[[int], object], **params: object) -> list[Json]:
        found = []
        for n, page in enumerate(pages(client, path, 2, **params)):
            found += page["items"]
            if n < 4:
                change(n)
        return found

    assert walk("log", lambda n: memory.add_fact(f"more {n}"), **ADA) == log
    read = walk("turns", lambda n: memory.record("long", exchange(f"later {n}"), mode="append"), thread="long", **ADA)
    assert [turn["id"] for turn in read[: len(turns)]] == [turn["id"] for turn in turns]
    assert len({turn["n"] for turn in read}) == len(read) == len(turns) + 8
    names = [thread["thread"] for thread in walk("threads", lambda n: memory.record(f"z{n}", exchange("x")), **ADA)]
    assert names == [*(thread["thread"] for thread in threads), *(f"z{n}" for n in range(4))]
    listed = walk("scopes", lambda n: server.home.memory(f"new{n}").add_fact("x"))
    assert [scope for scope in listed if not (scope["user"] or "").startswith("new")] == [
        {**scope, "seq": listed[[(each["user"], each["agent"]) for each in listed].index(("ada", None))]["seq"],
         "facts": 11} if (scope["user"], scope["agent"]) == ("ada", None) else scope for scope in scopes
    ]  # fmt: skip


def test_pages_of_threads_miss_none_while_others_are_erased(server: Server, client: CheckedClient) -> None:
    fill(server)
    memory = server.home.memory("ada")
    found: list[str] = []
    for n, page in enumerate(pages(client, "threads", 2, **ADA)):
        found += [item["thread"] for item in page["items"]]
        if n == 0:
            memory.forget(thread_id=found[0])
    assert len(set(found)) == len(found)
    assert {thread.thread for thread in memory.threads()} <= set(found)


def test_a_page_of_few_facts_is_of_the_commit_that_it_names(
    server: Server, client: CheckedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit comes between the look at the head and the look at the facts."""
    memory = server.home.memory("ada")
    memory.add_fact("likes tea")
    from backstory.memory import MemoryHandle

    heads = MemoryHandle.heads

    def slow(handle: MemoryHandle, *, turns: bool = False) -> object:
        found = heads(handle, turns=turns)
        if len(memory.facts()) < 5:
            memory.add_fact(f"likes number {len(memory.facts())}")
        return found

    monkeypatch.setattr(MemoryHandle, "heads", slow)
    page = client.get_json("/v1/facts", **ADA)
    assert page["items"] == client.get_json("/v1/facts", cursor=f"{page['seq']}.0.0", **ADA)["items"]


HOSTILE = [
    "",
    "x",
    "-1",
    "1.5",
    "1.5.5.5",
    "..",
    "1.2.",
    ".",
    "1.",
    ".1",
    "１",
    "1e3",
    "9" * 19,
    "9" * 200,
    "5.x",
    "5.-1",
    "None",
    "0x1",
    " 1",
    "1\n",
]


@pytest.mark.parametrize("cursor", HOSTILE)
@pytest.mark.parametrize("path", ["facts", "log", "threads", "turns"])
def test_a_cursor_that_is_none_is_refused(server: Server, client: CheckedClient, path: str, cursor: str) -> None:
    server.home.memory("ada").record("t", exchange("tea"))
    if (path, cursor) == ("turns", "-1"):
        cursor = "--1"  # one minus begins the `previous` of a page of turns
    params = {**ADA, "cursor": cursor, **({"thread": "t"} if path == "turns" else {})}
    refused = client.get(f"/v1/{path}", params=params)
    assert (refused.status_code, "cursor must be" in refused.json()["detail"]) == (400, True)


@given(
    cursor=st.text(max_size=30) | st.from_regex(r"\d{1,20}(\.\d{0,20})?", fullmatch=True), path=st.sampled_from(LISTS)
)
@settings(max_examples=examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_cursor_breaks_the_server(client: CheckedClient, cursor: str, path: tuple[str, dict[str, object]]) -> None:
    answer = client.get(f"/v1/{path[0]}", params={**path[1], "cursor": cursor})
    assert answer.status_code in (200, 400, 404)
