"""Copies on another machine: from the acknowledgement of a commit until memory.json there shows it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from backstory.copies import LocalCopies
from backstory.home import Backstory
from benchmarks.rows import Row, ms

__all__ = ["following"]

_COMMITS = 200
_PATIENCE = 10.0


def following(engine: str, url: str) -> Iterator[Row]:
    """Measure an engine; `engine` is its name for people."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Backstory.open(Path(folder) / "busy", background=False, event_store=url) as busy,
        Backstory.open(Path(folder) / "idle", background=False, event_store=url) as idle,
    ):
        there = idle.memory("followed")
        there.add_fact("User has a copy")
        there.flush()
        document = idle.home / "users" / "followed" / "memory.json"
        memory, delays = busy.memory("followed"), []
        memory.set_policy(max_facts=500)
        with LocalCopies(idle).following():
            for number in range(_COMMITS):
                wanted = f"fact number {number}."
                memory.add_fact(wanted)
                acknowledged = time.perf_counter()
                while wanted.encode() not in document.read_bytes():
                    if time.perf_counter() - acknowledged > _PATIENCE:
                        raise TimeoutError(f"{engine}: a copy did not follow within {_PATIENCE:g} s")
                    time.sleep(0.001)
                delays.append(time.perf_counter() - acknowledged)
    p99 = sorted(delays)[int(len(delays) * 0.99)]
    yield Row(
        f"{engine}: from a commit's acknowledgement to memory.json on another machine, p50, p99",
        f"{ms(statistics.median(delays))}, {ms(p99)}",
        "≤ 250 ms",
    )


if __name__ == "__main__":
    from backstory.ledger.log.store.postgres.migrating import migrate
    from benchmarks.private_nats import NatsCluster
    from benchmarks.private_postgres import Server

    server = Server(durable=True)
    migrate(server.url())
    for row in following("PostgreSQL", server.url()):
        print(row.what, "|", row.figure, flush=True)
    with tempfile.TemporaryDirectory() as servers, NatsCluster(Path(servers) / "nodes") as cluster:
        for row in following("NATS", f"nats://{cluster.at}/followed?monitor={cluster.monitor}"):
            print(row.what, "|", row.figure, flush=True)
