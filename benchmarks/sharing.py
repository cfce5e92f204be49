"""What Redis spares a process that opens a memory without an index: finding the memory against replaying the ledger."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.reader import Reader
from benchmarks.rows import Row, in_turn, ms

__all__ = ["sharing"]

_ADA = Scope("ada")
_FACTS = 90


def sharing(commits: int) -> Iterator[Row]:
    """Measure it, where a Redis can be started."""
    if find_spec("redis") is None or shutil.which("redis-server") is None:
        yield Row("memories in Redis: left out", "the extra [redis] or redis-server is not installed")
        return
    from backstory.projections.shared.memories import SharedMemories
    from backstory.projections.shared.redis_cache import RedisCache

    with tempfile.TemporaryDirectory() as folder, _redis() as url:
        _learn(Path(folder), commits)
        store = JsonlStore(Path(folder))
        cache = RedisCache(url)
        shared = SharedMemories(store, cache, 600)

        def opened(others: SharedMemories | None) -> None:
            memory, head = Reader(store, _ADA, None, lambda _: None, others).standing()
            assert (head.seq, len(memory.facts)) == (commits + 1, _FACTS)

        opened(shared)
        replayed, found = in_turn(lambda: opened(None), lambda: opened(shared))
        assert shared.reads["hit"] == 5
        shared.close()
    yield Row(
        f"opening a memory of {commits:,} commits without an index: replay; from Redis", f"{ms(replayed)}; {ms(found)}"
    )


def _learn(home: Path, commits: int) -> None:
    with Backstory.open(home, background=False) as bs:
        memory = bs.memory("ada")
        for number in range(commits):
            content = f"Ada has thing {number}"
            if number < _FACTS:
                memory.add_fact(content)
            else:
                memory.edit_fact(f"fact_{2 + number % _FACTS}_0", content=content)


@contextmanager
def _redis() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
    with subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(500):
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.01)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
