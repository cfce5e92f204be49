"""Very many reads at once, ten thousand at full length: each is answered, and the server is well afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Server, process_server
from sizes import sized

READS = sized(300, 10_000)


@pytest.fixture
def files() -> Iterator[int]:
    """How many files this process may open, as many as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def read_at_once(running: Server, count: int) -> Counter[str]:
    """Open all connections, then send all requests, then read all answers."""
    host, port = running.address
    opened = await asyncio.gather(*(asyncio.open_connection(host, port) for _ in range(count)))
    for _, writer in opened:
        writer.write(b"GET /v1/facts?user=ada HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        found = await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        status = found[9:12].decode()
        if status == "200":
            assert found.endswith(b'"next":null}')
        if status == "503":
            assert b"retry-after: 1" in found.lower()
        return status

    return Counter(await asyncio.gather(*(answer(*one) for one in opened)))


@pytest.mark.slow
def test_very_many_reads_at_once(tmp_path: Path, files: int) -> None:
    count = min(READS, files - 500)
    with process_server(tmp_path / "home") as running:
        for number in range(20):
            assert running.post("/v1/facts?user=ada", {"content": f"Fact {number}"}).status_code == 201
        statuses = asyncio.run(read_at_once(running, count))
        assert sum(statuses.values()) == count
        # 408: on a slow machine a connection waits too long for its turn to send.
        assert set(statuses) <= {"200", "503", "408"}
        assert statuses["200"] > count / 10
        assert len(running.get("/v1/facts?user=ada").json()["items"]) == 20
        assert running.post("/v1/facts?user=ada", {"content": "After"}).status_code == 201
        code, _, err = running.end()
        assert code == 0
        assert "Traceback" not in err
