"""Load generator: a process of its own that sends prepared requests over kept connections, as fast as answers come.

It reads a plan from standard input and writes what came of it to standard output, a line of JSON each. It does no more
for a request than to write bytes that are ready, and to count those of the answer, so that it costs a fraction of any
server in Python: `python -m benchmarks.serving` measures that, too.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import msgspec

__all__ = ["Load", "Loader", "Served", "loading", "request"]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


class Load(msgspec.Struct, frozen=True):
    """What to send: the requests of each connection, one after the other, and all of them so many times."""

    port: int
    requests: tuple[tuple[bytes, ...], ...]
    times: int = 1

    @property
    def count(self) -> int:
        return self.times * sum(map(len, self.requests))


class Served(msgspec.Struct, frozen=True):
    """What came of it: how long all took, the processor time of the generator, and how often each status came."""

    seconds: float
    cpu: float
    statuses: dict[int, int]


def request(method: str, target: str, body: bytes | None = None, **headers: str) -> bytes:
    """Spell a request. Underscores in the names of headers stand for hyphens."""
    lines = [f"{method} {target} HTTP/1.1", "host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode() + _HEAD_END + (body or b"")


class Loader:
    """The process that sends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, load: Load) -> Served:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(load) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Served)


@contextmanager
def loading() -> Iterator[Loader]:
    """Start the process."""
    run = [sys.executable, "-m", "benchmarks.loading"]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Loader(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


class _Connection(asyncio.Protocol):
    """Sends requests, each once the answer before it is complete."""

    def __init__(self, requests: Sequence[bytes], times: int, ended: asyncio.Future[Counter[int]]) -> None:
        self._requests = [each for _ in range(times) for each in requests]
        self._next = 0
        self._ended = ended
        self._left = 0
        self._head = b""
        self._statuses: Counter[int] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A transport of uvloop is no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def begin(self) -> None:
        self._transport.write(self._requests[0])
        self._next = 1

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            self._head += data
            end = self._head.find(_HEAD_END)
            if end < 0:
                return
            self._statuses[int(self._head[9:12])] += 1
            length = _LENGTH.search(self._head, 0, end)
            self._left = end + len(_HEAD_END) + (0 if length is None else int(length[1])) - len(self._head)
            self._head = b""
        if self._left:
            return
        if self._next < len(self._requests):
            self._transport.write(self._requests[self._next])
            self._next += 1
        else:
            self._ended.set_result(self._statuses)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(exc or ConnectionError("the server closed a connection"))


async def _send(load: Load) -> Served:
    loop = asyncio.get_running_loop()
    connections: list[_Connection] = []
    endings: list[asyncio.Future[Counter[int]]] = []
    for requests in load.requests:
        ended = loop.create_future()
        _, connection = await loop.create_connection(
            lambda requests=requests, ended=ended: _Connection(requests, load.times, ended), "127.0.0.1", load.port
        )
        connections.append(connection)
        endings.append(ended)
    began, cpu = time.perf_counter(), time.process_time()
    for connection in connections:
        connection.begin()
    statuses = sum(await asyncio.gather(*endings), Counter())
    return Served(time.perf_counter() - began, time.process_time() - cpu, dict(statuses))


def main() -> None:
    import uvloop

    for line in sys.stdin.buffer:
        served = uvloop.run(_send(msgspec.json.decode(line, type=Load)))
        sys.stdout.buffer.write(msgspec.json.encode(served) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
