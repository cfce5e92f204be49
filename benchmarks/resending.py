"""What it costs to tell what is new in a delivery: turns that are sent again after one of them was erased."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator

from backstory.home import Backstory
from benchmarks.rows import Row, ms, times

__all__ = ["resending"]


def resending(count: int) -> Iterator[Row]:
    """Measure so many equal turns sent again after an erasure, and twice as many."""
    with tempfile.TemporaryDirectory() as folder, Backstory.open(folder, background=False) as bs:
        once, twice = (_again(bs, f"user{factor}", factor * count) for factor in (1, 2))
    yield Row(f"{count:,} equal turns sent again after one in their midst was erased", ms(once), "linear")
    yield Row("  twice as many against that", times(twice / once), "≤ 4 ×")


def _again(bs: Backstory, user: str, count: int) -> float:
    memory = bs.memory(user)
    equal = [{"role": "user", "content": "ok"}] * (count // 2)
    said = [*equal, {"role": "user", "content": "my PIN is 1234"}, *equal]
    memory.record("t", said)
    memory.forget(matching="1234")
    memory.record("other", equal[:1])
    start = time.perf_counter()
    result = memory.record("t", said)
    took = time.perf_counter() - start
    if result.turns:
        raise AssertionError(f"{result.turns} turns were recorded again")
    return took
