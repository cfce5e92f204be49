"""Opening of the memory that a request is about, and the name under which its changes are recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from backstory.mcp.budget import name_of
from backstory.memory import MemoryHandle

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

_AGREED = ", and the person agreed"

Need: TypeAlias = Literal["read", "write"]
"""What a request does with the memory."""


class Opened(msgspec.Struct, frozen=True):
    """A memory, and the name of the token that a request came with, if it came with one."""

    memory: MemoryHandle
    token: str | None = None


Opens: TypeAlias = Callable[[object, Need], Opened]
"""Opens the memory of a request. It gets the transport's request, which is None over stdio, and may raise any error of
the tree."""

_answered: ContextVar[ServerRequestContext[Any, Any]] = ContextVar("backstory_mcp_request")


async def note_request(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Keep the request that is answered for `open_memory`, since the SDK gives it to tools but not to resources."""
    token = _answered.set(ctx)
    try:
        return await call_next(ctx)
    finally:
        _answered.reset(token)


def open_memory(opens: Opens, need: Need, *, agreed: bool = False) -> Opened:
    """Open the memory of the request that is answered.

    Args:
        opens: Opens it.
        need: What the request does with it.
        agreed: Whether the person agreed to the change; it is recorded.

    Returns:
        The memory, in the name of the client and its token. Its changes are a model's.
    """
    ctx = _answered.get()
    opened = opens(ctx.request, need)
    actor = actor_of(client_name(ctx), opened.token) + (_AGREED if agreed else "")
    return msgspec.structs.replace(opened, memory=opened.memory.by(actor, by_model=not agreed))


def client_name(ctx: ServerRequestContext[Any, Any]) -> str:
    """Return the name that a client gives itself, as one short line."""
    params = ctx.session.client_params
    return name_of(params.client_info.name) if params else ""


def actor_of(client: str, token: str | None) -> str:
    """Return the actor that commits record, such as `mcp:cursor with token laptop`."""
    return f"mcp:{client or 'unnamed client'}{f' with token {token}' if token else ''}"


def can_ask() -> bool:
    """Whether the client of the request can show a question to the person."""
    session = _answered.get().session
    elicitation = session.client_capabilities.elicitation if session.client_capabilities else None
    # Clients from before there were several modes declare an empty capability and mean forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)
