"""Cost of a witness to a commit: the same commits with one, with one that hangs, and without one."""

from __future__ import annotations

import itertools
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from backstory.home import Backstory
from benchmarks.rows import Row, times

__all__ = ["witnessing"]

_LIVE = 100
_COMMITS = 4_000


def witnessing(scale: int = 1) -> Iterator[Row]:
    """Measure in turn, commit by commit: a fact entered beside a hundred, and taken out again, durable each time.

    Two homes without a witness show how far two that are the same differ on this machine.
    """
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as silent:
        # It takes connections and never answers.
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = f"{stack.enter_context(tempfile.TemporaryDirectory())}/heads.jsonl"
        homes = [
            stack.enter_context(_Committing(folder / str(n), witness))
            for n, witness in enumerate((None, None, file, address))
        ]
        took: list[list[float]] = [[] for _ in homes]
        for n in range(_COMMITS // scale):
            # The first of a round may find caches and disk in another state than the next.
            for place in range(len(homes)):
                which = (n + place) % len(homes)
                took[which].append(homes[which].commit())
    (none, none_99), (control, control_99), (filed, filed_99), (hung, hung_99) = map(_spread, took)
    yield Row(
        "durable commit with a witness file / without a witness, p50; p99",
        f"{times(filed / none)}; {times(filed_99 / none_99)}",
        "≤ 1.05 × (p50)",
    )
    yield Row(
        "  with a witness that hangs / without, p50; p99",
        f"{times(hung / none)}; {times(hung_99 / none_99)}",
        "≤ 1.05 × (p50)",
    )
    yield Row("  without / without, to compare, p50; p99", f"{times(control / none)}; {times(control_99 / none_99)}")


def _spread(seconds: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return statistics.median(seconds), cuts[98]


class _Committing:
    """A home with a hundred facts in one memory; a context manager."""

    def __init__(self, folder: Path, witness: str | None) -> None:
        self._bs = Backstory.open(
            folder, background=False, max_facts=_LIVE + 1, witness=witness, shutdown_flush_timeout_seconds=1
        )
        self._memory = self._bs.memory("ada")
        self._numbers = itertools.count()
        self._added = ""

    def __enter__(self) -> Self:
        for _ in range(_LIVE):
            self._add()
        self._added = ""
        return self

    def __exit__(self, *_: object) -> None:
        self._bs.close()

    def commit(self) -> float:
        """Make one commit, and return the seconds it took."""
        start = time.perf_counter()
        if self._added:
            self._memory.remove_fact(self._added)
            self._added = ""
        else:
            self._add()
        return time.perf_counter() - start

    def _add(self) -> None:
        text = f"Ada keeps note {next(self._numbers)} about the long walks that she takes in the woods"
        self._added = self._memory.add_fact(text).fact.id
