"""Opening a long scope whose logs an engine keeps elsewhere, beside the same one in files."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backstory.home import Backstory
from benchmarks.rows import Row, in_turn, ms, times
from benchmarks.scaling import home_of

__all__ = ["opening"]

_AT_ONCE = 1000
_LIVE = 100


def opening(url: str, commits: int) -> Iterator[Row]:
    """Measure an engine on a scope of so many commits."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _opening(Path(folder), url, commits)


def _opening(folder: Path, url: str, commits: int) -> Iterator[Row]:
    files, elsewhere = folder / "files", folder / "elsewhere"
    home_of(files, commits)
    begun = time.perf_counter()
    with Backstory.open(elsewhere, background=False, event_store=url) as bs:
        for kind in ("ledger", "transcript"):
            lines = (files / f"{kind}.jsonl").read_bytes().splitlines()
            for start in range(0, len(lines), _AT_ONCE):
                bs.store.append(kind, lines[start : start + _AT_ONCE], start)
    filled = time.perf_counter() - begun

    scopes: dict[str, list[float]] = {"jsonl:": [], url: []}

    def work_on(home: Path, engine: str) -> Callable[[], None]:
        def work() -> None:
            with Backstory.open(home, background=False, event_store=engine) as bs:
                # A server has its connections when it is asked for a scope.
                bs.store.head("users/nobody/ledger")
                begun = time.perf_counter()
                assert len(bs.memory(scope="global").facts()) == _LIVE
                scopes[engine].append(time.perf_counter() - begun)

        return work

    here, there = work_on(files, "jsonl:"), work_on(elsewhere, url)
    here()
    begun = time.perf_counter()
    there()
    built = time.perf_counter() - begun
    on_engine, on_files = in_turn(there, here, rounds=25)
    warm, beside = (statistics.median(taken[1:]) for taken in (scopes[url], scopes["jsonl:"]))
    yield Row(f"  opening a scope of {commits:,} commits, index at hand / on files", times(warm / beside), "≤ 3 ×")
    yield Row("  opening and reading it; on files", f"{ms(warm)}, {ms(beside)}")
    yield Row(
        "  the same with opening and closing the home, and connecting; on files", f"{ms(on_engine)}, {ms(on_files)}"
    )
    yield Row("  appending both logs by the thousand; building the index from them", f"{ms(filled)}, {ms(built)}")
