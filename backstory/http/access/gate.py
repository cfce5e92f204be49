"""Gate of the server: checks host and origin of each request, and finds out who the caller is.

A server without tokens answers on this machine only. Then the Host header must name this machine: otherwise a web page
could read memories through a name of its own that resolves to 127.0.0.1 (DNS rebinding). A request that a browser sends
for a page of another origin is refused (cross-site request forgery), unless that origin is allowed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from backstory.http.access.callers import LOCAL, Caller
from backstory.http.access.refusals import refusal
from backstory.http.access.tokens import Tokens

__all__ = ["PROXY_TOKEN", "Gate", "is_loopback"]

PROXY_TOKEN = b"x-backstory-token"
"""The header of the token for the proxy, where `Authorization` is the caller's key for the upstream."""

_PUBLIC = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/docs", "/docs/begin.js"})
_PUBLIC_FOLDERS = ("/static/", "/page/")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:\s,/@]+))(?::\d{0,5})?", re.ASCII)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's alone."""
    if host.casefold().rstrip(".") == "localhost" or host.casefold().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Gate:
    """ASGI middleware that lets in whom the tokens allow.

    It sets `state["caller"]`, and `state["admitted"]`, a function that says whether that caller would still be let in:
    an event stream stays open for hours, and its token may be revoked by then.

    Args:
        app: The server.
        tokens: The tokens that count.
        local: Whether the server listens on this machine only. Without tokens it is open then, and to all who can
            reach this machine's loopback interface.
        user: The user of requests that name none, where their token covers that user.
        hosts: Further names that the Host header may have; others are refused if any are given.
        origins: Further origins whose pages may send requests, such as `https://app.example`.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        *,
        local: bool,
        user: str | None = None,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._local = local
        self._user = user
        self._hosts = frozenset(map(_host_name, hosts))
        self._origins = frozenset(origin.casefold().rstrip("/") for origin in origins)
        self._had_tokens = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, value)
        if (garbled := _garbled(scope)) is not None:
            await refusal(path, 400, garbled)(scope, receive, send)
            return
        if (wrong := self._wrong_host(scope) or self._wrong_origin(headers)) is not None:
            await refusal(path, 403, wrong)(scope, receive, send)
            return
        caller = self._caller(path, headers)
        if caller is None and not self._is_public(path):
            header = "X-Backstory-Token" if path.startswith("/proxy/") else "Authorization: Bearer"
            missing = refusal(
                path,
                401,
                f"this server needs a token, in the header {header}; `backstory token add` makes one",
                {"WWW-Authenticate": 'Bearer realm="backstory"'},
            )
            await missing(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["caller"] = caller
        if caller is not None and self._user is not None:
            state["caller"] = msgspec.structs.replace(caller, default=self._user)
        state["admitted"] = lambda: self._caller(path, headers) == caller
        await self._app(scope, receive, send)

    def _is_open(self) -> bool:
        # Revoking the last token must not open a server that was closed.
        self._had_tokens = self._had_tokens or bool(self._tokens)
        return self._local and not self._had_tokens

    def _is_public(self, path: str) -> bool:
        return path in _PUBLIC or path.startswith(_PUBLIC_FOLDERS)

    def _caller(self, path: str, headers: dict[bytes, bytes]) -> Caller | None:
        if self._is_open():
            return LOCAL
        if path.startswith("/proxy/"):
            return self._tokens.caller(headers.get(PROXY_TOKEN, b"").decode("latin-1").strip())
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        return self._tokens.caller(token.strip()) if scheme.casefold() == "bearer" else None

    def _wrong_host(self, scope: Scope) -> str | None:
        stated = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(stated) > 1:
            return f"the header Host is sent {len(stated)} times: send it once"
        name = _host_name(stated[0]) if stated else ""
        if name and (name in self._hosts or (self._local and is_loopback(name))):
            return None
        if not self._hosts and not self._is_open():
            return None
        host = stated[0][:100] if stated else ""
        return f"this server does not answer for the host {host!r}: start it with --allow-host to allow it"

    def _wrong_origin(self, headers: dict[bytes, bytes]) -> str | None:
        origin = headers.get(b"origin")
        if origin is None:
            return None
        stated = origin.decode("latin-1").casefold().rstrip("/")
        own = headers.get(b"host", b"").decode("latin-1").casefold()
        if stated in self._origins or (own and stated.partition("://")[2] == own):
            return None
        return f"pages of {stated[:100]!r} may not send requests here: start the server with --allow-origin to allow it"


def _host_name(host: str) -> str:
    """Return the name in a Host header, without port and final dot; "" if it is none."""
    found = _HOST.fullmatch(host.casefold())
    return "" if found is None else (found[1] or found[2]).removesuffix(".")


def _garbled(scope: Scope) -> str | None:
    """Say that a path or query is not UTF-8. Decoded with replacements, two such names would be the same one."""
    for part, what in ((scope.get("raw_path", b""), "path"), (scope["query_string"], "query")):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            return f"the {what} of this request is not UTF-8: encode it so, and each byte that is no letter as %XX"
    return None
