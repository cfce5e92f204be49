"""Making an app: what does not depend on its home is made once a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mcp.server.mcpserver.tools import Tool
from pydantic import TypeAdapter
from serving import app_client
from starlette.testclient import TestClient

NO_SESSION = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
"""A request to `/mcp` that is refused; the MCP server is made for it."""


def ask_over_rest(client: TestClient) -> None:
    assert client.get("/v1/facts", params={"user": "ada"}).status_code == 200
    assert client.post("/v1/facts", params={"user": "ada"}, json={"content": "Runs"}).status_code == 201
    assert client.get("/api/memory").status_code == 200


def ask_over_mcp(client: TestClient) -> None:
    assert client.post("/mcp", json=NO_SESSION).status_code == 400


def not_again(*_: object, **__: object) -> None:
    raise AssertionError("this is made once a process")


def test_a_second_app_examines_no_route_and_makes_no_document_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app_client(tmp_path / "first") as first:
        ask_over_rest(first)
        document = first.app.openapi()  # type: ignore[attr-defined]
    monkeypatch.setattr(TypeAdapter, "__init__", not_again)
    with app_client(tmp_path / "second") as second:
        ask_over_rest(second)
        assert second.app.openapi() is document  # type: ignore[attr-defined]


def test_every_schema_is_titled_by_its_name_and_no_two_are_alike(tmp_path: Path) -> None:
    with app_client(tmp_path / "home") as client:
        schemas = client.app.openapi()["components"]["schemas"]  # type: ignore[attr-defined]
    # Generators of clients name a class after the title, and leave out what has the name of another.
    titles = {name: schema.get("title", name) for name, schema in schemas.items()}
    assert titles == {name: name for name in schemas}
    assert [name for name in schemas if not name.isidentifier()] == []
    assert "StreamCheckProblem" in schemas


def test_a_second_app_makes_no_tool_of_mcp_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with app_client(tmp_path / "first") as first:
        ask_over_mcp(first)
    monkeypatch.setattr(Tool, "from_function", not_again)
    with app_client(tmp_path / "second") as second:
        ask_over_mcp(second)


def test_a_server_does_not_load_the_sdk_of_mcp_before_it_is_asked_for(tmp_path: Path) -> None:
    program = (
        "import functools, sys\n"
        "from backstory.home import Backstory\n"
        "from backstory.http.app import create_app\n"
        "app = create_app(functools.partial(Backstory.open, sys.argv[1]), environ={})\n"
        "assert any(getattr(route, 'path', '') == '/mcp' for route in app.routes)\n"
        "app.state.home.close()\n"
        "sys.exit('mcp' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "home"], check=True, timeout=60)
