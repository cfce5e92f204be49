"""Timeline and usage: commits counted by time and kind, and tokens by day and model."""

from __future__ import annotations

import itertools

import pytest
from fakes import exchange
from served_home import CheckedClient, Json, Server, user

ADA = user("ada")


def fill(server: Server) -> None:
    """Commits of several kinds at uneven times, over three days."""
    memory = server.home.memory("ada")
    for n in range(9):
        server.clock.advance((1, 60, 36_000)[n % 3])
        memory.add_fact(f"thing {n}")
        memory.record("t", exchange(f"tea {n}"), mode="append")
        memory.extract([{"thread_id": "t", "reply": {"newFacts": []}}])  # type: ignore[list-item]
    memory.revert(2)


def log_of(client: CheckedClient, **params: object) -> list[Json]:
    items: list[Json] = client.get_json("/v1/log", limit=1000, **ADA, **params)["items"]
    return items[::-1]


@pytest.mark.parametrize("buckets", [1, 2, 7, 200, 2000])
def test_the_buckets_of_a_timeline_hold_each_commit_once(server: Server, client: CheckedClient, buckets: int) -> None:
    fill(server)
    log = log_of(client)
    found = client.get_json("/v1/timeline", buckets=buckets, **ADA)
    assert found["commits"] == len(log) == sum(bucket["commits"] for bucket in found["buckets"])
    assert found["first"] == {"seq": 1, "at": log[0]["at"]}
    assert found["last"] == {"seq": len(log), "at": log[-1]["at"]}
    assert (found["since"], found["until"]) == (log[0]["at"], log[-1]["at"])
    ends = [bucket["at"] for bucket in found["buckets"][1:]] + ["9"]
    for bucket, end in zip(found["buckets"], ends, strict=True):
        within = [entry for entry in log if bucket["at"] <= entry["at"] < end]
        assert (bucket["commits"], bucket["seq"]) == (len(within), within[0]["seq"])
        kinds = sorted(entry["cause"]["kind"] for entry in within)
        assert bucket["kinds"] == {kind: len(list(same)) for kind, same in itertools.groupby(kinds)}
    assert len(found["buckets"]) <= buckets


def test_a_timeline_of_a_part_counts_what_the_log_lists(server: Server, client: CheckedClient) -> None:
    fill(server)
    log = log_of(client)
    for since, until in ((4, 9), (4, None), (None, 4), (log[5]["at"], log[7]["at"]), (3, log[9]["at"]), (90, None)):
        found = client.get_json("/v1/timeline", since=since, until=until, buckets=5, **ADA)
        listed = [entry["seq"] for entry in log_of(client, since=since)]
        if until is not None:
            listed = [seq for seq in listed if (seq if isinstance(until, int) else log[seq - 1]["at"]) <= until]
        assert found["commits"] == len(listed)
        assert found["first"] == ({"seq": listed[0], "at": log[listed[0] - 1]["at"]} if listed else None)
        assert sum(found["kinds"].values()) == sum(bucket["commits"] for bucket in found["buckets"]) == len(listed)
        if isinstance(since, str):
            assert (found["since"], found["until"]) == (since, until)


def test_a_timeline_follows_each_commit(server: Server, client: CheckedClient) -> None:
    assert client.get_json("/v1/timeline", **ADA) == {
        "commits": 0, "first": None, "last": None, "since": None, "until": None, "kinds": {}, "buckets": []
    }  # fmt: skip
    for n in range(2, 6):
        server.home.memory("ada").add_fact(f"thing {n}")
        found = client.get_json("/v1/timeline", **ADA)
        assert (found["commits"], found["kinds"]) == (n, {"genesis": 1, "manual": n - 1})


def test_an_erasure_changes_no_time_no_kind_and_no_tokens(server: Server, client: CheckedClient) -> None:
    fill(server)
    before = client.get_json("/v1/timeline", until=19, **ADA), client.get_json("/v1/usage", **ADA)
    memory = server.home.memory("ada")
    memory.forget(memory.facts()[0].id)
    assert (client.get_json("/v1/timeline", until=19, **ADA), client.get_json("/v1/usage", **ADA)) == before


def test_usage_counts_updates_by_day_and_model(server: Server, client: CheckedClient) -> None:
    fill(server)
    found = client.get_json("/v1/usage", **ADA)["days"]
    entries = [entry for entry in log_of(client) if "model" in entry["cause"]]
    assert sum(day["updates"] for day in found) == len(entries) == 9
    assert [day["day"] for day in found] == sorted({entry["at"][:10] for entry in entries})
    assert len(found) > 1
    for day in found:
        one = {"since": day["day"], "until": f"{day['day']}T12:00:00Z"}
        assert client.get_json("/v1/usage", **ADA, **one)["days"] == [day]


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("timeline", {"since": "soon"}, 400),
        ("timeline", {"since": "9", "until": "8"}, 400),
        ("timeline", {"since": "2026-03-02", "until": "2026-03-01"}, 400),
        ("timeline", {"buckets": "0"}, 422),
        ("timeline", {"buckets": "2001"}, 422),
        ("usage", {"since": "5"}, 400),
        ("usage", {"since": "2026-03-02", "until": "2026-03-01"}, 400),
    ],
)
def test_what_cannot_be_counted_is_refused(
    client: CheckedClient, path: str, params: dict[str, str], status: int
) -> None:
    answer = client.get(f"/v1/{path}", params={**ADA, **params})
    assert answer.status_code == status
    assert next(iter(params)) in answer.text or params["since"] in answer.text
