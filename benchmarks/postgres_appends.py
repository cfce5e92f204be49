"""Durable commits a second in PostgreSQL: 16 threads that append, against pgbench with 16 clients that insert as much.

Run as `python -m benchmarks.postgres_appends`. The two take turns, so that both meet the same machine.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import threading
import time

import psycopg

from backstory.ledger.log.store.postgres.migrating import migrate
from backstory.ledger.log.store.postgres.store import PostgresStore
from backstory.testing.lines import endless_chain
from benchmarks.private_postgres import Server, program

_WRITERS = 16
_SECONDS = 4
_ROUNDS = 5
_LINES = 20_000
_TEXT = "said " * 60


def commits_per_second(url: str, lines: list[bytes], number: int) -> float:
    """Append the same lines to a new stream in each thread, one commit each."""
    store = PostgresStore(url)
    done = [0] * _WRITERS
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
    store.close()
    return sum(done) / _SECONDS


def inserts_per_second(server: Server, script: str) -> float:
    """Run pgbench: each transaction inserts one row."""
    output = subprocess.run(
        [program("pgbench"), "--no-vacuum", "--host=127.0.0.1", f"--port={server.port}", "--username=owner",
         f"--client={_WRITERS}", "--jobs=2", f"--time={_SECONDS}", f"--file={script}", "postgres"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    (rate,) = [line.split()[2] for line in output.splitlines() if line.startswith("tps = ")]
    return float(rate)


def main() -> None:
    server = Server(durable=True)
    migrate(server.url())
    lines = list(itertools.islice(endless_chain(text=_TEXT), _LINES))
    size = len(lines[0])
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, line bytea)")
    script = server.folder / "insert.sql"
    script.write_text(f"INSERT INTO plain (line) VALUES (decode('{os.urandom(size).hex()}', 'hex'));\n", "utf-8")
    ratios = []
    for number in range(_ROUNDS):
        ours, theirs = commits_per_second(server.url(), lines, number), inserts_per_second(server, str(script))
        ratios.append(ours / theirs)
        print(f"{ours:8,.0f} commits/s  {theirs:8,.0f} inserts/s  {ratios[-1]:.2f} ×", flush=True)
    print(f"median {statistics.median(ratios):.2f} ×, {size} bytes a line, {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
