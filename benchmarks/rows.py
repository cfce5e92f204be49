"""What a measurement is: a row of the table, and work timed in turn so that the machine's own speed cancels out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import msgspec

__all__ = ["Row", "in_turn", "ms", "times"]


class Row(msgspec.Struct, frozen=True):
    """One line of the table: what was measured, what came of it, what was wanted ("" for a figure that explains)."""

    what: str
    figure: str
    target: str = ""


def in_turn(
    *works: Callable[[], object], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, ...]:
    """Return the median seconds of each, run A B A B; `time.process_time` for what waits for nothing."""
    took: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for spans, work in zip(took, works, strict=True):
            start = clock()
            work()
            spans.append(clock() - start)
    return tuple(map(statistics.median, took))


def times(ratio: float) -> str:
    """Spell a ratio."""
    return f"{ratio:.2f} ×"


def ms(seconds: float) -> str:
    """Spell a time."""
    return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
