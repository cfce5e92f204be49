"""Many servers at one address, each with a home and an app of its own.

A browser loads the page once for an address: to load it anew for each test costs ten times what a view does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import httpx
from fakes import PATIENCE
from fastapi import FastAPI
from serving import Server, ThreadServer, opening
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from backstory.http.app import ServerOptions, create_app
from backstory.http.server import answering, listen

__all__ = ["Host", "Hosted", "hosting"]

_HEADER = "x-hosted"
"""Names the server that a request of a test is for. The browser's requests have no such header."""


class Hosted(ThreadServer):
    """One of the servers of a host."""

    def __init__(self, url: str, app: FastAPI, number: int) -> None:
        super().__init__(url, app)
        self.number = number

    def client(self, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """Return a client whose requests this server answers, whichever is shown."""
        return super().client({**(headers or {}), _HEADER: str(self.number)})


class Host:
    """An ASGI app that passes requests on to the server they name, or to the one that is shown."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._apps: dict[int, FastAPI] = {}
        self._shown = 0
        self._numbers = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        self._loop = asyncio.get_running_loop()
        named = dict(scope["headers"]).get(_HEADER.encode())
        app = self._apps.get(self._shown if named is None else int(named))
        await (app or PlainTextResponse("no server is shown", 503))(scope, receive, send)

    def show(self, server: Hosted) -> None:
        """Have this server answer the browser from now on."""
        self._shown = server.number

    @contextlib.contextmanager
    def serving(self, home: Path, options: ServerOptions | None = None, **settings: object) -> Iterator[Hosted]:
        """A server for the length of a block; it is shown until another one is."""
        assert self._loop is not None
        app = create_app(opening(home, **settings), options, environ={})
        server = Hosted(self.url, app, next(self._numbers))
        ready: Future[None] = Future()
        over = asyncio.Event()
        living = asyncio.run_coroutine_threadsafe(_live(app, ready, over), self._loop)
        try:
            ready.result(PATIENCE)
            self._apps[server.number] = app
            self.show(server)
            yield server
        finally:
            self._apps.pop(server.number, None)
            self._loop.call_soon_threadsafe(over.set)
            living.result(PATIENCE)


async def _live(app: FastAPI, ready: Future[None], over: asyncio.Event) -> None:
    """Keep an app between its start and its end, both of which must be in one task."""
    try:
        async with app.router.lifespan_context(app):
            ready.set_result(None)
            await over.wait()
            app.state.news.end()
    except BaseException as error:
        if ready.done():
            raise
        ready.set_exception(error)


@contextlib.contextmanager
def hosting() -> Iterator[Host]:
    """A host at a free port."""
    listener = listen("127.0.0.1", 0)
    host = Host(listener.url)
    with answering(listener, host):
        # The first request tells the host its loop.
        Server(host.url).get("/")
        yield host
