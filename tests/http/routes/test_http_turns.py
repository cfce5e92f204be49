"""Pages of turns around one of them, and backwards; and the log without events."""

from __future__ import annotations

import pytest
from fakes import exchange
from served_home import CheckedClient, Server, user

THREAD = {**user("ada"), "thread": "long"}


def fill(server: Server) -> list[str]:
    """A conversation with gaps in its ordinals; returns the ids of the turns that stand."""
    memory = server.home.memory("ada")
    for n in range(8):
        memory.record("long", exchange(f"more {n}", n), mode="append")
    turns = memory.transcript("long")
    memory.turns.of("long").delete(turns[5])
    memory.turns.of("long").delete(turns[6])
    return [turn.id for turn in memory.transcript("long")]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 14, 100])
def test_a_page_around_a_turn_has_it_in_its_middle_and_others_on_both_sides(
    server: Server, client: CheckedClient, limit: int
) -> None:
    ids = fill(server)
    assert len(ids) == 14
    for place, turn in enumerate(ids):
        page = client.get_json("/v1/turns", limit=limit, around=turn, **THREAD)
        shown = [each["id"] for each in page["items"]]
        start = ids.index(shown[0])
        assert shown == ids[start : start + limit]
        assert len(shown) == min(limit, len(ids))
        middle = place - start == limit // 2
        assert middle or start == 0 or start + limit == len(ids)
        before, after = [], []
        while page["previous"] is not None:
            page = client.get_json("/v1/turns", limit=limit, cursor=page["previous"], **THREAD)
            before = [*(each["id"] for each in page["items"]), *before]
        page = client.get_json("/v1/turns", limit=limit, around=turn, **THREAD)
        while page["next"] is not None:
            page = client.get_json("/v1/turns", limit=limit, cursor=page["next"], **THREAD)
            after += [each["id"] for each in page["items"]]
        assert [*before, *shown, *after] == ids


@pytest.mark.parametrize(
    ("params", "status"),
    [({"around": "no such turn"}, 404), ({"around": "x", "cursor": "1"}, 400), ({"cursor": "-"}, 400)],
)
def test_a_turn_that_does_not_stand_is_not_found(
    server: Server, client: CheckedClient, params: dict[str, str], status: int
) -> None:
    fill(server)
    assert client.get("/v1/turns", params={**THREAD, **params}).status_code == status


def test_a_log_without_events_is_the_log_but_for_them(server: Server, client: CheckedClient) -> None:
    fill(server)
    server.home.memory("ada").add_fact("likes tea")
    whole = client.get_json("/v1/log", **user("ada"))["items"]
    assert any(entry["events"] for entry in whole)
    lean = client.get_json("/v1/log", events=False, **user("ada"))["items"]
    assert lean == [{**entry, "events": []} for entry in whole]
