"""Policy keys as the server lists them: their ranges are those that a change of the policy is checked against."""

from __future__ import annotations

import json

import msgspec
import pytest
from served_home import CheckedClient, Json, user

from backstory.ledger.core.policy import FIRST, POLICY_KEYS

ADA = user("ada")
WEIGHTS = ("eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight")


@pytest.fixture
def keys(client: CheckedClient) -> dict[str, Json]:
    return {item["key"]: item for item in client.get_json("/v1/policy/keys", **ADA)["items"]}


def change(client: CheckedClient, **values: object) -> Json:
    answer = client.patch("/v1/policy", params=ADA, json=values)
    return answer.status_code, answer.json()


def test_every_key_is_listed_once_in_the_order_of_the_policy(keys: dict[str, Json]) -> None:
    assert tuple(keys) == POLICY_KEYS
    defaults = json.loads(msgspec.json.encode(FIRST))
    assert {name: item["default"] for name, item in keys.items()} == defaults


def test_a_number_is_taken_up_to_both_ends_of_its_range_and_not_beyond(
    client: CheckedClient, keys: dict[str, Json]
) -> None:
    numbers = {name: item for name, item in keys.items() if item["type"] in ("integer", "number")}
    assert len(numbers) > len(WEIGHTS)
    for name, item in numbers.items():
        for value, step in ((item["minimum"], -1), (item["maximum"], 1)):
            status, answer = change(client, **{name: value + step})
            assert (status, f"{name} must be" in answer["detail"]) == (400, True), (name, answer)
            status, answer = change(client, **{name: value})
            # One weight alone does not add up with the others.
            assert status == 200 or (name in WEIGHTS and "must add up to 1" in answer["detail"]), (name, answer)
        assert change(client, **{name: 1.5})[0] == 400 or item["type"] == "number"


def test_a_choice_is_one_of_those_listed(client: CheckedClient, keys: dict[str, Json]) -> None:
    for name, item in keys.items():
        if item["type"] == "choice":
            assert [change(client, **{name: one})[0] for one in item["choices"]] == [200] * len(item["choices"])
            assert change(client, **{name: "another"})[0] == 400
        elif item["type"] == "list":
            assert change(client, **{name: item["choices"]})[0] == 200
            assert change(client, **{name: [*item["choices"], "another"]})[0] == 400
        elif item["type"] == "boolean":
            assert [change(client, **{name: one})[0] for one in (True, False, 1)] == [200, 200, 400]


def test_the_value_is_the_one_in_force(client: CheckedClient) -> None:
    change(client, max_facts=20, fact_confidence_threshold=0.5)
    shown = {item["key"]: item["value"] for item in client.get_json("/v1/policy/keys", **ADA)["items"]}
    assert shown == client.get_json("/v1/policy", **ADA)["policy"]
    assert (shown["max_facts"], shown["fact_confidence_threshold"]) == (20, 0.5)
