"""Whose memory a token sees and what it may do there, on every route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from access_routes import ERASURES, MESSAGES, READS, ROUTES, WHOLE_HOME, WRITES, Route
from httpx import Response
from serving import app_client, token
from starlette.testclient import TestClient

from backstory.http.app import ServerOptions
from backstory.version import __version__


class Site:
    """An app on a home in which ada and bob have a fact and a conversation each."""

    def __init__(self, client: TestClient, home: Path) -> None:
        self.client = client
        self.home = home
        self._tokens: dict[object, dict[str, str]] = {}
        self.admin = self.token("admin")
        for user in ("ada", "bob"):
            made = client.post("/v1/facts", params={"user": user}, json={"content": f"Of {user}"}, headers=self.admin)
            assert made.status_code == 201
            assert made.json()["fact"]["id"] == "fact_2_0"
            said = {"user": {"workContext": {"summary": f"Of {user}", "shouldUpdate": True}}}
            for verb, body in (
                ("record", {"thread": "t1", "messages": MESSAGES}),
                ("extract", {"replies": [{"thread_id": "t1", "reply": said}]}),
                ("record", {"thread": "t3", "messages": MESSAGES}),
            ):
                assert client.post(f"/v1/{verb}", params={"user": user}, json=body, headers=self.admin).is_success

    def token(self, name: str, *users: str, right: str = "erase") -> dict[str, str]:
        """The header of a token that is made once."""
        stated = (name, users, right)
        if stated not in self._tokens:
            self._tokens[stated] = token(self.home, name, *users, right=right)
        return self._tokens[stated]

    def send(self, route: Route, headers: dict[str, str], user: str | None) -> Response:
        path = route.path
        sent = dict(headers)
        params = dict(part.split("=") for part in route.query.split("&") if part)
        if user is not None and route.of_deerflow:
            sent["X-Backstory-User"] = user
        elif user is not None:
            params["user"] = user
        return self.client.request(route.method, path, params=params, json=route.body, headers=sent)

    def state(self, user: str) -> object:
        """All that can be read of a user."""
        return [
            self.client.get(path, params={"user": user}, headers=self.admin).json()
            for path in ("/v1/document", "/v1/head", "/v1/log", "/v1/threads", "/v1/policy")
        ]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with app_client(tmp_path / "home") as client:
        yield Site(client, tmp_path / "home")


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site for all tests that change nothing."""
    home = tmp_path_factory.mktemp("whose") / "home"
    with app_client(home) as client:
        yield Site(client, home)


