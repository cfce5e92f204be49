"""Server over standard input and output, for a client that starts it as a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading

from mcp.server.mcpserver import MCPServer

from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.mcp.opening import Opened
from backstory.mcp.server import memory_server


def serve_stdio(home: Backstory, scope: Scope) -> None:
    """Serve one memory until the client closes the input, or a signal ends the process.

    Args:
        home: The home; it stays open.
        scope: Whose memory it is.
    """
    memory = home.memory_of(scope)
    asyncio.run(_serve(memory_server(home, lambda _request, _need: Opened(memory))))


async def _serve(server: MCPServer) -> None:
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(server.run_stdio_async())
    ended = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
    waiting = asyncio.ensure_future(ended.wait())
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not serving.done():
        # A thread waits for input that need not come: without it, the loop would not end.
        sys.stdin.close()
    await serving
