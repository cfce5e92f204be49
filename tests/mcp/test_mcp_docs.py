"""docs/how-to/mcp.md and the example: they name what there is, and print what the command prints."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from assistants import using
from mcp.client.stdio import StdioServerParameters
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.mcp.client_config import CLIENTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "mcp.md").read_text(encoding="utf-8")


def test_the_table_names_all_tools_and_those_that_change_memory(server):
    rows = re.findall(r"^\| `(memory_\w+)` \|.*\| (yes)? ?\|$", PAGE, re.MULTILINE)
    tools = using(server, lambda client: client.list_tools()).tools
    assert dict(rows) == {tool.name: "" if tool.annotations.read_only_hint else "yes" for tool in tools}


def test_the_page_names_all_resources_the_prompt_and_the_clients(server):
    async def listed(client):
        resources = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        prompts = (await client.list_prompts()).prompts
        return [
            *(one.uri for one in resources),
            *(one.uri_template for one in templates),
            *(one.name for one in prompts),
        ]

    assert [name for name in using(server, listed) if f"`{name}`" not in PAGE] == []
    assert [name for name in CLIENTS if f"--print-config {name}" not in PAGE] == []


@pytest.mark.parametrize("words", re.findall(r"^    \$ backstory (.*)$", PAGE, re.MULTILINE))
def test_the_page_shows_what_the_command_prints(words: str, monkeypatch):
    result = CliRunner().invoke(app, words.split())
    (shown,) = re.findall(rf"^    \$ backstory {re.escape(words)}\n((?:    .*\n)*)", PAGE, re.MULTILINE)
    printed = (result.stdout + result.stderr).replace(str(Path(sys.executable).parent), "/home/ada/venv/bin")
    assert re.sub("^    ", "", shown, flags=re.MULTILINE) == printed


@pytest.mark.slow
def test_the_example_starts_a_server(tmp_path):
    server = json.loads((ROOT / "examples" / "mcp.json").read_text(encoding="utf-8"))["mcpServers"]["backstory"]
    bin_folder = Path(sys.executable).parent
    assert server["command"] == "backstory"
    parameters = StdioServerParameters(
        command=str(bin_folder / server["command"]), args=server["args"], env={"BACKSTORY_HOME": str(tmp_path)}
    )
    added = using(parameters, lambda client: client.call_tool("memory_add", {"content": "Ada lives in Oslo"}))
    assert not added.is_error
    assert (tmp_path / "users" / "ada" / "ledger.jsonl").exists()