def worked(answer: Response) -> bool:
    """Whether a request was carried out; nothing is parked that could be discarded."""
    return answer.is_success or "nothing of thread t1 is parked" in answer.text


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_the_list_holds_every_route(site: Site) -> None:
    document = site.client.get("/openapi.json").json()
    stated = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    proxied = {one for one in stated if one[1].startswith(("/proxy/", "/mcp"))}
    assert stated - WHOLE_HOME - proxied == {route.template for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_another_users_memory_is_404_on_every_route(lasting: Site, route: Route) -> None:
    """The same answer as for a user who does not exist, whatever the right of the token."""
    site = lasting
    ada, before = site.token("ada", "ada"), site.state("bob")
    bob, nobody = site.send(route, ada, "bob"), site.send(route, ada, "carl")
    assert (bob.status_code, nobody.status_code) == (404, 404)
    assert bob.text.replace("bob", "carl") == nobody.text
    assert "Of bob" not in bob.text
    reader = site.token("reader", "ada", right="read")
    assert site.send(route, reader, "bob").status_code == 404
    # The memory that all users share is not among those of a token for two users.
    two = site.token("two", "ada", "carl")
    assert site.send(route, two, None).status_code == 404
    assert site.state("bob") == before
    assert sorted(path.name for path in (site.home / "users").iterdir()) == ["ada", "bob"]


@pytest.mark.parametrize("route", [route for route in ROUTES if route.path != "/v1/events"], ids=named)
def test_a_token_for_one_user_need_not_name_the_user(request: pytest.FixtureRequest, route: Route) -> None:
    site: Site = request.getfixturevalue("lasting" if route in READS else "site")
    ada, before = site.token("ada", "ada"), site.state("bob")
    answer = site.send(route, ada, None)
    assert worked(answer), answer.text
    assert "Of bob" not in answer.text
    assert site.state("bob") == before
    assert not (site.home / "ledger.jsonl").exists()


@pytest.mark.parametrize("route", [*WRITES, *ERASURES], ids=named)
def test_a_missing_right_is_403_and_changes_nothing(site: Site, route: Route) -> None:
    before = site.state("ada")
    for right in ("read", "write", "erase"):
        allowed = right == str(route.right) or right == "erase"
        if allowed:
            continue
        refused = site.send(route, token(site.home, right, "ada", right=right), "ada")
        assert refused.status_code == 403, refused.text
        assert f"needs a token with the right to {route.right}, and token:{right} may only {right}" in refused.text
        assert site.state("ada") == before
    enough = site.send(route, token(site.home, "enough", "ada", right=str(route.right)), "ada")
    assert worked(enough), enough.text


@pytest.mark.parametrize("route", [route for route in READS if route.path != "/v1/events"], ids=named)
def test_the_right_to_read_is_enough_to_read(lasting: Site, route: Route) -> None:
    answer = lasting.send(route, lasting.token("reader", "ada", right="read"), "ada")
    assert answer.status_code == 200, answer.text


COMMITTING = [route for route in [*WRITES, *ERASURES] if route.commits]
TAKES_A_KEY = {("POST", "facts"), ("PATCH", "{fact_id}"), ("DELETE", "{fact_id}")}
"""The method, and the end of the path, of routes that take an Idempotency-Key."""


@pytest.mark.parametrize(
    ("route", "once"),
    [
        *(pytest.param(route, False, id=named(route)) for route in COMMITTING),
        *(
            pytest.param(route, True, id=f"{named(route)} with a key")
            for route in COMMITTING
            if (route.method, route.template[1].rpartition("/")[2]) in TAKES_A_KEY and not route.of_deerflow
        ),
    ],
)
def test_each_commit_names_its_caller(site: Site, route: Route, once: bool) -> None:
    headers = token(site.home, "laptop", "ada")
    if once:
        headers["Idempotency-Key"] = "one"
    if route.path == "/v1/revert":
        # The last commit that can be undone is the added fact.
        route = route._replace(body={"seq": 2})
    before = len(site.client.get("/v1/log?user=ada", headers=site.admin).json()["items"])
    answer = site.send(route, headers, "ada")
    assert answer.status_code in (200, 201), answer.text
    commits = site.client.get("/v1/log?user=ada", headers=site.admin).json()["items"]
    assert len(commits) > before
    for commit in commits[: len(commits) - before]:
        assert commit["cause"]["actor"] == "token:laptop", json.dumps(commit)


def test_without_tokens_the_actor_is_the_server(tmp_path: Path) -> None:
    with app_client(tmp_path / "home") as client:
        client.post("/v1/facts", json={"content": "Runs"})
        assert client.get("/v1/log").json()["items"][0]["cause"]["actor"] == "http"


def test_an_update_names_the_caller_of_the_request_that_ran_it(site: Site) -> None:
    route = next(route for route in WRITES if route.path == "/v1/extract")
    assert site.send(route, token(site.home, "laptop", "ada"), "ada").json()["updates"] == 1
    cause = site.client.get("/v1/log?user=ada", headers=site.admin).json()["items"][0]["cause"]
    assert (cause["kind"], cause["thread"], cause.get("actor")) == ("extraction", "t3", "token:laptop")


# The whole home.


def test_scopes_are_those_of_the_token(site: Site) -> None:
    site.client.post("/v1/facts", json={"content": "Shared"}, headers=site.admin)
    site.client.post("/v1/facts?user=ada&agent=x", json={"content": "Of an agent"}, headers=site.admin)

    def listed(headers: dict[str, str], query: str = "") -> list[tuple[str | None, str | None]]:
        page = site.client.get(f"/v1/scopes?{query}", headers=headers).json()
        return [(one.get("user"), one.get("agent")) for one in page["items"]]

    everything = [(None, None), ("ada", None), ("ada", "x"), ("bob", None)]
    assert listed(site.admin) == everything
    assert listed(token(site.home, "ada", "ada")) == [("ada", None), ("ada", "x")]
    assert listed(token(site.home, "both", "bob", "carl")) == [("bob", None)]
    assert listed(token(site.home, "carl", "carl")) == []
    assert listed(token(site.home, "prefix", "ada"), "prefix=b") == []
    # A cursor of another caller's page shows nothing more.
    assert listed(token(site.home, "cursor", "bob"), "cursor=users/ada") == [("bob", None)]
    pages = [site.client.get("/v1/scopes?limit=1", headers=token(site.home, "page", "ada")).json()]
    assert pages[0]["next"] is not None
    assert "bob" not in json.dumps(pages)


def test_a_caller_is_told_what_its_token_covers(site: Site) -> None:
    def told(headers: dict[str, str]) -> dict[str, object]:
        answer = site.client.get("/v1/caller", headers=headers)
        assert answer.headers["cache-control"] == "no-store"
        told: dict[str, object] = answer.json()
        assert told.pop("version") == __version__
        return told

    assert told(site.admin) == {"name": "token:admin", "right": "erase", "users": None, "user": None}
    one, two = token(site.home, "one", "ada", right="read"), token(site.home, "two", "bob", "ada", right="write")
    assert told(one) == {"name": "token:one", "right": "read", "users": ["ada"], "user": "ada"}
    assert told(two) == {"name": "token:two", "right": "write", "users": ["ada", "bob"], "user": None}
    assert site.client.get("/v1/caller").status_code == 401


def test_a_caller_without_tokens_is_this_machine(tmp_path: Path) -> None:
    with app_client(tmp_path / "home", ServerOptions(user="ada")) as client:
        told = client.get("/v1/caller").json()
    assert told == {"name": "http", "right": "erase", "users": None, "user": "ada", "version": __version__}


def test_metrics_are_for_a_token_of_all_users(site: Site) -> None:
    assert site.client.get("/metrics", headers=site.admin).status_code == 200
    assert site.client.get("/metrics", headers=token(site.home, "all", right="read")).status_code == 200
    refused = site.client.get("/metrics", headers=token(site.home, "ada", "ada"))
    assert refused.status_code == 404
    for user in ("ada", "bob"):
        assert user not in site.client.get("/metrics", headers=site.admin).text


# Hostile names.

HOSTILE = [
    "../",
    "../../etc/passwd",
    "..",
    ".",
    "/",
    "//",
    "/etc/passwd",
    "users/x",
    "users",
    "agents/x",
    "ada/agents/x",
    "ada/",
    "ada ",
    " ada",
    "ADA",
    "a\0b",
    "\0",
    "a\nb",
    "a\r\nX-Evil: 1",
    "%2e%2e%2f",
    "%",
    "_2e_2e",
    "a__" + "0" * 64,
    "C:\\x",
    "\\\\host\\share",
    "CON",
    "\u202eada",
    "\u0000",
    "ad\u0430",
    "e\u0301",
    "\u00e9",
    "\ufffd",
    "😀" * 1000,
    "u" * 1000,
    "u" * 999 + "v",
    "null",
    "*",
    "ada*",
    "$(id)",
    "'; DROP TABLE facts; --",
    "{}",
    "tokens.json",
    "-rf",
]
REFUSED = ["", "u" * 1001, "😀" * 1001, "u" * 60_000]


def test_every_user_id_is_one_memory_and_no_other(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    home = outer / "home"
    with app_client(home) as client:
        for number, user in enumerate(HOSTILE):
            made = client.post("/v1/facts", params={"user": user}, json={"content": f"Fact {number}"})
            assert made.status_code == 201, (user, made.text)
        distinct = {user: number for number, user in enumerate(HOSTILE)}
        for number, user in enumerate(HOSTILE):
            facts = client.get("/v1/facts", params={"user": user}).json()["items"]
            expected = [f"Fact {n}" for n, other in enumerate(HOSTILE) if other == user]
            assert [fact["content"] for fact in facts] == expected, user
            del number
        users = [one["user"] for one in client.get("/v1/scopes?limit=1000").json()["items"]]
        assert sorted(users) == sorted(distinct)
        for user in REFUSED:
            for path in ("/v1/facts", "/v1/events"):
                answer = client.get(path, params={"user": user})
                assert answer.status_code == 400, (user[:20], answer.text)
                assert "user id" in answer.json()["detail"]
            assert client.post("/v1/facts", params={"user": user}, json={"content": "x"}).status_code == 400
        answer = client.get("/api/memory", headers={"X-Backstory-User": "a" * 1001})
        assert answer.status_code == 400
    assert [path.name for path in outer.iterdir()] == ["home"]
    assert sorted(path.name for path in home.iterdir() if path.is_dir()) == ["users"]
    assert len(list((home / "users").iterdir())) == len(distinct)


@pytest.mark.parametrize("spelled", ["%ff", "%fe", "a%80", "%ed%a0%80", "%c0%ae%c0%ae", "%f8%88%80%80%80"])
def test_what_is_not_utf8_is_refused_and_not_replaced(tmp_path: Path, spelled: str) -> None:
    """Decoded with replacements, `%ff` and `%fe` would be the same user."""
    with app_client(tmp_path / "home") as client:
        for path in (
            f"/v1/facts?user={spelled}",
            f"/v1/facts/{spelled}",
            f"/v1/scopes?prefix={spelled}",
            f"/{spelled}",
        ):
            answer = client.get(path)
            assert answer.status_code == 400, path
            assert "UTF-8" in answer.json()["detail"]
        assert client.post(f"/v1/facts?user={spelled}", json={"content": "x"}).status_code == 400
    assert not (tmp_path / "home" / "users").exists()


def test_a_user_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    """A proxy in front may look at the one, and the server at the other."""
    with app_client(tmp_path / "home") as client:
        for query in ("user=ada&user=bob", "user=ada&user=ada", "user=a&agent=x&agent=y"):
            for answer in (client.get(f"/v1/facts?{query}"), client.post(f"/v1/facts?{query}", json={"content": "x"})):
                assert answer.status_code == 400, query
                assert "once" in answer.json()["detail"]
    assert not (tmp_path / "home" / "users").exists()


@pytest.mark.parametrize("agent", ["..", ".", "a/b", "../x", "", "a" * 65, "é", "a\0", "a b", "%2e", "a_b", "\u202e"])
def test_a_hostile_agent_name_is_refused(tmp_path: Path, agent: str) -> None:
    with app_client(tmp_path / "home") as client:
        for user in ("ada", None):
            params = {"agent": agent, **({} if user is None else {"user": user})}
            for answer in (
                client.get("/v1/facts", params=params),
                client.post("/v1/facts", params=params, json={"content": "x"}),
                client.get("/v1/events", params=params),
            ):
                assert answer.status_code == 400
                assert "agent name" in answer.json()["detail"]
    assert not (tmp_path / "home" / "users").exists()
    assert not (tmp_path / "home" / "agents").exists()


TRICKS = [
    "../../etc/passwd",
    "..%2f..%2fx",
    "%2e%2e/x",
    "/etc/passwd",
    "a\0b",
    "\u202e",
    "x" * 20_000,
    "fact_2",
    "*",
    "%",
]
WORST = (TRICKS[0], "a\0b", "x" * 20_000)


@pytest.mark.parametrize(
    "trick",
    [pytest.param(trick, id=trick[:12], marks=() if trick in WORST else pytest.mark.torture) for trick in TRICKS],
)
def test_path_tricks_in_every_parameter_stay_in_the_home(tmp_path: Path, trick: str) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    with app_client(outer / "home") as client:
        client.post("/v1/facts?user=ada", json={"content": "Runs"})
        document = client.get("/openapi.json").json()
        before = client.get("/v1/head?user=ada").json()
        sent = 0
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                bodies = next((r.body for r in ROUTES if r.template == (method.upper(), path)), None)
                for one in operation.get("parameters", ()):
                    if one["name"] in ("user", "if-none-match", "if-match", "idempotency-key", "last-event-id"):
                        continue
                    if path == "/v1/events":
                        continue
                    params = {
                        p["name"]: "1" for p in operation["parameters"] if p.get("required") and p["in"] == "query"
                    }
                    target = path
                    if one["in"] == "path":
                        target = path.replace("{" + one["name"] + "}", quote(trick, safe=""))
                    else:
                        target = path.replace("{fact_id}", "fact_2_0").replace("{section}", "user.workContext")
                        params[one["name"]] = trick
                    params["user"] = "ada"
                    if bodies is not None and method != "get" and one["in"] != "path":
                        continue  # a write that is right but for a query parameter: those are user and agent
                    answer = client.request(method, target, params=params, json=bodies)
                    assert answer.status_code in (200, 400, 404, 405, 409, 422), (
                        method,
                        target[:80],
                        answer.text[:300],
                    )
                    sent += 1
                    for shape in ("root:", "Traceback", str(tmp_path)):
                        assert shape not in answer.text
        assert sent > 20
        assert client.get("/v1/head?user=ada").json() == before
    assert [path.name for path in outer.iterdir()] == ["home"]
    assert {path.name for path in (outer / "home").iterdir()} <= {"users", "heat.json", "usage.json"}
