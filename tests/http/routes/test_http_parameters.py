"""Query parameters that a route does not have are refused on every route of `/v1`."""

from __future__ import annotations

import pytest
from served_home import CheckedClient, Server, user

BODIES = {"/v1/record": {"thread": "t", "messages": [{"role": "user", "content": "tea"}]}, "/v1/clear": {}}


def test_no_route_takes_a_parameter_that_it_does_not_have(server: Server, client: CheckedClient) -> None:
    server.home.memory(scope="global").add_fact("shared by all")
    before = server.home.memory(scope="global").head()
    tried = 0
    for path, operations in server.app.openapi()["paths"].items():
        if not path.startswith("/v1/"):
            continue
        for method in operations:
            sent = path.format(fact_id="fact_2_0", section="user.workContext", seq=2)
            body = {} if method == "get" else {"json": BODIES.get(path, {})}
            refused = client.request(method.upper(), sent, params={"usr": "ada"}, **body)
            assert (refused.status_code, refused.json()["error"]) == (400, "UsageError"), (path, refused.text)
            assert "takes no parameter 'usr'" in refused.json()["detail"]
            tried += 1
    assert tried > 40
    assert server.home.memory(scope="global").head() == before


FILTERS = ("agent", "at", "category", "cursor", "limit", "tag", "user", "valid_at")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("facts?usr=ada", "this request takes no parameter 'usr'; the nearest is user"),
        ("facts?user=ada&Limit=3", "this request takes no parameter 'Limit'; the nearest is limit"),
        ("log?threads=t", "this request takes no parameter 'threads'; the nearest is thread"),
        ("context?about=tea", "this request takes no parameter 'about'; it takes agent, for, max_tokens, tag, user"),
        ("caller?user=ada", "this request takes no parameter 'user'; it takes none"),
        (
            f"facts?{'x' * 9000}=1",
            f"this request takes no parameter '{40 * 'x'}'; it takes {', '.join(FILTERS)}",
        ),
    ],
)
def test_the_message_names_the_nearest_or_all(client: CheckedClient, url: str, said: str) -> None:
    assert client.get(f"/v1/{url}").json()["detail"] == said


def test_recording_takes_none_on_its_short_way(client: CheckedClient, server: Server) -> None:
    refused = client.post("/v1/record", params={"user": "ada", "agnt": "coder"}, json=BODIES["/v1/record"])
    assert (refused.status_code, "the nearest is agent" in refused.json()["detail"]) == (400, True)
    assert server.home.memory("ada").threads() == ()


def test_routes_of_other_programs_take_any(client: CheckedClient) -> None:
    assert client.get("/api/memory", params={"usr": "ada"}).status_code == 200
    assert client.get("/healthz", params={"t": "1"}).status_code == 200
    assert client.get("/v1/document", params=user("ada")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "rollback", {"to": True}),
        ("POST", "revert", {"seq": True}),
        ("POST", "facts", {"content": "likes tea", "confidence": True}),
        ("POST", "flush", {"timeout": False}),
        ("POST", "context", {"messages": "tea?", "max_tokens": True}),
        ("POST", "what-if", {"policy": {"max_facts": 20}, "until": True}),
    ],
)
def test_true_and_false_are_no_numbers(client: CheckedClient, method: str, path: str, body: object) -> None:
    refused = client.request(method, f"/v1/{path}", params=user("ada"), json=body)
    assert (refused.status_code, "must be a number, got" in refused.text) == (422, True), refused.text
