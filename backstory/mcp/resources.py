"""Resources: the current memory, its log, and single facts and commits."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import orjson
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import Resource
from pydantic import ConfigDict, Field

from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.sanitize import safe_json
from backstory.mcp.answering import Answering
from backstory.mcp.tools.history import history_of
from backstory.memory import MemoryHandle

_JSON = "application/json"
_NEWEST = 50


class _MemoryResource(Resource):
    """A resource that is read from the memory of the request."""

    answering: Answering = Field(exclude=True)
    show: Callable[[MemoryHandle], bytes] = Field(exclude=True)
    model_config = ConfigDict(arbitrary_types_allowed=True)

    async def read(self) -> str:
        return (await self.answering.read(self.show)).decode()


def add_resources(server: MCPServer, answering: Answering) -> None:
    """Add `memory://document`, `memory://context`, `memory://log` and the templates for one fact and one commit."""
    budget = answering.budget
    server.add_resource(
        _MemoryResource(
            uri="memory://document",
            name="memory",
            title="Current memory",
            description="The whole current memory as a document: sections about the user, and facts.",
            mime_type=_JSON,
            answering=answering,
            show=lambda memory: msgspec.json.format(msgspec.json.encode(memory.document()), indent=2),
        )
    )
    server.add_resource(
        _MemoryResource(
            uri="memory://context",
            name="context",
            title="Memory for a system message",
            description="The part of the context block that stands: the same text while memory is the same.",
            mime_type="text/plain",
            answering=answering,
            show=lambda memory: memory.context("").standing.encode(),
        )
    )
    server.add_resource(
        _MemoryResource(
            uri="memory://log",
            name="log",
            title="Newest changes of memory",
            description=f"The newest changes of memory, {_NEWEST} at most: when, by whom, and what.",
            mime_type=_JSON,
            answering=answering,
            show=lambda memory: orjson.dumps(history_of(budget, memory, _NEWEST).plain, option=orjson.OPT_INDENT_2),
        )
    )

    @server.resource(
        "memory://fact/{fact_id}",
        name="fact",
        title="One fact and its origin",
        description="Where a fact, live or gone, comes from: the words it was learned from, and what became of it.",
        mime_type=_JSON,
    )
    async def fact(fact_id: str) -> str:
        return await answering.read(lambda memory: _shown(memory.why(fact_id)))

    @server.resource(
        "memory://log/{seq}",
        name="commit",
        title="One change of memory",
        description="One commit of the log with all of its events and its cause.",
        mime_type=_JSON,
    )
    async def commit(seq: str) -> str:
        return await answering.read(lambda memory: _commit(memory, seq))


def _commit(memory: MemoryHandle, seq: str) -> str:
    wanted = memory.seq_of(seq)
    found = memory.log(limit=1, before=wanted + 1)
    if not found or found[0].seq != wanted:
        raise NotFoundError(f"the memory has no commit {wanted}: see memory://log for those it has")
    return _shown(found[0])


def _shown(value: object) -> str:
    # A turn may have a million characters, too many for a resource.
    plain = safe_json(msgspec.to_builtins(value))
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode()
