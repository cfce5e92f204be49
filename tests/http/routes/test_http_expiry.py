"""Reads over HTTP once a fact is over: no kept answer, no 304 and no page shows it, although no commit has come."""

from __future__ import annotations

import pytest
from served_home import CheckedClient, Server, user

ADA = user("ada")
DAY = 24 * 3600.0


@pytest.mark.parametrize("path", ["/v1/facts", "/v1/document", "/v1/memory"])
def test_an_answer_holds_until_a_fact_in_it_is_over(server: Server, client: CheckedClient, path: str) -> None:
    added = client.post("/v1/facts", params=ADA, json={"content": "Saw a heron", "expires_at": "2026-03-01"})
    assert added.status_code == 201
    assert added.json()["fact"]["expiresAt"] == "2026-03-01"
    first = client.get(path, params=ADA)
    tag = first.headers["etag"]
    assert "Saw a heron" in first.text
    for _ in range(2):
        assert client.get(path, params=ADA, headers={"If-None-Match": tag}).status_code == 304
    server.clock.advance(DAY)
    again = client.get(path, params=ADA, headers={"If-None-Match": tag})
    assert again.status_code == 200
    assert "Saw a heron" not in again.text
    assert again.headers["etag"] != tag
    assert client.get(path, params=ADA, headers={"If-None-Match": again.headers["etag"]}).status_code == 304


@pytest.mark.parametrize("path", ["/v1/facts/fact_2_0/why", "/v1/graph", "/v1/status"])
def test_what_tells_of_the_fact_says_something_else_from_then_on(
    server: Server, client: CheckedClient, path: str
) -> None:
    client.post("/v1/facts", params=ADA, json={"content": "Saw a heron", "expires_at": "2026-03-01"})
    first = client.get(path, params=ADA)
    stated = {"If-None-Match": first.headers["etag"]} if "etag" in first.headers else {}
    server.clock.advance(DAY)
    again = client.get(path, params=ADA, headers=stated)
    assert again.status_code == 200
    assert again.json() != first.json()


def test_a_change_on_what_was_seen_after_that_is_made(server: Server, client: CheckedClient) -> None:
    client.post("/v1/facts", params=ADA, json={"content": "Saw a heron", "expires_at": "2026-03-01"})
    server.clock.advance(DAY)
    tag = client.get("/v1/facts", params=ADA).headers["etag"]
    changed = client.post("/v1/facts", params=ADA, json={"content": "Has a dog"}, headers={"If-Match": tag})
    assert changed.status_code == 201


def test_a_fact_is_changed_and_ended(client: CheckedClient) -> None:
    client.post("/v1/facts", params=ADA, json={"content": "Lives in Oslo"})
    edited = client.patch("/v1/facts/fact_2_0", params=ADA, json={"valid_from": "2024-05"})
    assert edited.json()["fact"]["validFrom"] == "2024-05"
    refused = client.patch("/v1/facts/fact_2_0", params=ADA, json={"valid_until": "soon"})
    assert refused.status_code == 400
    ended = client.delete("/v1/facts/fact_2_0", params={**ADA, "ended": "true", "valid_until": "2025"})
    assert ended.json()["fact"]["validUntil"] == "2025"
    why = client.get("/v1/facts/fact_2_0/why", params=ADA).json()
    assert (why["removed"]["reason"], why["removed"]["valid_until"]) == ("ended", "2025")


@pytest.mark.parametrize("asked", [{}, {"valid_at": "2026-03-01"}], ids=["now", "of a day"])
@pytest.mark.parametrize("commits", [0, 1])
def test_no_later_page_shows_it_either(
    server: Server, client: CheckedClient, asked: dict[str, str], commits: int
) -> None:
    for content, more in (("Likes tea", {}), ("Saw a heron", {"expires_at": "2026-03-01"}), ("Has a dog", {})):
        client.post("/v1/facts", params=ADA, json={"content": content, **more})
    server.clock.advance(DAY)
    page = client.get("/v1/facts", params={**ADA, **asked, "limit": "1"}).json()
    for _ in range(commits):
        client.post("/v1/facts", params=ADA, json={"content": "Has a cat"})
    seen = [page]
    while seen[-1]["next"] is not None:
        seen.append(client.get("/v1/facts", params={**ADA, **asked, "limit": "1", "cursor": seen[-1]["next"]}).json())
    assert [fact["content"] for page in seen for fact in page["items"]] == ["Likes tea", "Has a dog"]
