"""Server process: a socket, uvicorn on it, and the end of both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from backstory.http.access.gate import is_loopback
from backstory.http.access.tokens import VARIABLE
from backstory.http.app import OpensHome, ServerOptions, create_app
from backstory.http.news import News
from backstory.ledger.core.errors import StoreError, UsageError

__all__ = [
    "DEFAULT_HOST",
    "DEFAULT_PORT",
    "BackstoryServer",
    "BoundSocket",
    "PatientProtocol",
    "answering",
    "listen",
    "serve",
    "server_on",
]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8765

_BACKLOG = 4096
_FILES = 65_536
_GRACE_SECONDS = 10


class BoundSocket:
    """A bound socket, and the address of the server on it."""

    def __init__(self, host: str, bound: socket.socket) -> None:
        self.socket = bound
        # Of the address, not of the name: names resolve to whatever a resolver says.
        address, port = bound.getsockname()[:2]
        self.local = is_loopback(address)
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(host: str, port: int) -> BoundSocket:
    """Bind a socket.

    Args:
        host: A name or an address.
        port: The port; 0 for any free one.

    Raises:
        UsageError: The host cannot be resolved.
        StoreError: The port is taken, or may not be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host[:100]!r} cannot be resolved: {error}") from error
    try:
        bound = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise StoreError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another --port"
        ) from error
    return BoundSocket(host, bound)


def serve(
    listener: BoundSocket,
    open_home: OpensHome,
    options: ServerOptions,
    *,
    on_ready: Callable[[str], None],
) -> None:
    """Answer requests until the process is asked to end; what is pending is then extracted as far as time allows.

    Args:
        listener: Where to listen.
        open_home: Opens the home.
        options: How to answer.
        on_ready: Gets the address once requests are answered.

    Raises:
        UsageError: The address is not this machine's alone, and there is no token.
        BackstoryError: The home cannot be opened.
    """
    with listener.socket:
        server = server_on(listener, open_home, options, on_ready=on_ready)
        with _ended_by_sigterm(server):
            server.run(sockets=[listener.socket])


def server_on(
    listener: BoundSocket,
    open_home: OpensHome,
    options: ServerOptions,
    *,
    on_ready: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> BackstoryServer:
    """Return a server that is not running yet; see `serve`. The environment may hold tokens."""
    app = create_app(open_home, options, environ=environ)
    if not listener.local and not app.state.tokens:
        app.state.home.close()
        raise UsageError(
            f"{listener.url} can be reached from other machines, so it needs tokens: make one with `backstory token "
            f"add NAME --all-users --right write`, or set {VARIABLE}; or listen on 127.0.0.1"
        )
    _allow_many_files()
    return BackstoryServer(_configured(app, "on"), app, lambda: on_ready(listener.url))


@contextlib.contextmanager
def answering(listener: BoundSocket, app: ASGIApp) -> Iterator[None]:
    """Answer requests in a thread for the length of a block."""
    server = uvicorn.Server(_configured(app, "off"))
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener.socket]}, name="backstory-http", daemon=True
    )
    with listener.socket:
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


def _configured(app: ASGIApp, lifespan: Literal["on", "off"]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        loop="uvloop",
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        server_header=False,
        # A client's address is in no log, so what a proxy says of it is of no use.
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


class BackstoryServer(uvicorn.Server):
    """Uvicorn's server of one app; it ends event streams before it waits for open requests.

    Args:
        config: How uvicorn runs.
        app: The app.
        on_ready: Called once requests are answered.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.app = app
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has begun, and end."""
        news: News = self.app.state.news
        news.end()
        await super().shutdown(sockets)


@contextlib.contextmanager
def _ended_by_sigterm(server: BackstoryServer) -> Iterator[None]:
    """Have SIGTERM end the server, but not the process: uvicorn raises the signal again when the server has ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_: int, __: FrameType | None) -> None:
        server.should_exit = True

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class PatientProtocol(HttpToolsProtocol):
    """Connection that ends when its client takes too long, or sends headers that are too large.

    Uvicorn itself waits without end for headers, for the rest of a body that was answered, and for a client that does
    not read. How long a body may take that a route reads is a limit of `Limiter`.
    """

    header_seconds = 10.0
    """For the request line and the headers."""
    header_bytes = 64 * 2**10
    stall_seconds = 30.0
    """In which a client reads at least `stall_bytes` of what it was sent, or all of it."""
    stall_bytes = 16 * 2**10
    linger_seconds = 5.0
    """For the rest of a body whose request is answered: a client that still sends would not see why it is refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_end: asyncio.TimerHandle | None = None
        self._body_end: asyncio.TimerHandle | None = None
        self._stall_check: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._in_headers = True
        self._in_body = False
        self._too_large = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect headers."""
        super().connection_made(transport)
        self._limit_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        for timer in (self._header_end, self._body_end, self._stall_check):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, and refuse headers that go on for too long."""
        continues_body = self._in_body
        super().data_received(data)
        if self._in_headers and not continues_body:
            self._header_bytes += len(data)
            if self._header_bytes > self.header_bytes:
                self._drop(_TOO_LARGE)
        if self._in_headers and self._header_end is None:
            # Only here: nearly always all of them came at once.
            self._limit_headers()

    def on_message_begin(self) -> None:
        """Expect the headers of a request."""
        super().on_message_begin()
        self._headers_came()
        self._in_headers, self._header_bytes = True, 0

    def on_headers_complete(self) -> None:
        """Start to answer.

        Raises:
            ValueError: The headers are too large.
        """
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.header_bytes:
            self._too_large = True
            raise ValueError("the headers are too large")
        self._headers_came()
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request has come whole."""
        self._in_body = False
        if self._body_end is not None:
            self._body_end.cancel()
            self._body_end = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Limit the time for the rest of the request, and for reading the answer."""
        super().on_response_complete()
        if self._in_body:
            self._body_end = self.loop.call_later(self.linger_seconds, self.transport.abort)
        self._watch_reading()

    def pause_writing(self) -> None:
        """Limit the time for reading what was sent."""
        super().pause_writing()
        self._watch_reading()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request."""
        if self._too_large:
            self._drop(_TOO_LARGE)
        elif self._is_answering():
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _limit_headers(self) -> None:
        self._header_end = self.loop.call_later(self.header_seconds, self._drop, _TOO_SLOW)

    def _headers_came(self) -> None:
        self._in_headers = False
        if self._header_end is not None:
            self._header_end.cancel()
            self._header_end = None

    def _watch_reading(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting and self._stall_check is None:
            self._stall_check = self.loop.call_later(self.stall_seconds, self._check_reading, waiting)

    def _check_reading(self, before: int) -> None:
        self._stall_check = None
        waiting = self.transport.get_write_buffer_size()
        if before - waiting < min(before, self.stall_bytes):
            self.transport.abort()
        else:
            self._watch_reading()

    def _is_answering(self) -> bool:
        """Whether an answer has begun, so that nothing else may be written before its end."""
        return self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete

    def _drop(self, status: bytes) -> None:
        self._headers_came()
        if not self.transport.is_closing():
            if not self._is_answering():
                self.transport.write(b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status)
            self.transport.close()


_TOO_LARGE = b"431 Request Header Fields Too Large"
_TOO_SLOW = b"408 Request Timeout"


def _allow_many_files() -> None:
    """Raise the limit of open files: each connection is one, and each memory in use has some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
