"""Gate: which hosts a server answers for, which pages may send requests, and what needs no token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import app_client, thread_server, token
from starlette.testclient import TestClient

from backstory.http.access.gate import is_loopback
from backstory.http.app import ServerOptions

OWN = [
    "127.0.0.1",
    "127.0.0.1:8765",
    "127.9.9.9",
    "localhost",
    "LOCALHOST:80",
    "Localhost.",
    "localhost.:8765",
    "[::1]",
    "[::1]:8765",
    "app.localhost",
]
FOREIGN = [
    "",
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example:8765",
    "evillocalhost",
    "192.168.1.5",
    "0.0.0.0",
    "[::]",
    "[::1].evil.example",
    "[::1",
    "127.0.0.1@evil.example",
    "evil.example@127.0.0.1",
    "user:127.0.0.1",
    "localhost evil.example",
    "127.0.0.1, evil.example",
    "127.0.0.1:80:evil",
    "\xff",
    "x" * 5000,
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of one server for all tests that name a user of their own, or none."""
    with app_client(tmp_path_factory.mktemp("gate") / "home") as client:
        yield client


@pytest.mark.parametrize("host", OWN)
def test_an_open_server_answers_for_this_machine(client: TestClient, host: str) -> None:
    assert client.get("/v1/facts", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("path", ["/v1/facts", "/healthz", "/docs", "/api/memory"])
def test_an_open_server_answers_for_no_other_host(client: TestClient, host: str, path: str) -> None:
    answer = client.get(path, headers={"Host": host.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code == 403
    assert "--allow-host" in answer.json()["detail"]
    assert len(answer.content) < 1000


@pytest.mark.parametrize(
    "line", [b"", b"Host: evil.example\r\nHost: 127.0.0.1\r\n", b"Host: 127.0.0.1\r\nHost: evil\r\n"]
)
def test_a_request_without_one_host_is_refused(tmp_path: Path, line: bytes) -> None:
    with thread_server(tmp_path / "home") as running:
        for version in (b"1.0", b"1.1"):
            answer = running.raw(b"GET /v1/facts HTTP/%b\r\n%bConnection: close\r\n\r\n" % (version, line))
            assert answer.split(b" ")[1] in (b"400", b"403"), answer


def test_allowed_hosts(tmp_path: Path) -> None:
    options = ServerOptions(hosts=("App.Example", "other.example:8443", "[2001:db8::1]", "dot.example."))
    with app_client(tmp_path / "home", options) as client:
        for host in (
            "app.example",
            "APP.EXAMPLE:443",
            "app.example.",
            "other.example",
            "[2001:db8::1]:80",
            "dot.example",
        ):
            assert client.get("/v1/facts", headers={"Host": host}).status_code == 200, host
        assert client.get("/v1/facts", headers={"Host": "localhost"}).status_code == 200
        for host in ("x.app.example", "app.example.evil.example", "evil.example", ""):
            assert client.get("/v1/facts", headers={"Host": host}).status_code == 403, host


def test_with_tokens_any_host_unless_hosts_are_named(tmp_path: Path) -> None:
    """A page that reaches the server under a name of its own has no token."""
    good = token(tmp_path / "home", "good")
    with app_client(tmp_path / "home", ServerOptions(local=False)) as client:
        assert client.get("/v1/facts", headers={"Host": "evil.example"}).status_code == 401
        assert client.get("/v1/facts", headers={"Host": "memory.example", **good}).status_code == 200
    with app_client(tmp_path / "home", ServerOptions(local=False, hosts=("memory.example",))) as client:
        assert client.get("/v1/facts", headers={"Host": "memory.example", **good}).status_code == 200
        for host in ("evil.example", "localhost", "127.0.0.1", ""):
            assert client.get("/v1/facts", headers={"Host": host, **good}).status_code == 403


def test_a_loopback_server_that_got_tokens_still_checks_hosts_it_was_given(tmp_path: Path) -> None:
    good = token(tmp_path / "home", "good")
    with app_client(tmp_path / "home", ServerOptions(hosts=("memory.example",))) as client:
        assert client.get("/v1/facts", headers={"Host": "evil.example", **good}).status_code == 403
        assert client.get("/v1/facts", headers={"Host": "localhost", **good}).status_code == 200


# Origins.


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8765", None, 201),
        ("127.0.0.1:8765", "http://127.0.0.1:8765", 201),
        ("localhost:8765", "HTTP://LocalHost:8765", 201),
        ("localhost", "https://localhost", 201),
        ("127.0.0.1:8765", "null", 403),
        ("127.0.0.1:8765", "", 403),
        ("127.0.0.1:8765", "http://127.0.0.1", 403),
        ("127.0.0.1:8765", "http://127.0.0.1:8766", 403),
        ("127.0.0.1:8765", "http://localhost:8765", 403),
        ("127.0.0.1:8765", "https://evil.example", 403),
        ("127.0.0.1:8765", "https://127.0.0.1:8765.evil.example", 403),
        ("127.0.0.1:8765", "https://evil.example/127.0.0.1:8765", 403),
        ("127.0.0.1:8765", "127.0.0.1:8765", 403),
        ("127.0.0.1:8765", "chrome-extension://abcdef", 403),
        ("127.0.0.1:8765", "file://", 403),
    ],
)
def test_only_pages_of_this_server_may_send_requests(
    client: TestClient, user: str, host: str, origin: str | None, status: int
) -> None:
    headers = {"Host": host, **({} if origin is None else {"Origin": origin})}
    answer = client.post("/v1/facts", params={"user": user}, json={"content": "Runs"}, headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert "--allow-origin" in answer.json()["detail"]
        assert client.get("/v1/facts", params={"user": user}, headers={"Host": host}).json()["items"] == []


def test_behind_a_proxy_with_tls_the_origin_is_https(tmp_path: Path) -> None:
    good = token(tmp_path / "home", "good")
    with app_client(tmp_path / "home", ServerOptions(local=False, hosts=("memory.example",))) as client:
        headers = {"Host": "memory.example", "Origin": "https://memory.example", **good}
        assert client.post("/v1/facts", json={"content": "Runs"}, headers=headers).status_code == 201
        headers["Origin"] = "https://other.example"
        assert client.post("/v1/facts", json={"content": "Swims"}, headers=headers).status_code == 403


@pytest.mark.parametrize("stated", ["https://app.example", "https://APP.example/"])
def test_an_allowed_origin_gets_through_with_a_token(tmp_path: Path, stated: str) -> None:
    good = token(tmp_path / "home", "good")
    page = {"Origin": "https://app.example"}
    asked = {
        "Access-Control-Request-Method": "PATCH",
        "Access-Control-Request-Headers": "authorization,if-match,content-type",
    }
    with app_client(tmp_path / "home", ServerOptions(origins=(stated,))) as client:
        # A browser sends no token with its question.
        allowed = client.options("/v1/facts/fact_2_0", headers=page | asked)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "PATCH" in allowed.headers["access-control-allow-methods"]
        assert "authorization" in allowed.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in allowed.headers
        found = client.get("/v1/facts", headers=page | good)
        assert found.status_code == 200
        assert found.headers["access-control-allow-origin"] == "https://app.example"
        exposed = found.headers["access-control-expose-headers"].split(", ")
        assert {"ETag", "Mcp-Session-Id", "X-Backstory-Thread", "X-Backstory-Memory"} <= {*exposed}
        # The page can read why it was refused.
        refused = client.get("/v1/facts", headers=page)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://app.example"
        other = {"Origin": "https://other.example"}
        assert "access-control-allow-origin" not in client.options("/v1/facts", headers=other | asked).headers
        answer = client.get("/v1/facts", headers=other | good)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


# What needs a token.


def test_health_and_documentation_need_no_token(tmp_path: Path) -> None:
    token(tmp_path / "home", "good")
    with app_client(tmp_path / "home") as client:
        for path in ("/healthz", "/readyz", "/openapi.json", "/docs", "/docs/begin.js", "/static/swagger-ui.css"):
            assert client.get(path).status_code == 200, path
        for path in (
            "/metrics",
            "/v1/scopes",
            "/v1/facts",
            "/mcp",
            "/static",
            "/docs/x",
            "/nope",
            "/static/../v1/facts",
        ):
            assert client.get(path).status_code == 401, path


def test_a_public_file_is_one_of_its_folder(tmp_path: Path) -> None:
    token(tmp_path / "home", "good")
    with thread_server(tmp_path / "home") as running:
        for path in ("/static/../app.py", "/static/%2e%2e/%2e%2e/x", "/static/..%2f..%2f__init__.py", "//static/x"):
            answer = running.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            assert answer.split(b" ")[1] in (b"404", b"401", b"400"), (path, answer)
        for path in ("/static/..%2fv1/facts", "/healthz/../v1/facts", "/healthz%2f..%2fv1%2ffacts", "//v1/facts"):
            answer = running.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            assert b"items" not in answer, path


def test_a_missing_token_is_said_in_the_shape_of_the_path(tmp_path: Path) -> None:
    token(tmp_path / "home", "good")
    with app_client(tmp_path / "home") as client:
        problem = client.get("/v1/facts")
        assert problem.status_code == 401
        assert problem.headers["content-type"] == "application/problem+json"
        assert problem.headers["www-authenticate"].startswith("Bearer")
        assert problem.json()["status"] == 401
        assert problem.json()["title"] == "Unauthorized"
        assert "backstory token add" in problem.json()["detail"]
        deerflow = client.get("/api/memory")
        assert (deerflow.status_code, list(deerflow.json())) == (401, ["detail"])
        openai = client.post("/proxy/v1/chat/completions", json={})
        assert openai.status_code == 401
        assert openai.json()["error"]["type"] == "authentication_error"
        assert "X-Backstory-Token" in openai.json()["error"]["message"]
        anthropic = client.post("/proxy/anthropic/v1/messages", json={})
        assert (anthropic.status_code, anthropic.json()["type"]) == (401, "error")
        assert anthropic.json()["error"]["type"] == "authentication_error"
        assert "X-Backstory-Token" in anthropic.json()["error"]["message"]


def test_how_a_token_is_sent(tmp_path: Path) -> None:
    good = token(tmp_path / "home", "good")["Authorization"]
    text = good.removeprefix("Bearer ")
    with app_client(tmp_path / "home") as client:
        for right in (good, f"bearer {text}", f"BEARER   {text} "):
            assert client.get("/v1/facts", headers={"Authorization": right}).status_code == 200, right
        for wrong in (text, f"Basic {text}", f"Bearer{text}", "Bearer", "Bearer ", f"Token {text}", "Bearer \xff"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert client.get("/v1/facts", headers=headers).status_code == 401, wrong  # type: ignore[arg-type]
        # The proxy's own header counts below /proxy/ only, and there the other one does not.
        assert client.get("/v1/facts", headers={"X-Backstory-Token": text}).status_code == 401
        assert client.get("/proxy/nope", headers={"Authorization": good}).status_code == 401
        assert client.get("/proxy/nope", headers={"X-Backstory-Token": text}).status_code == 404
        assert client.get(f"/v1/facts?token={text}&access_token={text}").status_code == 401


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("127.1", False),
        ("2130706433", False),
    ],
)
def test_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) == local
