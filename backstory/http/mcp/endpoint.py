"""MCP endpoint of the server: the ASGI app for `/mcp`, with the memories, rights and sessions of each token."""

from __future__ import annotations

import hashlib
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import msgspec
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from backstory.home import Backstory
from backstory.http.access.callers import AGENT_HEADER, USER_HEADER, Caller, Right, name_in
from backstory.ledger.core.errors import ForbiddenError
from backstory.mcp.answering import Need, Opened
from backstory.mcp.server import memory_server

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

__all__ = ["McpEndpoint"]

_BODY = 4 << 20
_SESSIONS = 1000
_RIGHTS = {"read": Right.READ, "write": Right.WRITE}


class McpEndpoint:
    """The ASGI app of one server's `/mcp`. A middleware in front of it puts the `Caller` into `request.state.caller`.

    The memory of a request is that of the headers `X-Backstory-User` and `X-Backstory-Agent`; a token of one user need
    not name that user. Rights are those of the request's own token, and a session is usable only with the token that
    began it. Hosts, origins and the size of a body are left to the server's own checks.

    Args:
        home: The home.
        max_body_bytes: The longest request that is read, in case nothing in front limits it.
        max_sessions: How many sessions may be open at once; one ends half an hour after its last request.
    """

    def __init__(self, home: Backstory, *, max_body_bytes: int = _BODY, max_sessions: int = _SESSIONS) -> None:
        self._home = home
        server = memory_server(home, self._open)
        # Its own app answers one path alone and is not needed: this only makes the manager of its sessions.
        server.streamable_http_app(
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=max_body_bytes,
            max_sessions=max_sessions,
        )
        self._sessions = server.session_manager
        self._bound = AuthContextMiddleware(self._sessions.handle_request)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the sessions while the server runs; for its lifespan, and once."""
        return self._sessions.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        caller = scope.get("state", {}).get("caller")
        if not isinstance(caller, Caller):
            await PlainTextResponse("no caller is known for this request", 401)(scope, receive, send)
            return
        owner = AuthenticatedUser(AccessToken(token="", client_id=_owner(caller, Request(scope)), scopes=[]))
        await self._bound({**scope, "user": owner}, receive, send)

    def _open(self, request: object, need: Need) -> Opened:
        caller = getattr(request.state, "caller", None) if isinstance(request, Request) else None
        if not isinstance(request, Request) or not isinstance(caller, Caller):
            raise ForbiddenError("no caller is known for this request: it did not come over the server")
        user, agent = name_in(request, USER_HEADER), name_in(request, AGENT_HEADER)
        return Opened(caller.memory(self._home, user, agent, _RIGHTS[need]), caller.name)


def _owner(caller: Caller, request: Request) -> str:
    """Return what a session is bound to: the caller, and the token itself, since callers may be called the same."""
    users = None if caller.users is None else sorted(caller.users)
    whole = (caller.name, int(caller.right), users, request.headers.getlist("authorization"))
    return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()
