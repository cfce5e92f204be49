"""What the proxy adds to the time until the first byte of an answer, against the model server alone."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.injecting import FACTS, remembering
from benchmarks.rows import Row, ms

__all__ = ["proxying"]

_UPSTREAM = r"""
import asyncio
def event(fields): return b'data: {"choices":[{"index":0,' + fields + b"}]}\n\n"
PARTS = [event(b'"delta":{"content":"word "},"finish_reason":null')] * 20
PARTS += [event(b'"delta":{},"finish_reason":"stop"'), b"data: [DONE]\n\n"]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(HEAD)
            for part in PARTS:
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
_PROXY = r"""
import contextlib, socket, sys
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from backstory import Backstory
from backstory.http.access.callers import LOCAL
from backstory.http.proxy import Proxy
from backstory.http.proxy.upstream import Upstream
with Backstory.open(sys.argv[1], background=False) as bs:
    bs.warm()
    proxy = Proxy(bs, upstream=Upstream(sys.argv[2]))
    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield
        await proxy.aclose()
    app = Starlette(routes=[Mount("/proxy/v1", proxy)], lifespan=lifespan)
    async def called(scope, receive, send):
        scope.setdefault("state", {})["caller"] = LOCAL
        await app(scope, receive, send)
    sock = socket.create_server(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(called, log_level="critical", ws="none"))
    server.run([sock])
"""


@contextmanager
def _process(code: str, *arguments: str) -> Iterator[int]:
    """Run a server in a process of its own; yields its port."""
    run = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


class _Client:
    """A client that stays connected, as the official ones do; its conversations go on for four questions."""

    def __init__(self, port: int, path: str, user: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._path = path
        self._user = user
        self._said: list[dict[str, str]] = []
        self._asked = 0

    def ask(self) -> float:
        """Ask, and return the seconds until the first byte of the answer."""
        if len(self._said) >= 8:
            self._said = []
        self._asked += 1
        words = f"How long does the train to Bergen take, and what did I want to finish, {self._asked}?"
        self._said.append({"role": "user", "content": words})
        body = json.dumps({"model": "m", "user": self._user, "stream": True, "messages": self._said}).encode()
        start = time.perf_counter()
        self._connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        answer.read(1)
        took = time.perf_counter() - start
        assert answer.status == 200, answer.status
        answer.read()
        self._said.append({"role": "assistant", "content": "word " * 20})
        return took


def proxying(rounds: int) -> Iterator[Row]:
    """Measure so many streamed answers each way, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        remembering(Path(folder))
        with (
            _process(_UPSTREAM) as upstream,
            _process(_PROXY, folder, f"http://127.0.0.1:{upstream}/v1") as proxy,
        ):
            alone = _Client(upstream, "/v1/chat/completions", "ada")
            through = _Client(proxy, "/proxy/v1/chat/completions", "ada")
            for client in (alone, through):
                for _ in range(20):
                    client.ask()
            pairs = [(alone.ask(), through.ask()) for _ in range(max(20, rounds))]
    direct, proxied = (statistics.median(spans) for spans in zip(*pairs, strict=True))
    what = f"the proxy: added time to the first byte, {FACTS} facts, p50"
    yield Row(what, ms(proxied - direct), "≤ 5 ms")
    yield Row("  the upstream alone; through the proxy, p50", f"{1e3 * direct:.2f} ms; {1e3 * proxied:.2f} ms")
