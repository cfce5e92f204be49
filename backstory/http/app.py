"""Server as an ASGI app: routes, access, limits and metrics around one open home."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstory.copies import LocalCopies
from backstory.home import Backstory
from backstory.http.access.gate import Gate
from backstory.http.access.tokens import FILE, TokenFile, Tokens
from backstory.http.deerflow import router as deerflow_router
from backstory.http.kept_answers import Answers, Repeating
from backstory.http.limits import Limiter, Limits, RequestKind
from backstory.http.mcp.deferred import Deferred
from backstory.http.metrics import Metrics, Timed
from backstory.http.news import News
from backstory.http.openapi.schemas import add_examples, add_refusals, components
from backstory.http.problems import Unexpected, answer_errors
from backstory.http.proxy import ANSWER_HEADERS, PROTOCOLS, Proxy
from backstory.http.routes import changing, events, explaining, home, reading, recording
from backstory.integrations.threads import run_in_thread
from backstory.page.serving import add_docs, add_page
from backstory.version import __version__

if TYPE_CHECKING:
    from backstory.http.mcp.endpoint import McpEndpoint

__all__ = ["HeadRequests", "OpensHome", "ServerOptions", "create_app"]

_log = logging.getLogger(__name__)

_LONG_THREADS = 64

OpensHome = Callable[..., Backstory]
"""Opens the home; gets `listeners` and `callbacks`, as `Backstory.open` does."""

_TITLE = "Backstory"
_DESCRIPTION = """\
Long-term memory for LLM agents, kept as a ledger that can be replayed, queried and undone.

- **Whose memory**: the parameters `user` and `agent` of each request. Without both it is the memory of all users.
- **Access**: `Authorization: Bearer TOKEN`. What a token does not cover is 404.
- **Caching**: reads have an `ETag`, made from the head of the log. Send it as `If-None-Match` to a read, and as
  `If-Match` to a write that must not overwrite what another has written: 412 means read again.
