"""`/mcp` over streamable HTTP: memories and rights of each token, and sessions that belong to one token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx2
import mcp_types
import pytest
import uvicorn
from assistants import ERAS, Person, text_of
from fakes import PATIENCE
from fastapi import FastAPI
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from starlette.routing import Route

from backstory import Backstory
from backstory.http.access.callers import LOCAL, Caller, Right
from backstory.http.mcp.endpoint import McpEndpoint

T = TypeVar("T")

ADA = "ada"
CALLERS = {
    "ada": Caller("laptop", Right.WRITE, frozenset({"ada"})),
    "reads": Caller("viewer", Right.READ, frozenset({"ada"})),
    "both": Caller("family", Right.WRITE, frozenset({"ada", "bob"})),
    "twin": Caller("laptop", Right.WRITE, frozenset({"ada"})),
    "all": Caller("admin", Right.ERASE),
    "": LOCAL,
}


class _Callers:
    """Stands for the server's own middleware: it knows the caller of each request."""

    def __init__(self, app) -> None:
        self._app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
            scope.setdefault("state", {})["caller"] = CALLERS.get(token)
        await self._app(scope, receive, send)


class _Ready(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        self.ready.set()


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[Backstory]:
    with Backstory.open(tmp_path_factory.mktemp("http"), background=False) as bs:
        yield bs


@pytest.fixture(scope="module")
def url(home: Backstory) -> Iterator[str]:
    endpoint = McpEndpoint(home, max_sessions=20)

    @asynccontextmanager
    async def lifespan(_: FastAPI):
        async with endpoint.running():
            yield

    app = FastAPI(lifespan=lifespan)
    app.router.routes.append(Route("/mcp", endpoint=endpoint))
    app.add_middleware(_Callers)
    config = uvicorn.Config(app, port=0, log_level="warning", ws="none", timeout_graceful_shutdown=1)
    server = _Ready(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.ready.wait(PATIENCE)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join(PATIENCE)
    assert not thread.is_alive()


def using(
    url: str,
    work: Callable[[Client], Awaitable[T]],
    token: str = ADA,
    *,
    era: str = ERAS[0],
    person: Person | None = None,
    **names: str | bytes,
) -> T:
    headers = {f"X-Backstory-{name.capitalize()}".encode(): _bytes(value) for name, value in names.items()}
    headers[b"Authorization"] = f"Bearer {token}".encode()

    async def run() -> T:
        async with httpx2.AsyncClient(headers=list(headers.items()), timeout=PATIENCE) as http:
            transport = streamable_http_client(url, http_client=http)
            info = mcp_types.Implementation(name="tester", version="1")
            async with Client(transport, mode=era, elicitation_callback=person, client_info=info) as client:
                return await work(client)

    return asyncio.run(run())


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def result_of(url: str, tool: str, token: str = ADA, *, names: dict[str, str | bytes] | None = None, **arguments):
    return using(url, lambda client: client.call_tool(tool, arguments), token, **(names or {}))


@pytest.mark.parametrize("era", ERAS)
def test_the_sdks_client_remembers_and_undoes_over_http(url, home, era):
    async def work(client):
        added = await client.call_tool("memory_add", {"content": f"Ada lives in Oslo in the year {era}"})
        undone = await client.call_tool("memory_revert", {"seq": added.structured_content["commit"]})
        return added, undone, await client.read_resource("memory://document"), await client.list_prompts()

    person = Person()
    added, undone, document, prompts = using(url, work, era=era, person=person)
    assert (undone.structured_content["status"], len(person.asked)) == ("reverted", 1)
    assert added.structured_content["fact_id"] not in document.contents[0].text
    assert [prompt.name for prompt in prompts.prompts] == ["what_do_you_remember"]
    actors = [entry.cause.actor for entry in home.memory("ada").log(limit=2)]
    assert actors == ["mcp:tester with token laptop, and the person agreed", "mcp:tester with token laptop"]


@pytest.mark.parametrize("era", ERAS)
def test_a_token_sees_its_own_users_alone(url, home, era):
    home.memory("bob").add_fact(f"Bob keeps bees, says the test of {era}")

    async def searches(client):
        return await client.call_tool("memory_search", {"query": "bees"})

    async def reads(client):
        with pytest.raises(MCPError) as refused:
            await client.read_resource("memory://document")
        return refused.value.error.message

    found = using(url, searches, "both", era=era, user="bob")
    assert found.structured_content["results"][0]["content"].startswith("Bob keeps bees")
    assert using(url, searches, "ada", era=era).structured_content["count"] == 0
    for token, names in (("ada", {"user": "bob"}), ("both", {}), ("both", {"user": "eve"})):
        refused = using(url, searches, token, era=era, **names)
        assert refused.is_error
        assert "there is no memory of" in text_of(refused)
        assert "there is no memory of" in using(url, reads, token, era=era, **names)


def test_a_token_that_may_only_read_changes_nothing(url, home):
    head = home.memory("ada").head()
    changes = {
        "memory_add": {"content": "x"},
        "memory_update": {"fact_id": "fact_2_0", "content": "x"},
        "memory_delete": {"fact_id": "fact_2_0"},
        "memory_revert": {"seq": max(head.seq, 2)},
    }
    for tool, arguments in changes.items():
        refused = result_of(url, tool, "reads", **arguments)
        assert refused.is_error
        assert "right to write" in text_of(refused)
    assert not result_of(url, "memory_search", "reads", query="x").is_error
    assert home.memory("ada").head() == head


def test_the_agent_of_a_header_has_a_memory_of_its_own(url, home):
    result_of(url, "memory_add", names={"agent": "lead"}, content="Ada likes short answers")
    assert [fact.content for fact in home.memory("ada", "lead").facts()] == ["Ada likes short answers"]
    assert "agent name" in text_of(result_of(url, "memory_search", names={"agent": "../x"}, query="x"))


@pytest.mark.parametrize("user", ["../../etc/passwd", "a/b", ".", "嗨 Ådne", "a" * 999, "user\twith tab"])
def test_a_hostile_user_of_a_header_is_a_name_and_never_a_path(url, home, user):
    added = result_of(url, "memory_add", "all", names={"user": user}, content="Somebody likes tea")
    assert not added.is_error, text_of(added)
    assert [fact.content for fact in home.memory(user).facts()] == ["Somebody likes tea"]
    assert not (home.home / "memory.json").exists()


@pytest.mark.parametrize(
    ("user", "said"), [(b"", "empty"), (b"\xff\xfe", "UTF-8"), ("a" * 1001, "1000"), ("bob", "no memory of")]
)
def test_a_user_of_a_header_that_is_no_name_is_refused(url, user, said):
    refused = result_of(url, "memory_add", names={"user": user}, content="x")
    assert refused.is_error
    assert said in text_of(refused).replace("1,000", "1000")


def test_a_user_that_is_named_twice_is_refused(url):
    async def run():
        headers = [("Authorization", "Bearer all"), ("X-Backstory-User", "ada"), ("X-Backstory-User", "bob")]
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return await client.call_tool("memory_search", {"query": "x"})

    refused = asyncio.run(run())
    assert refused.is_error
    assert "2 times" in text_of(refused)


# Sessions.

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def message(method: str, number: int = 1, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def begun(url: str, token: str) -> str:
    """Begin a session of the older protocol; returns its id."""
    first = message(
        "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "raw", "version": "1"}
    )
    answer = httpx2.post(url, json=first, headers={**HEADERS, "Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    session = answer.headers["mcp-session-id"]
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert sent(url, session, token, ready).status_code == 202
    return session


def sent(url: str, session: str, token: str, body: object, method: str = "POST") -> httpx2.Response:
    headers = {**HEADERS, "Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-06-18"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return httpx2.request(method, url, json=body, headers=headers, timeout=PATIENCE)


@pytest.mark.parametrize("other", ["both", "all", "reads", "twin"])
def test_a_session_is_of_no_use_to_another_token(url, other):
    session = begun(url, "ada")
    # The twin has the same name, right and user, and is another token all the same.
    for method in ("POST", "GET", "DELETE"):
        answer = sent(url, session, other, message("tools/list", 2) if method == "POST" else None, method)
        assert answer.status_code == 404, method
    assert sent(url, session, "ada", message("tools/list", 3)).status_code == 200
    assert sent(url, session, "ada", None, "DELETE").status_code == 200
    assert sent(url, session, "ada", message("tools/list", 4)).status_code == 404


def test_a_session_with_a_token_is_of_no_use_without_one(url):
    session = begun(url, "ada")
    assert sent(url, session, "", message("tools/list", 2)).status_code == 404


def test_a_question_of_one_token_cannot_be_answered_with_another(url, home):
    """In today's protocol the state of a question goes over the client; it is sealed for the token."""
    memory = home.memory("ada")
    memory.add_fact("Ada has a parrot")
    seq = memory.head().seq
    meta = {
        "io.modelcontextprotocol/protocolVersion": ERAS[0],
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }

    def post(token: str, **more: object):
        body = message("tools/call", name="memory_revert", arguments={"seq": seq}, _meta=meta, **more)
        headers = {
            **HEADERS,
            "Authorization": f"Bearer {token}",
            "Mcp-Protocol-Version": ERAS[0],
            "Mcp-Method": "tools/call",
            "Mcp-Name": "memory_revert",
            "X-Backstory-User": "ada",
        }
        answer = httpx2.post(url, json=body, headers=headers, timeout=PATIENCE)
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            (text,) = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
        return httpx2.Response(answer.status_code, text=text).json()

    asked = post("ada")["result"]
    assert asked["resultType"] == "input_required"
    (key,) = asked["inputRequests"]
    answered = {
        "inputResponses": {key: {"action": "accept", "content": {"undo": True}}},
        "requestState": asked["requestState"],
    }
    assert "error" in post("twin", **answered)
    assert memory.head().seq == seq
    assert post("ada", **answered)["result"]["structuredContent"]["status"] == "reverted"


def test_without_a_caller_nothing_is_answered(url):
    answer = httpx2.post(
        url, json=message("tools/list"), headers={**HEADERS, "Authorization": "Bearer nobody"}, timeout=PATIENCE
    )
    assert answer.status_code == 401


def test_hosts_and_origins_are_left_to_the_server_in_front(url):
    async def run():
        headers = {"Authorization": "Bearer ada", "Host": "memory.example.com", "Origin": "https://app.example.com"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return await client.list_tools()

    assert asyncio.run(run()).tools


def test_a_request_that_is_too_long_is_refused(url):
    body = message("tools/call", name="memory_add", arguments={"content": "x" * (5 << 20)})
    answer = httpx2.post(url, json=body, headers={**HEADERS, "Authorization": "Bearer ada"}, timeout=PATIENCE)
    assert answer.status_code == 413


def test_sessions_are_limited(url):
    sessions = []
    first = message(
        "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "raw", "version": "1"}
    )
    for _ in range(21):
        answer = httpx2.post(url, json=first, headers={**HEADERS, "Authorization": "Bearer ada"}, timeout=PATIENCE)
        if answer.status_code == 503:
            break
        sessions.append(answer.headers["mcp-session-id"])
    else:
        pytest.fail("no session was refused")
    for session in sessions:
        assert sent(url, session, "ada", None, "DELETE").status_code == 200
