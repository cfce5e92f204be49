"""Memory at a moment: windows of its facts, its sections, and what the commit at that moment changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from fakes import exchange, reply
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served_home import CheckedClient, Json, Server, user
from sizes import examples

from backstory.ledger.core.events import DOCUMENT_SECTIONS
from backstory.ledger.extraction.models.recorded import RecordedReply

ADA = user("ada")
SORTS = ("born", "confidence", "content", "category")
CATEGORIES = ("preference", "knowledge", "context", "behavior", "goal", "correction")


def fill(server: Server) -> None:
    """Facts that are alike in each thing they can be sorted by, and a history of every kind of change."""
    memory = server.home.memory("ada")
    for n in range(12):
        memory.add_fact(f"{'aB'[n % 2]} thing {n // 2}{'!' * (n % 2)}", CATEGORIES[n % 3], (0.5, 0.9)[n % 2])
        server.clock.advance(60)
    facts = memory.facts()
    memory.edit_fact(facts[3].id, content="Ｌｉｋｅｓ tea")
    memory.remove_fact(facts[5].id)
    memory.record("t", exchange("rye"))
    section = {"summary": "bakes bread", "shouldUpdate": True}
    memory.extract([{"thread_id": "t", "reply": {"user": {"workContext": section}}}])  # type: ignore[list-item]
    memory.forget(facts[7].id)
    memory.clear()
    memory.rollback(9)


def sorted_as(facts: list[Json], sort: str, *, descending: bool) -> list[Json]:
    if sort == "born":
        return facts[::-1] if descending else facts
    return sorted(facts, key=lambda fact: fact[sort].lower() if sort == "content" else fact[sort], reverse=descending)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("descending", [False, True])
def test_windows_of_any_size_hold_what_the_whole_sorted_list_holds(
    server: Server, client: CheckedClient, sort: str, descending: bool
) -> None:
    fill(server)
    facts = client.get_json("/v1/facts", **ADA)["items"]
    expected = sorted_as(facts, sort, descending=descending)
    for limit in (1, 3, len(facts)):
        found = []
        for offset in range(0, len(facts) + limit, limit):
            params = {"sort": sort, "descending": descending, "offset": offset, "limit": limit}
            window = client.get_json("/v1/memory", **ADA, **params)["facts"]
            assert (window["total"], window["offset"]) == (len(facts), offset)
            found += window["items"]
        assert found == expected


def moments(client: CheckedClient) -> Iterator[int]:
    yield from range(client.get_json("/v1/head", **ADA)["seq"] + 1)


def must_be_what_the_other_routes_say(client: CheckedClient, seq: int, scope: dict[str, str]) -> None:
    found = client.get_json("/v1/memory", at=seq, limit=1000, **scope)
    document = client.get_json("/v1/document", at=seq, **scope)
    assert found["seq"] == seq
    assert [fact["id"] for fact in found["facts"]["items"]] == [fact["id"] for fact in document["facts"]]
    assert found["count"] == found["facts"]["total"] == len(document["facts"]) == sum(found["categories"].values())
    assert [{"summary": section["summary"], "updatedAt": section["updated_at"]} for section in found["sections"]] == [
        document[group][name] for group, name in (key.split(".") for key in DOCUMENT_SECTIONS)
    ]
    difference = client.get_json("/v1/diff", a=max(0, seq - 1), b=seq, **scope)
    difference["added"] = [fact["id"] for fact in difference["added"]]
    assert difference.pop("ended") == {}
    assert found["changed"] == difference | {"evicted": []}
    logged = client.get_json("/v1/log", cursor=seq + 1, limit=1, **scope)["items"] if seq else []
    assert (found["cause"], found["summary"], found["at"]) == next(
        ((entry["cause"], entry["summary"], entry["at"]) for entry in logged), (None, "", "")
    )


def test_each_moment_is_what_the_document_the_difference_and_the_log_say(server: Server, client: CheckedClient) -> None:
    fill(server)
    for seq in moments(client):
        must_be_what_the_other_routes_say(client, seq, ADA)
    newest = client.get_json("/v1/memory", **ADA)
    assert newest == client.get_json("/v1/memory", at=newest["seq"], **ADA)
    assert newest["changed"]["added"]
    assert {section["section"]: section["summary"] for section in newest["sections"]} == dict.fromkeys(
        DOCUMENT_SECTIONS, ""
    )
    with_section = client.get_json("/v1/memory", at=newest["seq"] - 3, **ADA)
    assert with_section["sections"][0]["summary"] == "bakes bread"
    assert client.get_json("/v1/memory", at=newest["seq"] - 1, **ADA)["changed"]["removed"]


def test_a_moment_is_also_named_by_its_time(server: Server, client: CheckedClient) -> None:
    fill(server)
    for entry in client.get_json("/v1/log", **ADA)["items"]:
        found = client.get_json("/v1/memory", at=entry["at"], **ADA)
        last = client.get_json("/v1/log", limit=1000, **ADA)["items"]
        assert found["seq"] == max(each["seq"] for each in last if each["at"] <= entry["at"])
    assert client.get_json("/v1/memory", at="2000-01-01", **ADA)["seq"] == 0


@pytest.mark.parametrize("text", ["likes", "LIKES TEA", "ＬＩＫＥＳ", "tEa", "s  t"])
def test_a_text_is_found_in_any_case_and_width(server: Server, client: CheckedClient, text: str) -> None:
    fill(server)
    found = client.get_json("/v1/memory", at=14, contains=text, **ADA)
    assert [fact["content"] for fact in found["facts"]["items"]] == ["Ｌｉｋｅｓ tea"]
    assert (found["facts"]["total"], found["count"]) == (1, 11)


def test_facts_of_a_category_are_counted_apart_from_all(server: Server, client: CheckedClient) -> None:
    fill(server)
    found = client.get_json("/v1/memory", at=13, category="knowledge", contains="thing 2", **ADA)
    assert [fact["content"] for fact in found["facts"]["items"]] == ["a thing 2"]
    assert (found["facts"]["total"], found["count"]) == (1, 11)
    assert found["categories"] == {"context": 4, "knowledge": 3, "preference": 4}
    assert client.get_json("/v1/memory", category="none", **ADA)["facts"] == {"total": 0, "offset": 0, "items": []}


def test_an_empty_memory_has_all_sections_and_no_cause(client: CheckedClient) -> None:
    found = client.get_json("/v1/memory", **ADA)
    assert (found["seq"], found["cause"], found["summary"], found["count"]) == (0, None, "", 0)
    assert [section["section"] for section in found["sections"]] == list(DOCUMENT_SECTIONS)
    assert found["changed"] == {"added": [], "removed": [], "revised": [], "sections": [], "evicted": []}


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"at": "soon"}, 400),
        ({"at": "99"}, 404),
        ({"sort": "age"}, 422),
        ({"offset": "-1"}, 422),
        ({"limit": "1001"}, 422),
        ({"descending": "perhaps"}, 422),
    ],
)
def test_what_cannot_be_asked_is_refused(client: CheckedClient, params: dict[str, str], status: int) -> None:
    answer = client.get("/v1/memory", params={**ADA, **params})
    assert answer.status_code == status
    assert next(iter(params.values())) in answer.text or next(iter(params)) in answer.text


def test_an_agents_memory_is_its_own_unless_it_falls_back_to_its_users(
    servers: Callable[..., Server], server: Server, client: CheckedClient
) -> None:
    fill(server)
    assert client.get_json("/v1/memory", **user("ada", "coder"))["count"] == 0
    falling_back = servers("other", agent_reads="fallback")
    fill(falling_back)
    with falling_back.client() as other:
        for at in (None, 3):
            assert other.get_json("/v1/memory", at=at, **user("ada", "coder")) == other.get_json(
                "/v1/memory", at=at, **ADA
            )


def test_where_agents_share_sections_each_moment_shows_those_of_the_user(servers: Callable[..., Server]) -> None:
    server = servers(shared_summaries=True)
    coder = user("ada", "coder")
    with server.client() as client:
        for number, agent in enumerate(("coder", None, "writer", "coder", "writer")):
            server.clock.advance(60)
            memory = server.home.memory("ada", agent)
            memory.record("t", exchange(f"tea {number}"), mode="append")
            section = {"summary": f"is {number}", "shouldUpdate": True}
            memory.extract([{"thread_id": "t", "reply": {"user": {"workContext": section}}}])  # type: ignore[list-item]
        for seq in range(client.get_json("/v1/head", **coder)["seq"] + 1):
            must_be_what_the_other_routes_say(client, seq, coder)
        now = client.get_json("/v1/memory", **coder)
        assert now["sections"][0]["summary"] == "is 4"
        later = client.get_json("/v1/memory", at="now", **coder)
        assert later["sections"][0]["summary"] == "is 4"
        assert now["changed"] == client.get_json("/v1/memory", at=now["seq"], **coder)["changed"]


@given(
    topics=st.lists(st.sampled_from(["tea", "milk", "rum", "rye"]), min_size=1, max_size=8),
    sort=st.sampled_from(SORTS),
    descending=st.booleans(),
    cuts=st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
@settings(max_examples=examples(1 / 4), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_history_shown_in_any_windows_is_the_whole(
    tmp_path_factory: pytest.TempPathFactory, topics: list[str], sort: str, descending: bool, cuts: list[int]
) -> None:
    server = Server(tmp_path_factory.mktemp("home") / "home")
    memory = server.home.memory("ada")
    for n, topic in enumerate(topics):
        memory.record("t", exchange(topic, n), mode="append")
        live = [fact.id for fact in memory.facts()]
        memory.extract([RecordedReply("t", reply(f"Likes {topic}", remove=tuple(live[: n % 2]), confidence=0.8))])
    edges = [0, *sorted(cuts), 1000]
    windows = [
        memory.moment(sort=sort, descending=descending, offset=start, limit=end - start).facts  # type: ignore[arg-type]
        for start, end in pairwise(edges)
    ]
    whole = memory.moment(sort=sort, descending=descending, limit=1000).facts  # type: ignore[arg-type]
    assert [fact for window in windows for fact in window.items] == list(whole.items)
    assert {fact.id for fact in whole.items} == {fact.id for fact in memory.facts()}
    assert {window.total for window in windows} == {len(whole.items)}
    server.home.close()
