"""Refusals over HTTP: those of one commit with what it would take, and the commits that refused something."""

from __future__ import annotations

import json

import msgspec
import pytest
from served_home import CheckedClient, Server, user

from backstory.ledger.core.errors import DuplicateFactError

ADA = user("ada")


@pytest.fixture
def refused(server: Server) -> list[int]:
    """A memory in which every third commit, from the third on, refused something; returns their numbers."""
    memory = server.home.memory("ada")
    found = []
    for n in range(4):
        memory.add_fact(f"likes number {n}")
        with pytest.raises(DuplicateFactError) as error:
            memory.add_fact(f"Likes number {n}")
        found.append(error.value.seq)
        memory.add_fact(f"has {n} cats")
    return found


def test_of_one_commit_it_is_what_the_python_api_says(
    server: Server, client: CheckedClient, refused: list[int]
) -> None:
    found = server.home.memory("ada").refusals(refused[1])
    served = client.get_json(f"/v1/commits/{refused[1]}/refusals", **ADA)
    assert served == {"items": json.loads(msgspec.json.encode(found))}
    (item,) = served["items"]
    assert (item["fact"], item["needs"], item["unless"]) == ("fact_5_0", {"key": "dedup_key", "value": "exact"}, None)
    assert client.get_json("/v1/commits/1/refusals", **ADA) == {"items": []}
    assert client.get("/v1/commits/99/refusals", params=ADA).status_code == 404
