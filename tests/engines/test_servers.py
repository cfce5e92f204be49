"""The server, MCP, the middleware and DeerFlow's manager on every engine; two servers see each other's commits."""

from __future__ import annotations

from pathlib import Path

import pytest
from assistants import call
from fakes import PATIENCE, FakeClock, ScriptedModel, exchange, open_home, reply
from homes import ENGINES, HomesOn
from hosts import ChatModel, Host, learned, learning, talk
from scripted_agents import Scripted, agent, ask, said
from serving import Stream, app_client, process_server, thread_server
from sizes import LONG

from backstory.ledger.engines.port import Seal
from backstory.mcp.answering import Opened
from backstory.mcp.server import memory_server

ADA = {"user": "ada"}


def test_a_server_learns_explains_undoes_and_forgets(engine: HomesOn, tmp_path: Path) -> None:
    model = ScriptedModel(reply("User writes Rust", "The PIN is 4711"), reply("User writes Go", remove=("fact_2_0",)))
    with app_client(tmp_path / "home", model=model, **engine.settings) as client:
        for thread in ("t1", "t2"):
            body = {"thread": thread, "messages": exchange(thread)}
            assert client.post("/v1/record", params=ADA, json=body).status_code == 200
            assert client.post("/v1/extract", params=ADA, json={}).status_code == 200
        assert client.get("/v1/facts/fact_2_0/why", params=ADA).json()["live"] is False
        assert client.post("/v1/revert", params=ADA, json={"seq": 3}).status_code == 200
        assert client.get("/v1/facts/fact_2_0/why", params=ADA).json()["live"] is True
        assert client.post("/v1/forget", params=ADA, json={"matching": "4711"}).status_code == 200
        assert client.get("/v1/verify", params=ADA).json()["ok"] is True
        assert client.post("/v1/what-if", params=ADA, json={"policy": {"max_facts": 10}}).status_code == 200
        assert [fact["content"] for fact in client.get("/v1/facts", params=ADA).json()["items"]] == ["User writes Rust"]
        tag = client.get("/v1/facts", params=ADA).headers["etag"]
        unchanged = client.get("/v1/facts", params=ADA, headers={"If-None-Match": tag})
        assert unchanged.status_code == 304
        with open_home(tmp_path / "other", clock=FakeClock(), **engine.settings) as other:
            other.memory("ada").add_fact("from elsewhere")
        changed = client.get("/v1/facts", params=ADA, headers={"If-None-Match": tag})
        assert [fact["content"] for fact in changed.json()["items"]] == ["User writes Rust", "from elsewhere"]


# Two servers build their schemas at the same time, and what FastAPI silences this one with is not for threads.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.UnsupportedFieldAttributeWarning")
@pytest.mark.parametrize("engine", ENGINES if LONG else ["postgres", "nats"], indirect=True)
def test_two_servers_see_each_others_commits(engine: HomesOn, tmp_path: Path) -> None:
    with (
        thread_server(tmp_path / "one", **engine.settings) as one,
        thread_server(tmp_path / "two", **engine.settings) as two,
        Stream(two, "/v1/events?user=ada&since=0") as news,
    ):
        for number in range(3):
            assert one.post("/v1/facts", {"content": f"one {number}"}, params=ADA).status_code == 201
            assert two.post("/v1/facts", {"content": f"two {number}"}, params=ADA).status_code == 201
            found = [server.get("/v1/facts", params=ADA).json()["items"] for server in (one, two)]
            assert found[0] == found[1]
            assert len(found[0]) == 2 * number + 2
        news.wait_for(b'"seq":7')


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES if LONG else ["postgres"], indirect=True)
def test_a_server_needs_nothing_but_the_setting(engine: HomesOn, tmp_path: Path) -> None:
    with process_server(tmp_path / "home", environ=engine.environ) as server:
        assert server.post("/v1/facts", {"content": "User drinks tea"}, params=ADA).status_code == 201
        assert server.get("/").status_code == 200
        assert server.get("/readyz").status_code == 200
        assert server.end()[0] == 0
    with open_home(tmp_path / "other", **engine.settings) as bs:
        assert [fact.content for fact in bs.memory("ada").facts()] == ["User drinks tea"]


def test_an_assistant_over_mcp_remembers(engine: HomesOn, tmp_path: Path) -> None:
    with open_home(tmp_path / "home", **engine.settings) as bs:
        server = memory_server(bs, lambda _request, _need: Opened(bs.memory("ada")))
        call(server, "memory_add", content="User drinks tea")
        assert call(server, "memory_search", query="tea")["count"] == 1
        assert [fact.content for fact in bs.memory("ada").facts()] == ["User drinks tea"]


def test_an_agent_with_the_middleware_is_given_what_another_machine_learned(engine: HomesOn, tmp_path: Path) -> None:
    with (
        open_home(tmp_path / "one", **engine.settings) as one,
        open_home(tmp_path / "two", ScriptedModel(reply("User drinks tea")), **engine.settings) as two,
    ):
        model = Scripted()
        mine = agent(one, model)
        assert ask(mine, "I like tea") == "echo: I like tea"
        assert one.outbox.flush(PATIENCE)
        assert said(two) == ["user: I like tea", "assistant: echo: I like tea"]
        assert two.memory("ada").extract().updates == 1
        ask(mine, "What do I like?")
        assert "User drinks tea" in model.systems[-1]


def test_deerflows_manager_learns(engine: HomesOn, tmp_path: Path) -> None:
    host = Host(tmp_path / "deer")
    try:
        manager = host.manager(ChatModel(learning("User drinks tea")), **engine.settings)
        manager.add("t1", talk(), user_id="ada")
        assert learned(manager) == ["User drinks tea"]
    finally:
        host.close()


def test_a_server_whose_store_takes_no_commits_is_not_ready(engine: HomesOn, tmp_path: Path) -> None:
    with app_client(tmp_path / "home", **engine.settings) as client:
        assert client.get("/readyz").json() == {"ok": True}
        store = client.app.state.home.store
        store.set_seal(Seal("moved", "elsewhere:"))
        refused = client.get("/readyz")
        assert (refused.status_code, refused.json()["detail"]) == (503, "seal")
        store.set_seal(None)
        assert client.get("/readyz").status_code == 200
