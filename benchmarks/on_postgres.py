"""A private PostgreSQL that syncs: commits beside bare inserts by pgbench, opening beside files, and following."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg

from backstory.home import Backstory
from backstory.ledger.log.store.postgres.migrating import migrate
from backstory.ledger.log.store.postgres.store import PostgresStore
from backstory.testing.lines import endless_chain
from benchmarks.following import following
from benchmarks.private_postgres import NotInstalledError, Server, program
from benchmarks.rows import Row, in_turn, ms, times
from benchmarks.scaling import home_of

__all__ = ["on_postgres"]

_WRITERS = 16
_SECONDS = 4
_ROUNDS = 5
_LINES = 20_000
_TEXT = "said " * 60
_LIVE = 100


def on_postgres(commits: int) -> Iterator[Row]:
    """Measure the PostgreSQL engine; `commits` are those of the scope that is opened."""
    try:
        program("pgbench")
        server = Server(durable=True)
    except NotInstalledError as error:
        yield Row("PostgreSQL: left out", str(error))
        return
    migrate(server.url())
    try:
        yield from _writing(server)
        yield from following("PostgreSQL", server.url())
        with tempfile.TemporaryDirectory() as folder:
            yield from _opening(Path(folder), server.url(), commits)
    finally:
        server.remove()


def _writing(server: Server) -> Iterator[Row]:
    lines = list(itertools.islice(endless_chain(text=_TEXT), _LINES))
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, line bytea)")
    script = server.folder / "insert.sql"
    script.write_text(
        f"INSERT INTO plain (line) VALUES (decode('{os.urandom(len(lines[0])).hex()}', 'hex'));\n", "utf-8"
    )
    # By turns, so that both meet the same machine.
    measured = [
        (_commits_per_second(server.url(), lines, number), _inserts_per_second(server, str(script)))
        for number in range(_ROUNDS)
    ]
    yield Row(
        "PostgreSQL, synced: 16 writers / pgbench with 16 clients, one insert of the same size per transaction",
        times(statistics.median(ours / theirs for ours, theirs in measured)),
        "≥ 0.3 ×",
    )
    ours, theirs = (statistics.median(rates) for rates in zip(*measured, strict=True))
    yield Row(f"  commits/s, inserts/s, of {len(lines[0])} bytes", f"{ours:,.0f}, {theirs:,.0f}")


def _commits_per_second(url: str, lines: list[bytes], number: int) -> float:
    """Append the same lines to a new stream in each thread, one commit each."""
    done = [0] * _WRITERS
    with closing(PostgresStore(url)) as store:
        end = time.monotonic() + _SECONDS

        def write(who: int) -> None:
            for seq, line in enumerate(lines):
                if time.monotonic() > end:
                    return
                store.append(f"users/round-{number}-{who}/ledger", line, seq)
                done[who] += 1

        threads = [threading.Thread(target=write, args=(who,)) for who in range(_WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sum(done) / _SECONDS


def _inserts_per_second(server: Server, script: str) -> float:
    """Run pgbench: each transaction inserts one row."""
    output = subprocess.run(
        [program("pgbench"), "--no-vacuum", "--host=127.0.0.1", f"--port={server.port}", "--username=owner",
         f"--client={_WRITERS}", "--jobs=2", f"--time={_SECONDS}", f"--file={script}", "postgres"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    (rate,) = [line.split()[2] for line in output.splitlines() if line.startswith("tps = ")]
    return float(rate)


def _opening(folder: Path, url: str, commits: int) -> Iterator[Row]:
    files, elsewhere = folder / "files", folder / "elsewhere"
    home_of(files, commits)
    begun = time.perf_counter()
    with closing(PostgresStore(url)) as store:
        for kind in ("ledger", "transcript"):
            lines = (files / f"{kind}.jsonl").read_bytes().splitlines()
            for start in range(0, len(lines), 1000):
                store.append_all(kind, lines[start : start + 1000], start)
    filled = time.perf_counter() - begun

    scopes: dict[str, list[float]] = {"jsonl:": [], url: []}

    def opening(home: Path, engine: str) -> Callable[[], None]:
        def work() -> None:
            with Backstory.open(home, background=False, event_store=engine) as bs:
                # A server has its connections when it is asked for a scope.
                bs.store.head("users/nobody/ledger")
                begun = time.perf_counter()
                assert len(bs.memory(scope="global").facts()) == _LIVE
                scopes[engine].append(time.perf_counter() - begun)

        return work

    here, there = opening(files, "jsonl:"), opening(elsewhere, url)
    here()
    begun = time.perf_counter()
    there()
    built = time.perf_counter() - begun
    in_database, on_files = in_turn(there, here, rounds=25)
    warm, beside = (statistics.median(taken[1:]) for taken in (scopes[url], scopes["jsonl:"]))
    yield Row(f"  opening a scope of {commits:,} commits, index at hand / on files", times(warm / beside), "≤ 3 ×")
    yield Row("  opening and reading it; on files", f"{ms(warm)}, {ms(beside)}")
    yield Row(
        "  the same with opening and closing the home, and connecting; on files", f"{ms(in_database)}, {ms(on_files)}"
    )
    yield Row("  appending both logs by the thousand; building the index from them", f"{ms(filled)}, {ms(built)}")


if __name__ == "__main__":
    import sys

    for row in on_postgres(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000):
        print(row.what, "|", row.figure, "|", row.target, flush=True)
