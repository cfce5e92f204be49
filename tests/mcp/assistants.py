"""Assistants to test on: the SDK's own client on a server in this process, and what it answers to questions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import mcp_types
from mcp import Client
from mcp.client.session import ElicitationFnT
from mcp.server.mcpserver import MCPServer

T = TypeVar("T")

ERAS = ("2026-07-28", "legacy")
"""The protocol of today, where a question is the answer to a call, and the older one, where it is a call back."""


class Person:
    """Answers the questions of a client: `asked` holds them. Before an answer it does `meanwhile`."""

    def __init__(
        self, action: str = "accept", *, undo: bool = True, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        self.asked: list[str] = []
        self._action, self._undo, self._meanwhile = action, undo, meanwhile

    async def __call__(self, _context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        self.asked.append(params.message)
        self._meanwhile()
        content = {"undo": self._undo} if self._action == "accept" else None
        return mcp_types.ElicitResult(action=self._action, content=content)


def using(
    server: object,
    work: Callable[[Client], Awaitable[T]],
    *,
    era: str = ERAS[0],
    person: ElicitationFnT | None = None,
    name: str = "tester",
) -> T:
    """Connect the SDK's client to a server, work with it, and disconnect."""

    async def run() -> T:
        info = mcp_types.Implementation(name=name, version="1")
        async with Client(server, mode=era, elicitation_callback=person, client_info=info) as client:  # type: ignore[arg-type]
            return await work(client)

    return asyncio.run(run())


def call(server: MCPServer, tool: str, **arguments: object) -> dict[str, object]:
    """Call a tool that succeeds; returns its structured content."""
    result = result_of(server, tool, **arguments)
    assert not result.is_error, result.content
    return result.structured_content


def error(server: MCPServer, tool: str, **arguments: object) -> str:
    """Call a tool that fails; returns what it says."""
    result = result_of(server, tool, **arguments)
    assert result.is_error
    assert result.structured_content is None
    return text_of(result)


def result_of(
    server: object, tool: str, *, era: str = ERAS[0], person: Person | None = None, **arguments: object
) -> mcp_types.CallToolResult:
    return using(server, lambda client: client.call_tool(tool, arguments), era=era, person=person)


def text_of(result: mcp_types.CallToolResult) -> str:
    (only,) = result.content
    return only.text
