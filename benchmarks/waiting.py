"""What a read costs while a writer is stuck, and what `status` costs whoever records meanwhile."""

from __future__ import annotations

import fcntl
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backstory.home import Backstory
from backstory.ledger.core.scope import Scope
from backstory.memory import MemoryHandle
from benchmarks.rows import Row, ms

__all__ = ["waiting"]

_ROUNDS = 50
_LOOKS = 20
_READS: tuple[Callable[[MemoryHandle], object], ...] = (
    lambda memory: memory.context("tea", thread="t"),
    lambda memory: memory.search("tea"),
    lambda memory: memory.search("tea", within="turns"),
    lambda memory: memory.document(),
    lambda memory: memory.log(limit=10),
    lambda memory: memory.status(),
    lambda memory: memory.transcript("t"),
    lambda memory: memory.turns.get(10),
)


def waiting(threads: int) -> Iterator[Row]:
    """Measure reads beside writers that wait for both logs' locks, and `status` over so many pending threads."""
    yield from _beside_stuck_writers()
    yield from _status(threads)


def _took(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold both logs' locks as another process would."""
    descriptors = [os.open(folder / f"{log}.lock", os.O_RDWR | os.O_CREAT, 0o600) for log in ("ledger", "transcript")]
    try:
        for descriptor in descriptors:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _beside_stuck_writers() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, Backstory.open(folder, background=False) as bs:
        memory = bs.memory("ada")
        for number in range(60):
            memory.add_fact(f"Likes tea number {number}")
            memory.record("t", _words(number), mode="append")
        writers = [
            threading.Thread(target=memory.add_fact, args=("Has a dog",)),
            threading.Thread(target=memory.record, args=("t", _words(100))),
            threading.Thread(target=memory.forget, kwargs={"matching": "number 7"}),
        ]
        for read in _READS:
            read(memory)
        with _held(Path(folder) / Scope("ada").folder):
            for writer in writers:
                writer.start()
            # Each has had the time to come to its lock.
            time.sleep(0.2)
            took = [_took(lambda read=read: read(memory)) for _ in range(_ROUNDS) for read in _READS]  # type: ignore[misc]
        for writer in writers:
            writer.join()
    told = f"{ms(statistics.median(took))}; {ms(max(took))}"
    yield Row("a read while writers wait for the locks of both logs, p50; longest", told, "≤ 10 ms; ≤ 100 ms")


def _status(threads: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        with Backstory.open(folder, background=False) as bs:
            memory = bs.memory("ada")
            for number in range(threads):
                memory.record(f"thread {number}", _words(number))
            first = _took(memory.status)
            later = [_took(memory.status) for _ in range(_LOOKS)]
            alone = [_took(lambda n=n: memory.record("beside", _words(n), mode="append")) for n in range(_LOOKS)]  # type: ignore[misc]
            done = threading.Event()

            def look() -> None:
                while not done.is_set():
                    memory.status()

            looking = threading.Thread(target=look)
            looking.start()
            try:
                beside = [_took(lambda n=n: memory.record("beside", _words(n), mode="append")) for n in range(_LOOKS)]  # type: ignore[misc]
            finally:
                done.set()
                looking.join()
        with Backstory.open(folder, background=False) as bs:
            reopened = _took(bs.memory("ada").status)
    what = f"status over {threads:,} pending threads"
    yield Row(f"{what}, p50; longest", f"{ms(statistics.median(later))}; {ms(max(later))}", "≤ 150 ms (p50)")
    yield Row(
        f"{what}, the first in a process that recorded them; in one that opens them", f"{ms(first)}; {ms(reopened)}"
    )
    yield Row(
        "a record, synced, while another thread asks for that status without a pause, p50; longest",
        f"{ms(statistics.median(beside))}; {ms(max(beside))}",
        "≤ 150 ms (longest)",
    )
    yield Row("the same without requests", f"{ms(statistics.median(alone))}; {ms(max(alone))}")


def _words(number: int) -> list[object]:
    return [
        {"role": "user", "content": f"I like tea number {number}, and I would like to have it at five."},
        {"role": "assistant", "content": "Noted."},
    ]
