"""Configuration of MCP clients: what to paste, and where, so that a client starts the server or connects to it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from backstory.ledger.core.errors import UsageError

Client: TypeAlias = Literal["claude", "cursor", "vscode", "codex"]
CLIENTS: tuple[Client, ...] = get_args(Client)
TOKEN = "BACKSTORY_TOKEN"  # noqa: S105 the name of a variable
_NAME = "backstory"
_SCHEME = re.compile(r"https?://[^\s/]+\S*")

_FILES: Mapping[Client, str] = {
    "claude": "Claude Code: .mcp.json of the project. Claude Desktop: Settings > Developer > Edit Config, which opens "
    "claude_desktop_config.json",
    "cursor": "~/.cursor/mcp.json, or .cursor/mcp.json of the project",
    "vscode": ".vscode/mcp.json of the project, or the command MCP: Open User Configuration",
    "codex": "~/.codex/config.toml",
}
_REMOTE_FILES: Mapping[Client, str] = {
    **_FILES,
    "claude": "Claude Code: .mcp.json of the project. Claude Desktop reads no address from a file",
}
_STARTED = "Restart the client, or reload its servers. It starts this command itself."
_TOKEN_FROM = f"Set {TOKEN} in the environment of the client: the token is not written into the file."
_ASKS = "VS Code asks for the token once and keeps it itself: it is not written into the file."


class ClientConfig(msgspec.Struct, frozen=True):
    """What to paste into the configuration of a client.

    `file` says where it goes, `format` is json or toml, and `note` says what else there is to do.
    """

    client: Client
    file: str
    format: Literal["json", "toml"]
    text: str
    note: str


def client_named(name: str) -> Client:
    """Return the client that a name means.

    Raises:
        UsageError: It means none.
    """
    for client in CLIENTS:
        if name == client:
            return client
    raise UsageError(f"{name!r} is no client that is known here: name one of {', '.join(CLIENTS)}")


def stdio_config(client: Client, command: Sequence[str]) -> ClientConfig:
    """Return the configuration of a client that starts the server itself.

    Args:
        client: The client.
        command: The command, with an absolute path, and its arguments.
    """
    first, *arguments = command
    if client == "codex":
        text = f"[mcp_servers.{_NAME}]\ncommand = {_toml(first)}\nargs = {_toml(arguments)}\n"
        return ClientConfig(client, _FILES[client], "toml", text, _STARTED)
    server: dict[str, object] = {"type": "stdio", "command": first, "args": arguments}
    return ClientConfig(client, _FILES[client], "json", _json(client, server), _STARTED)


def http_config(client: Client, url: str, user: str | None = None, agent: str | None = None) -> ClientConfig:
    """Return the configuration of a client that connects to a server.

    Args:
        client: The client.
        url: The address of the server's MCP endpoint, such as `https://memory.example.com/mcp`.
        user: The user to name in each request; None where the token has a single one.
        agent: The agent to name.

    Raises:
        UsageError: The address is none, or a name cannot stand in a header.
    """
    if not _SCHEME.fullmatch(url):
        raise UsageError(f"--url must be an address such as http://127.0.0.1:8765/mcp, got {url!r}")
    names = {"X-Backstory-User": user, "X-Backstory-Agent": agent}
    headers = {header: _header(header, name) for header, name in names.items() if name is not None}
    file, note = _REMOTE_FILES[client], _ASKS if client == "vscode" else _TOKEN_FROM
    if client == "codex":
        lines = [f"[mcp_servers.{_NAME}]", f"url = {_toml(url)}", f"bearer_token_env_var = {_toml(TOKEN)}"]
        if headers:
            pairs = ", ".join(f"{_toml(header)} = {_toml(name)}" for header, name in headers.items())
            lines.append(f"http_headers = {{ {pairs} }}")
        return ClientConfig(client, file, "toml", "\n".join((*lines, "")), note)
    variables = {"claude": f"${{{TOKEN}}}", "cursor": f"${{env:{TOKEN}}}", "vscode": "${input:backstory-token}"}
    authorization = {"Authorization": f"Bearer {variables[client]}"}
    server: dict[str, object] = {"type": "http", "url": url, "headers": authorization | headers}
    return ClientConfig(client, file, "json", _json(client, server), note)


def _json(client: Client, server: dict[str, object]) -> str:
    if client != "vscode":
        if client == "cursor":
            # It finds the transport by the other keys.
            server.pop("type")
        whole: dict[str, object] = {"mcpServers": {_NAME: server}}
    else:
        whole = {"servers": {_NAME: server}}
        if "url" in server:
            asked = {"type": "promptString", "id": "backstory-token", "description": "Token of the Backstory server"}
            whole = {"inputs": [asked | {"password": True}], **whole}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _toml(value: str | Sequence[str]) -> str:
    # A basic string of TOML escapes as JSON does, and has to escape this one as well.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _header(header: str, name: str) -> str:
    if not name or not name.isascii() or not name.isprintable() or name != name.strip():
        raise UsageError(
            f"{header} would be {name!r}, which cannot stand in a header: use a token that covers this user alone, and "
            "leave --user out"
        )
    return name
