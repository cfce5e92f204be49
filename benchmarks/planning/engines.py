"""What the engines carried here, and how many servers of them a day needs.

The figures are of one machine with two cores on which servers and clients ran together, in November 2026:
`benchmarks.many_streams`, `on_postgres`, `clustering` and `serving`, as docs/explanation/scale.md and
docs/explanation/benchmarks.md have them.
Where the engine has machines of its own they are lower bounds.
"""

from __future__ import annotations

import math

import msgspec

from backstory.worker import poll_of
from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.day import Day

__all__ = ["ENGINES", "SERVER_CORES", "Carried", "Engine", "Load", "carried"]

_YEAR = 365
_MOST_OF_IT = 0.5
"""How much of what an engine carried here is planned for."""
SERVER_CORES = 2
"""Of the servers that are planned; each has 8 GB of RAM."""
_SERVER_RAM = 8e9
_FOR_INDEXES = 0.5
"""How much of a server's RAM is planned for indexes."""
_PARTITION = 16e9
"""Bytes that an erasure rewrites in a few minutes."""
_SHARDS_OF_A_SERVER = 4
_STREAMS_OF_A_USER = 2
_CONNECTIONS_OF_A_PROCESS = 9
"""Eight at most that read and append, and one that carries all leases."""
_LOOKS_OF_A_SERVER = 20
"""A second, for its local copies."""
_LOOKS_OF_COPIES = 0.2
"""The same of a worker, which looks for new turns besides."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What one group of servers carried: a folder, a database, or three nodes with a copy each."""

    name: str
    commits: float
    """Durable commits a second of 16 writers."""
    stream_bytes: float
    """Bytes on disk that a stream takes beside its lines, a copy."""
    stored: float
    """Bytes on disk for each byte of line, of memories that have been learned for long, a copy."""
    ram: float
    """Bytes of RAM for each stream on each server, for indexes that are looked up; assumed for PostgreSQL."""
    servers: int
    copies: int
    grows: bool
    """Whether more servers carry more."""
    writes_of_an_update: int
    """What an update has stored in turn: its commit, and its lease."""
    looks: float
    """Questions a second about what has changed that 8 threads had answered; 0 where each file is looked at."""


FILES = Engine(
    name="files", commits=2_624, stream_bytes=9_200, stored=1.01, ram=0, servers=1, copies=1, grows=False,
    writes_of_an_update=1, looks=0,
)  # fmt: skip
POSTGRES = Engine(
    name="PostgreSQL", commits=6_289, stream_bytes=750, stored=1.07, ram=200, servers=1, copies=1, grows=False,
    writes_of_an_update=1, looks=4_534,
)  # fmt: skip
NATS = Engine(
    name="NATS", commits=3_595, stream_bytes=50, stored=1.17, ram=620, servers=3, copies=3, grows=True,
    writes_of_an_update=3, looks=5_262,
)  # fmt: skip
ENGINES = (FILES, POSTGRES, NATS)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a day asks of an engine."""

    streams: int
    lines_a_year: float
    bytes_a_year: float
    commits_peak: float
    updates_peak: float
    leases_peak: float
    looks_of_servers: float
    """Looks a second of all servers that record, for what has changed."""
    looks_of_a_worker: float

    @classmethod
    def of(cls, given: Assumptions, day: Day, recording: int) -> Load:
        of_updates = day.updates * given.update_bytes + day.turns_learned * given.update_bytes_per_turn
        return cls(
            streams=given.users * _STREAMS_OF_A_USER,
            lines_a_year=_YEAR * (day.exchanges + day.updates),
            bytes_a_year=_YEAR * (day.exchanges * given.exchange_bytes + of_updates),
            commits_peak=day.exchanges_peak + day.updates_peak,
            updates_peak=day.updates_peak,
            leases_peak=day.busy_peak,
            looks_of_servers=recording * _LOOKS_OF_A_SERVER,
            looks_of_a_worker=1 / poll_of(given.debounce_seconds) + _LOOKS_OF_COPIES,
        )


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine needs for a load; bytes are those of the first year."""

    used: float
    """Part of what one group of servers carried here that the busiest minutes ask of one."""
    groups: int
    disk: float
    """All copies."""
    ram: float
    """For the indexes, on each server."""
    parts: int
    """Partitions or shards."""
    connections: int
    """What workers keep open at the peak."""
    looks: float
    """Questions a second about what has changed, busy or not."""
    looks_used: float
    """Part of those that one group of servers answered here."""


def carried(engine: Engine, load: Load, processes: int) -> Carried:
    """Return what an engine needs for a load, with so many worker processes."""
    writes = load.commits_peak + (engine.writes_of_an_update - 1) * load.updates_peak
    copy = load.streams * engine.stream_bytes + load.bytes_a_year * engine.stored
    ram = load.streams * engine.ram
    groups = 1
    if engine.grows:
        groups = math.ceil(max(writes / (engine.commits * _MOST_OF_IT), ram / (_SERVER_RAM * _FOR_INDEXES), 1))
    parts = {
        "PostgreSQL": max(1, math.ceil(copy / _PARTITION)),
        "NATS": groups * engine.servers * _SHARDS_OF_A_SERVER,
    }.get(engine.name, 1)
    # Each shard of NATS is asked on its own.
    looks = (load.looks_of_servers + processes * load.looks_of_a_worker) * (parts if engine.grows else 1)
    return Carried(
        used=writes / engine.commits / groups,
        groups=groups,
        disk=copy * engine.copies,
        ram=ram / groups,
        parts=parts,
        connections={
            "PostgreSQL": processes * _CONNECTIONS_OF_A_PROCESS,
            "NATS": processes,
        }.get(engine.name, 0),
        looks=looks if engine.looks else 0.0,
        looks_used=looks / engine.looks / groups if engine.looks else 0.0,
    )
