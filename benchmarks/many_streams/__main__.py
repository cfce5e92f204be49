"""Measure many streams, one commit each, on each engine: `python -m benchmarks.many_streams`.

A million take about an hour and up to 15 GB of disk, so `make bench` leaves them out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks.many_streams.asking import Asked, Spread
from benchmarks.many_streams.engines import Engine, forget_pages, memory_of
from benchmarks.rows import Row, ms

__all__ = ["many_streams", "started"]

_MB = 1 << 20


def started(name: str, folder: Path, *, shards: int, replicas: int) -> Engine:
    """Start a private engine."""
    if name == "files":
        from benchmarks.many_streams.on_files import Files

        return Files(folder)
    if name == "postgres":
        from benchmarks.many_streams.on_postgres import Postgres

        return Postgres(folder)
    from benchmarks.many_streams.on_nats import Nats

    return Nats(folder, shards=shards, replicas=replicas)


def many_streams(engine: Engine, count: int) -> Iterator[Row]:
    """Fill an engine with so many streams, and measure it."""
    empty = engine.bytes()
    loaded = _took(lambda: engine.load(count))
    engine.settle()
    yield Row(f"{engine.name}: loading {count:,} streams", f"{ms(loaded)}, {count / loaded:,.0f}/s")
    after_loading = memory_of(engine.pids())
    size = (engine.bytes() - empty) / engine.replicas
    copies = f"; {engine.replicas} copies" if engine.replicas > 1 else ""
    yield Row("  bytes on disk for each stream, one copy", f"{size / count:,.0f}{copies}")
    stopped = _took(engine.stop)
    forget_pages(engine.folders())
    restarted = _took(engine.start)
    asked = _ask(engine.url, count)
    if engine.pids():
        yield Row("  stopping the servers; starting them until they are ready", f"{ms(stopped)}; {ms(restarted)}")
        yield Row(
            "  RAM of all servers after loading; after the restart and what is asked below",
            f"{after_loading / _MB:,.0f} MB; {memory_of(engine.pids()) / _MB:,.0f} MB",
        )
    yield from _rows(asked)


def _rows(asked: Asked) -> Iterator[Row]:
    yield Row("  opening the home; its first question", f"{ms(asked.opened)}; {ms(asked.first)}")
    yield Row("  head and read of one stream, first time, p50, p99; again", f"{_both(asked.cold)}; {_both(asked.warm)}")
    yield Row("  append of an exchange, one writer, p50, p99", _both(asked.append))
    yield Row("  opening a memory without an index, p50, p99", _both(asked.memory))
    yield Row(
        "  names of one tenant's streams; of all; twenty users with their number",
        f"{ms(asked.tenant)}; {ms(asked.everything)}; {ms(asked.page)}",
    )
    yield Row(
        "  what has changed: first look; nothing; 100 streams",
        f"{ms(asked.changes_first)}; {ms(asked.changes_none)}; {ms(asked.changes_some)}",
    )
    yield Row(
        "  RAM of the client: before; opened; after all this",
        f"{asked.ram_before / _MB:,.0f} MB; {asked.ram_opened / _MB:,.0f} MB; {asked.ram_after / _MB:,.0f} MB",
    )


def _both(spread: Spread) -> str:
    return f"{ms(spread.p50)}, {ms(spread.p99)}"


def _ask(url: str, count: int) -> Asked:
    client = subprocess.run(
        [sys.executable, "-m", "benchmarks.many_streams.asking", url, str(count)], stdout=subprocess.PIPE, check=True
    )
    return msgspec.json.decode(client.stdout, type=Asked)


def _took(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_streams", description=__doc__)
    parser.add_argument("engines", nargs="*", default=["files", "postgres", "nats"], metavar="files|postgres|nats")
    parser.add_argument("--streams", type=int, default=1_000_000, help="how many, 1000 at least (1,000,000)")
    parser.add_argument("--shards", type=int, default=4, help="JetStream streams on NATS (4)")
    parser.add_argument("--replicas", type=int, default=3, help="nodes and copies on NATS, 1 or 3 (3)")
    parser.add_argument("--folder", type=Path, help="where the files are, of PostgreSQL in $TMPDIR")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name in options.engines:
            print(f"load of the machine: {os.getloadavg()[0]:.1f}", flush=True)
            engine = started(name, Path(folder), shards=options.shards, replicas=options.replicas)
            try:
                for row in many_streams(engine, options.streams):
                    print(f"| {row.what} | {row.figure} |", flush=True)
            finally:
                engine.close()


if __name__ == "__main__":
    main()