- **Repeating**: recording, and changing a fact, take an `Idempotency-Key`; a repeated request changes nothing.
- **Lists**: pass `next` on as `cursor`.
- **Errors** are `application/problem+json`; `detail` is the message that the command line gives.
"""


class ServerOptions(msgspec.Struct, frozen=True):
    """How a server answers.

    Attributes:
        local: Whether it listens on this machine only.
        user: The user of requests that name none; otherwise they are about the memory that all users share.
        hosts: Further names that the Host header may have.
        origins: Further origins whose pages may send requests.
        limits: Its limits.
        tokens: The file of tokens. Default: `tokens.json` in the home.
    """

    local: bool = True
    user: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    limits: Limits = Limits()
    tokens: TokenFile | None = None


def create_app(
    open_home: OpensHome, options: ServerOptions | None = None, *, environ: Mapping[str, str] = os.environ
) -> FastAPI:
    """Return the server as an ASGI app. It opens the home with its first request's lifespan, and closes it at the end.

    Args:
        open_home: Opens the home, for example `functools.partial(Backstory.open, "~/.backstory")`.
        options: How it answers.
        environ: The environment, which may hold tokens.

    Raises:
        BackstoryError: The home cannot be opened, or its tokens are damaged.
    """
    chosen = options or ServerOptions()
    metrics, news, answers = Metrics(), News(), Answers()
    bs = open_home(listeners=(metrics.on_commit, news.note, answers.note), callbacks=(metrics,))
    try:
        tokens = Tokens(chosen.tokens or TokenFile(bs.home / FILE), environ, _report)
    except BaseException:
        bs.close()
        raise

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        news.start()
        # For what may take long; the loop's own pool has a few threads only.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_LONG_THREADS, "backstory-long"))
        async with contextlib.AsyncExitStack() as parts:
            for part in app.state.parts:
                await parts.enter_async_context(part)
            copies = LocalCopies(bs)
            copies.start()
            try:
                yield
            finally:
                # It waits for a copy that is being written.
                await run_in_thread(copies.end, None)
        # Not in the threads of long requests, all of which may be busy.
        await run_in_thread(bs.close)

    app = FastAPI(
        title=_TITLE,
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.home, app.state.metrics, app.state.news, app.state.tokens = bs, metrics, news, tokens
    app.state.parts, app.state.removing = [], threading.Lock()
    app.state.answers = answers
    app.state.parts.append(answers.swept())
    app.router.routes.extend(_ROUTES)
    for protocol in PROTOCOLS:
        proxy = Proxy(bs, protocol, note=metrics.proxy)
        app.mount(protocol.path, proxy)
        app.state.parts.append(contextlib.aclosing(proxy))
    if find_spec("mcp") is not None:
        endpoint = Deferred(lambda: _mcp_endpoint(bs, chosen.limits))
        app.router.routes.append(Route("/mcp", endpoint=endpoint))
        app.state.parts.append(endpoint.running())
    add_docs(app)
    add_page(app)
    app.openapi = _document  # type: ignore[method-assign]
    answer_errors(app)
    # The last one is the outermost.
    app.add_middleware(Limiter, limits=chosen.limits, kind_of=_kind_of, over=metrics.over)
    # Outside the limiter: a kept answer is there at once, and takes nothing from other requests.
    app.add_middleware(Repeating, answers=answers)
    app.add_middleware(
        Gate, tokens=tokens, local=chosen.local, user=chosen.user, hosts=chosen.hosts, origins=chosen.origins
    )
    app.add_middleware(Unexpected)
    if chosen.origins:
        # Outside the gate: a browser asks without a token whether a page may send one, and shows it what is refused.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[origin.casefold().rstrip("/") for origin in chosen.origins],
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["ETag", "Retry-After", "Mcp-Session-Id", *ANSWER_HEADERS],
        )
    app.add_middleware(HeadRequests)
    app.add_middleware(Timed, metrics=metrics)
    return app


# The most frequent one first; `why` before the fact itself, whose id may hold a slash. They are the routers' own: to
# include a router is to examine each of its functions again, for each app and at its first request.
_ROUTES = tuple(
    route
    for router in (
        recording.router,
        explaining.router,
        events.router,
        reading.router,
        changing.router,
        home.router,
        home.unversioned,
        deerflow_router,
    )
    for route in router.routes
)

_FREE = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are answered at once: probes and metrics matter most when all places are taken."""

_OPEN = frozenset({"/v1/events", "/v1/extract", "/v1/flush", "/v1/retry", "/v1/verify", "/v1/what-if"})
"""Paths whose requests may take long: they neither take the places of others nor wait for one."""

_PASSED_ON = tuple(f"{protocol.path}/" for protocol in PROTOCOLS)


def _kind_of(path: str) -> RequestKind:
    if path in _FREE:
        return "free"
    if path.startswith(_PASSED_ON):
        return "passed_on"
    return "stream" if path in _OPEN or path.startswith("/mcp") else "place"


def _report(error: Exception) -> None:
    _log.error("%s; the tokens that were read before still count", error)


def _mcp_endpoint(bs: Backstory, limits: Limits) -> McpEndpoint:
    # Here, since the package is an extra of its own, and large.
    from backstory.http.mcp.endpoint import McpEndpoint

    return McpEndpoint(bs, max_body_bytes=limits.body_bytes)


@functools.cache
def _document() -> dict[str, Any]:
    """Return the OpenAPI document, with schemas of the answers, and how a token is sent; all apps have the same."""
    document = get_openapi(title=_TITLE, version=__version__, description=_DESCRIPTION, routes=_ROUTES)
    parts = document.setdefault("components", {})
    parts["schemas"] = {**components(), **parts.get("schemas", {})}
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    add_refusals(document)
    add_examples(document)
    document["security"] = [{}, {"token": []}]
    return document


class HeadRequests:
    """ASGI middleware that answers HEAD wherever GET is answered, with the same status and headers.

    Args:
        app: The server.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, HEAD as GET."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def headers_only(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
                return
            await send({"type": "http.response.body", "body": b""})
            if message.get("more_body", False):
                # A stream of events would never end.
                answered.cancel()

        with anyio.CancelScope() as answered:
            await self._app({**scope, "method": "GET"}, receive, headers_only)
