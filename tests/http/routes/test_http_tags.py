"""Tags and attributes over HTTP: stated with a delivery and by hand, and filters of all that lists facts."""

from __future__ import annotations

import pytest
from served_home import CheckedClient, user

ADA = user("ada")


@pytest.fixture
def projects(client: CheckedClient) -> CheckedClient:
    stated = ({"tags": ["heron"], "attributes": {"team": "red"}}, {"tags": ["gull"]}, {})
    for bird, fields in zip(("heron", "gull", "wren"), stated, strict=True):
        added = client.post("/v1/facts", params=ADA, json={"content": f"Deploys the {bird}", **fields})
        assert added.status_code == 201
    return client


@pytest.mark.parametrize(
    ("tags", "found"),
    [(["heron"], ["Deploys the heron"]), (["team=red"], ["Deploys the heron"]), (["heron", "gull"], [])],
)
def test_every_list_of_facts_keeps_to_tags(projects: CheckedClient, tags: list[str], found: list[str]) -> None:
    asked = {**ADA, "tag": tags}
    assert [fact["content"] for fact in projects.get("/v1/facts", params=asked).json()["items"]] == found
    window = projects.get("/v1/memory", params=asked).json()
    assert ([fact["content"] for fact in window["facts"]["items"]], window["tags"]) == (found, {"gull": 1, "heron": 1})
    hits = projects.get("/v1/search", params={**asked, "query": "deploys"}).json()
    assert [hit["content"] for hit in hits["hits"]] == found


def test_a_block_is_of_one_project(projects: CheckedClient) -> None:
    for block in (
        projects.get("/v1/context", params={**ADA, "tag": "heron"}),
        projects.post("/v1/context", params=ADA, json={"tags": ["heron"]}),
    ):
        assert "Deploys the heron" in block.json()["text"]
        assert "Deploys the wren" in block.json()["text"]
        assert "Deploys the gull" not in block.json()["text"]


def test_a_fact_is_given_other_tags(projects: CheckedClient) -> None:
    edited = projects.patch("/v1/facts/fact_2_0", params=ADA, json={"tags": [], "attributes": {"rank": 2}})
    fact = edited.json()["fact"]
    assert (fact.get("tags", []), fact["attributes"]) == ([], {"rank": 2})
    (shown, *_) = projects.get("/v1/document", params=ADA).json()["facts"]
    assert shown["attributes"] == {"rank": 2}


def test_a_delivery_tags_what_is_learned_from_it(client: CheckedClient) -> None:
    said = [{"role": "user", "content": "I deploy on Fridays."}]
    recorded = client.post("/v1/record", params=ADA, json={"thread": "t", "messages": said, "tags": ["heron"]})
    assert recorded.status_code == 200
    reply = {"thread_id": "t", "reply": {"newFacts": [{"content": "Deploys on Fridays", "confidence": 0.9}]}}
    client.post("/v1/extract", params=ADA, json={"replies": [reply]})
    (fact,) = client.get("/v1/facts", params=ADA).json()["items"]
    assert fact["tags"] == ["heron"]


@pytest.mark.parametrize("tags", [["a=b"], ["x" * 65], [""]])
def test_what_is_no_tag_is_refused_with_what_one_is(client: CheckedClient, tags: list[str]) -> None:
    refused = client.post("/v1/facts", params=ADA, json={"content": "Has a dog", "tags": tags})
    assert refused.status_code == 400
    assert "a tag must be a name of 1 to 64 characters" in refused.json()["detail"]
