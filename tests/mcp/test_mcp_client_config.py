"""`backstory mcp --print-config`: what each client takes, with the command and the scope of this invocation."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.mcp.client_config import TOKEN

URL = "https://memory.example.com/mcp"


def printed(*words: object, code: int = 0, env: dict[str, str] | None = None):
    result = CliRunner().invoke(app, [str(word) for word in words], env=env)
    assert result.exit_code == code, result.output
    return result


def server_in(client: str, text: str):
    if client == "codex":
        return tomllib.loads(text)["mcp_servers"]["backstory"]
    whole = json.loads(text)
    return whole["servers" if client == "vscode" else "mcpServers"]["backstory"]


CLIENTS = ("claude", "cursor", "vscode", "codex")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_command_is_absolute_and_names_the_memory(tmp_path, monkeypatch, client):
    monkeypatch.chdir(tmp_path)
    result = printed("--home", "ledger", "--user", 'a"d\\a é', "mcp", "--print-config", client)
    server = server_in(client, result.stdout)
    script = Path(sys.executable).with_name("backstory")
    assert server["command"] == str(script)
    assert script.is_file()
    assert server["args"] == ["--home", str(tmp_path / "ledger"), "--user", 'a"d\\a é', "mcp"]
    assert "paste it into" in result.stderr


def test_a_home_and_names_of_the_environment_are_written_out(tmp_path):
    env = {"BACKSTORY_HOME": str(tmp_path / "h"), "BACKSTORY_USER": "ada", "BACKSTORY_AGENT": "lead"}
    server = server_in("claude", printed("mcp", "--print-config", "claude", env=env).stdout)
    assert server["args"] == ["--home", str(tmp_path / "h"), "--user", "ada", "--agent", "lead", "mcp"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_is_named_by_its_address_and_the_token_by_its_variable(client):
    result = printed("--user", "ada", "--agent", "lead", "mcp", "--print-config", client, "--url", URL)
    server = server_in(client, result.stdout)
    assert server["url"] == URL
    if client == "codex":
        assert server["bearer_token_env_var"] == TOKEN
        assert server["http_headers"] == {"X-Backstory-User": "ada", "X-Backstory-Agent": "lead"}
    else:
        token = {
            "claude": "${BACKSTORY_TOKEN}",
            "cursor": "${env:BACKSTORY_TOKEN}",
            "vscode": "${input:backstory-token}",
        }
        assert server["headers"] == {
            "Authorization": f"Bearer {token[client]}",
            "X-Backstory-User": "ada",
            "X-Backstory-Agent": "lead",
        }
    if client == "vscode":
        (asked,) = json.loads(result.stdout)["inputs"]
        assert (asked["id"], asked["password"]) == ("backstory-token", True)
    assert "token" in result.stderr


def test_json_gives_the_text_with_where_it_goes():
    shown = json.loads(printed("--json", "mcp", "--print-config", "codex").stdout)
    assert (shown["client"], shown["format"], shown["file"]) == ("codex", "toml", "~/.codex/config.toml")
    assert server_in("codex", shown["text"])["args"] == ["mcp"]


def test_neither_the_command_line_nor_a_configuration_loads_the_sdk():
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from backstory.cli.app import app\n"
        "assert CliRunner().invoke(app, ['mcp', '--print-config', 'claude']).exit_code == 0\n"
        "print(sorted({'mcp', 'fastapi', 'uvicorn', 'starlette', 'httpx2'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mcp", "--print-config", "emacs"), "claude, cursor, vscode, codex"),
        (("mcp", "--url", URL), "--print-config"),
        (("mcp", "--print-config", "claude", "--url", "memory.example.com"), "address"),
        (("--user", "æ", "mcp", "--print-config", "claude", "--url", URL), "X-Backstory-User"),
        (("--user", "a\r\nX-Evil: 1", "mcp", "--print-config", "claude", "--url", URL), "X-Backstory-User"),
        (("--agent", "no agent", "mcp", "--print-config", "claude"), "agent name"),
    ],
)
def test_what_cannot_be_configured_is_said_in_one_line(words, said):
    result = printed(*words, code=2)
    assert said in result.stderr
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)


def test_without_the_extra_the_verb_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("backstory.mcp.", "mcp."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = printed("mcp", code=2)
    assert "pip install 'backstory[mcp]'" in result.stderr
