"""Questions what has changed, as each process of a home asks them again and again: how many are answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

from backstory.ledger.engines.nats.store import NatsStore
from backstory.ledger.engines.postgres.store import PostgresStore
from benchmarks.rows import Row

__all__ = ["looking"]

_SECONDS = 2.0
_THREADS = (1, 4, 8)


def looking(store: PostgresStore | NatsStore) -> Iterator[Row]:
    """Measure a store, and close it."""
    with closing(store):
        rates = [_answered(store, threads) for threads in _THREADS]
    yield Row(
        "  questions what has changed, answered in a second to 1, 4 and 8 threads, where nothing has",
        ", ".join(f"{rate:,.0f}" for rate in rates),
    )


def _answered(store: PostgresStore | NatsStore, threads: int) -> float:
    answered = [0] * threads
    _, position = store.changed(None)
    end = time.monotonic() + _SECONDS

    def ask(who: int) -> None:
        while time.monotonic() < end:
            store.changed(position)
            answered[who] += 1

    asking = [threading.Thread(target=ask, args=(who,)) for who in range(threads)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return sum(answered) / _SECONDS
