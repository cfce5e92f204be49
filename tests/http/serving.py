"""Servers to test: an app without a socket, a server in a thread of this process, and one in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx
from doubles.hasty import hurry
from fakes import PATIENCE, open_home
from fastapi import FastAPI
from starlette.testclient import TestClient

from backstory.home import Backstory
from backstory.http import server
from backstory.http.access.tokens import FILE, TokenFile
from backstory.http.app import ServerOptions, create_app

hurry()

HERE = "http://127.0.0.1"
"""What a client of an app without a socket calls it by."""


def opening(home: Path, **settings: object) -> Callable[..., Backstory]:
    """Open a home as a server does: with its listeners and callbacks, and the settings of a test."""

    def opened(**more: object) -> Backstory:
        return open_home(home, **settings, **more)  # type: ignore[arg-type]

    return opened


def token(home: Path, name: str, *users: str, right: str = "erase") -> dict[str, str]:
    """Make a token for these users, or for all; returns the header that carries it."""
    made = TokenFile(home / FILE).add(name, right, users or None)
    return {"Authorization": f"Bearer {made.token}"}


@contextlib.contextmanager
def app_client(
    home: Path,
    options: ServerOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    base_url: str = HERE,
    **settings: object,
) -> Iterator[TestClient]:
    """A client of an app without a socket; the app is in its `app`."""
    app = create_app(opening(home, **settings), options, environ=environ or {})
    with TestClient(app, base_url, raise_server_exceptions=False, follow_redirects=False) as client:
        yield client


class Server:
    """A server with an address."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)

    def client(self, headers: Mapping[str, str] | None = None) -> httpx.Client:
        # There is no TLS here, and to read all certificates for it takes longer than most requests.
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, verify=False)  # noqa: S501

    def get(self, path: str, **more: object) -> httpx.Response:
        with self.client() as client:
            return client.get(path, **more)  # type: ignore[arg-type]

    def post(self, path: str, body: object = None, **more: object) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body, **more)  # type: ignore[arg-type]

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE)

    def raw(self, request: bytes) -> bytes:
        """Send bytes and return what comes back until the server closes the connection."""
        with self.connect() as connection:
            connection.sendall(request)
            return until_closed(connection)


class ThreadServer(Server):
    """A server in a thread of this process; `app` is its app."""

    def __init__(self, url: str, app: FastAPI) -> None:
        super().__init__(url)
        self.app = app


def until_closed(connection: socket.socket) -> bytes:
    """Read until the other end closes, or resets, the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            found += part
    return found


@contextlib.contextmanager
def thread_server(
    home: Path,
    options: ServerOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    port: int = 0,
    **settings: object,
) -> Iterator[ThreadServer]:
    """A server on a port, or on a free one, as `serve` runs it."""
    servers: list[server.BackstoryServer] = []
    ready: queue.Queue[str | BaseException] = queue.Queue()
    listener = server.listen("127.0.0.1", port)

    def run() -> None:
        try:
            one = server.server_on(
                listener,
                opening(home, **settings),
                options or ServerOptions(),
                on_ready=ready.put,
                environ=environ or {},
            )
            servers.append(one)
            one.run(sockets=[listener.socket])
        except BaseException as error:  # noqa: BLE001 the test's thread raises it
            ready.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        found = ready.get(timeout=PATIENCE)
        if isinstance(found, BaseException):
            raise found
        yield ThreadServer(found, servers[0].app)
    finally:
        for one in servers:
            one.should_exit = True
        thread.join(PATIENCE)
        listener.socket.close()
    assert not thread.is_alive()


class ProcessServer(Server):
    """A server in a process of its own."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        super().__init__(url)
        self.process = process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Tell it to end; returns its exit code and what it wrote since its address."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextlib.contextmanager
def process_server(
    home: Path, *words: object, environ: Mapping[str, str] | None = None, before: Callable[[], None] | None = None
) -> Iterator[ProcessServer]:
    """`backstory serve` on a free port; it does not outlive the block."""
    command = [sys.executable, "-m", "backstory.cli", "--home", home, "--json", "serve", "--port", "0", *words]
    with subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environ or {})},
        preexec_fn=before,  # noqa: PLW1509 the limits of a process are set in it
    ) as process:
        killer = threading.Timer(5 * PATIENCE, process.kill)
        killer.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                process.wait(PATIENCE)
                raise AssertionError(process.stderr.read() if process.stderr else "")
            yield ProcessServer(json.loads(line)["url"], process)
        finally:
            process.kill()
            killer.cancel()
            killer.join()


class Stream:
    """An open event stream, read in a thread."""

    def __init__(self, running: Server, path: str, headers: Mapping[str, str] | None = None) -> None:
        self.connection = running.connect()
        lines = [
            f"GET {path} HTTP/1.1",
            "Host: 127.0.0.1",
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
        ]
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode())
        self.data = b""

    def wait_for(self, text: bytes) -> None:
        """Read until this has come."""
        while text not in self.data:
            part = self.connection.recv(1 << 16)
            assert part, f"the stream ended without {text!r}: {self.data[-500:]!r}"
            self.data += part

    def wait_for_end(self) -> None:
        self.data += until_closed(self.connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
