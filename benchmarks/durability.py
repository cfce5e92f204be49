"""What it costs to keep a promise: a durable commit against the bare system calls, and many threads against one."""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from backstory.home import Backstory
from backstory.memory import MemoryHandle
from benchmarks.rows import Row, in_turn, times

__all__ = ["durability"]

_LIVE = 100
_BATCH = 40
_THREADS = 16
_SYNC_SECONDS = 0.005


def _bare(folder: Path, lines: list[bytes]) -> Callable[[], None]:
    """Append lines with flock, write and fdatasync on files that stay open: what no durable append can do without."""
    log = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    lock = os.open(folder / "bare.lock", os.O_RDWR | os.O_CREAT, 0o600)

    def append() -> None:
        for line in lines:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(log, line)
            os.fdatasync(log)
            fcntl.flock(lock, fcntl.LOCK_UN)

    return append


def _filled(bs: Backstory, facts: int) -> MemoryHandle:
    memory = bs.memory("ada")
    for n in range(facts):
        memory.add_fact(f"Ada keeps note {n} about the long walks that she takes in the woods")
    return memory


def _commit() -> Iterator[Row]:
    """A fact entered beside a hundred, and taken out again."""
    with tempfile.TemporaryDirectory() as folder, Backstory.open(folder, background=False, max_facts=101) as bs:
        memory = _filled(bs, _LIVE)
        numbers = itertools.count(_LIVE)

        def commits() -> None:
            for _ in range(_BATCH // 2):
                change = memory.add_fact(f"Ada keeps note {next(numbers)} about the long walks that she takes")
                memory.remove_fact(change.fact.id)

        commits()
        after = memory.head().seq - 2
        lines = [record.line + b"\n" for record in bs.store.read("users/ada/ledger", after)] * (_BATCH // 2)
        with mock.patch("os.fdatasync", return_value=None):
            unsynced, bare_unsynced = in_turn(commits, _bare(Path(folder), lines), rounds=15)
        ours, bare = in_turn(commits, _bare(Path(folder), lines), rounds=25)
    yield Row("durable commit by hand beside 100 facts / bare flock+write+fdatasync", times(ours / bare), "≤ 1.5 ×")
    yield Row("  of it bare, and all that is not the disk", f"{_us(bare)}, {_us(unsynced - bare_unsynced)}")


def _us(batch: float) -> str:
    return f"{batch / _BATCH * 1e6:.0f} µs"


@contextmanager
def _slow_disk() -> Iterator[None]:
    real = os.fdatasync

    def slow(descriptor: int) -> None:
        time.sleep(_SYNC_SECONDS)
        real(descriptor)

    with mock.patch("os.fdatasync", slow):
        yield


def _threads(commits: int, rounds: int) -> float:
    """How many times the commits a second of one thread sixteen make, on one scope."""
    with tempfile.TemporaryDirectory() as folder, Backstory.open(folder, background=False, max_facts=101) as bs:
        memory = _filled(bs, 10)
        numbers = itertools.count(10)

        def work(count: int) -> None:
            for _ in range(count):
                change = memory.add_fact(f"Ada keeps note {next(numbers)} about the long walks that she takes")
                memory.remove_fact(change.fact.id)

        with ThreadPoolExecutor(_THREADS) as pool:

            def together() -> None:
                list(pool.map(work, [commits // 2 // _THREADS] * _THREADS))

            together()
            alone, shared = in_turn(lambda: work(commits // 2), together, rounds=rounds)
    return alone / shared


def durability() -> Iterator[Row]:
    """Measure commits one by one, and of sixteen threads, on the disk as it is and on one whose sync takes 5 ms."""
    yield from _commit()
    with _slow_disk():
        yield Row("16 threads / 1 thread, commits/s, where a sync takes 5 ms", times(_threads(128, 5)), "≥ 4 ×")
    yield Row("16 threads / 1 thread, commits/s, on the disk as it is", times(_threads(640, 9)), "≥ 1.5 ×")
