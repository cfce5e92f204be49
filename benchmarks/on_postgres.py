"""A private PostgreSQL that syncs: commits beside bare inserts by pgbench, opening beside files, and following."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg

from backstory.ledger.engines.postgres.migrating import migrate
from backstory.ledger.engines.postgres.store import PostgresStore
from backstory.testing.lines import endless_chain
from benchmarks.following import following
from benchmarks.looking import looking
from benchmarks.opening import opening
from benchmarks.private_postgres import NotInstalledError, Server, program
from benchmarks.rows import Row, times

__all__ = ["on_postgres"]

_WRITERS = 16
_SECONDS = 4
_ROUNDS = 5
_LINES = 20_000
_TEXT = "said " * 60


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
        yield from looking(PostgresStore(server.url()))
        yield from following("PostgreSQL", server.url())
        yield from opening(server.url(), commits)
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
                store.append(f"users/round-{number}-{who}/ledger", [line], seq)
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


if __name__ == "__main__":
    import sys

    for row in on_postgres(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000):
        print(row.what, "|", row.figure, "|", row.target, flush=True)
