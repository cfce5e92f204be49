"""The protocol's inspector, written with another SDK, reads what the server offers and calls a tool.

`npm ci --ignore-scripts` in tests/mcp/js installs it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sizes import cannot

pytestmark = pytest.mark.torture  # the client of another, for which npm fetches some hundred packages

PATIENCE = 90


@pytest.fixture
def inspect(tmp_path: Path):
    inspector = Path(__file__).parent / "js" / "node_modules" / ".bin" / "mcp-inspector"
    if shutil.which("node") is None or not inspector.exists():
        cannot("node or the inspector is missing: run npm ci --ignore-scripts in tests/mcp/js")
    server = {"command": sys.executable, "args": ["-m", "backstory.cli", "--home", str(tmp_path / "home"), "mcp"]}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"backstory": server}}))

    def run(*words: str):
        done = subprocess.run(
            [str(inspector), "--cli", "--config", str(config), "--server", "backstory", *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_it_reads_what_is_offered_and_calls_a_tool(inspect):
    tools = inspect("--method", "tools/list")["tools"]
    assert len(tools) == 9
    assert all(tool["outputSchema"] and tool["annotations"] for tool in tools)
    assert len(inspect("--method", "resources/list")["resources"]) == 2
    assert len(inspect("--method", "resources/templates/list")["resourceTemplates"]) == 2
    assert len(inspect("--method", "prompts/list")["prompts"]) == 1
    call = ("--method", "tools/call", "--tool-name")
    added = inspect(*call, "memory_add", "--tool-arg", "content=Ada lives in Oslo")
    assert added["structuredContent"]["fact_id"] == "fact_2_0"
    found = inspect(*call, "memory_search", "--tool-arg", "query=Oslo")
    assert found["structuredContent"]["count"] == 1
    assert (
        "Ada lives in Oslo"
        in inspect("--method", "resources/read", "--uri", "memory://document")["contents"][0]["text"]
    )
