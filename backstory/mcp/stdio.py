"""Server over standard input and output, for a client that starts it as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

from mcp.server.mcpserver import MCPServer

from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.mcp.opening import Opened
from backstory.mcp.server import memory_server

_CHUNK = 1 << 16


def serve_stdio(home: Backstory, scope: Scope) -> None:
    """Serve one memory until the client closes the input, or a signal asks the process to end.

    Args:
        home: The home; it stays open.
        scope: Whose memory it is.
    """
    memory = home.memory_of(scope)
    server = memory_server(home, lambda _request, _need: Opened(memory))
    with _ending_input() as end:
        try:
            asyncio.run(_serve(server, end))
        except* BrokenPipeError:
            # The client ended without closing the input first, so no answer can be sent.
            pass


async def _serve(server: MCPServer, end: socket.socket) -> None:
    def stop() -> None:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_WR)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await server.run_stdio_async()


@contextlib.contextmanager
def _ending_input() -> Iterator[socket.socket]:
    """Put an input that can be ended in the place of standard input, and yield its end.

    The SDK reads in a thread, and nothing but the end of the input ends that: a signal would wait for the client.
    Children get an empty input, so that none takes a message.
    """
    client = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    theirs, ours = socket.socketpair()
    threading.Thread(target=_pass_on, args=(client, ours), name="backstory-mcp-input", daemon=True).start()
    with ours, theirs, io.TextIOWrapper(theirs.makefile("rb"), encoding="utf-8") as messages:
        before, sys.stdin = sys.stdin, messages
        try:
            yield ours
        finally:
            sys.stdin = before


def _pass_on(client: int, ours: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(client, _CHUNK):
            ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
