"""The client of the measurement, a process of its own: what it costs to open a store of many streams, and to ask it.

Its arguments are the store's URL and the number of streams; it prints `Asked` as JSON.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from backstory.home import Backstory
from backstory.ledger.core.commit import Head
from backstory.ledger.core.scope import TRANSCRIPT, Scope
from backstory.ledger.engines.changes import StreamChanges
from benchmarks.many_streams.engines import memory_of
from benchmarks.many_streams.lines import (
    USERS_OF_A_TENANT,
    chosen,
    exchange,
    salts_of,
    stream,
    tenant,
    user,
)

__all__ = ["Asked", "Spread"]

_LOOKUPS = 1000
_OPENED = 200
_APPENDED = 100
_IDLE = 20
_PATIENCE = 20.0
"""Seconds after which a question that takes long is not repeated any more."""


class Spread(msgspec.Struct, frozen=True):
    """Seconds of one, over many."""

    p50: float
    p99: float

    @classmethod
    def of(cls, took: Sequence[float]) -> Spread:
        return cls(statistics.median(took), sorted(took)[int(len(took) * 0.99)])


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: seconds, and bytes of the client's RAM."""

    opened: float
    first: float
    cold: Spread
    warm: Spread
    tenant: float
    everything: float
    page: float
    changes_first: float
    changes_none: float
    changes_some: float
    append: Spread
    memory: Spread
    ram_before: int
    ram_opened: int
    ram_after: int


def ask(url: str, count: int) -> Asked:
    """Ask a store with so many streams; every answer is checked."""
    ram_before = memory_of([os.getpid()])
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Backstory.open(home_of(url, folder), background=False,
                                                                   event_store=engine_of(url)) as bs:  # fmt: skip
        store = bs.store
        opened = time.perf_counter() - begun
        first = _took(lambda: store.head(stream(0)))
        ram_opened = memory_of([os.getpid()])
        numbers = chosen(_LOOKUPS, count)

        def lookup(number: int) -> None:
            name = stream(number)
            head = store.head(name)
            (record,) = store.read(name)
            assert head.seq == 1
            assert f'"{head.hash}"'.encode() in record.line[-80:]
            assert user(number // 2).encode() in record.line

        cold, warm = (Spread.of([_took(lambda n=n: lookup(n)) for n in numbers]) for _ in range(2))  # type: ignore[misc]
        users = count // 2
        named: list[str] = []
        of_tenant = _took(lambda: named.extend(store.streams(f"users/{tenant(0)}")))
        assert len(named) == 2 * min(USERS_OF_A_TENANT, users)
        page = _took(lambda: _must_be(len(bs.find_owners(limit=20).owners), 20))
        everything = _took(lambda: _must_be(sum(1 for _ in store.streams()), count))

        changes = StreamChanges(store)
        changes_first = _took(lambda: list(changes.find(lambda _: True)))
        # Streams that changed in the last moment may be named again.
        list(changes.find(lambda _: True))
        idle: list[float] = []
        while len(idle) < _IDLE and sum(idle) < _PATIENCE:
            idle.append(_took(lambda: list(changes.find(lambda _: True))))
        salts, took = salts_of(2), []
        for number in chosen(min(_APPENDED, users), users):
            name = Scope(user(number)).stream(TRANSCRIPT)
            head = store.head(name)
            line = exchange(user(number), Head(head.seq, head.hash), salts)
            took.append(_took(lambda name=name, line=line, head=head: store.append(name, [line], head.seq)))  # type: ignore[misc]
        found: list[str] = []
        changes_some = _took(lambda: found.extend(changes.find(lambda _: True)))
        assert len(found) >= len(took)

        def open_memory(number: int) -> None:
            assert not bs.memory(user(number)).facts()

        memory = Spread.of([_took(lambda n=n: open_memory(n)) for n in chosen(_OPENED, users)])  # type: ignore[misc]
        return Asked(
            opened=opened, first=first, cold=cold, warm=warm, tenant=of_tenant, everything=everything, page=page,
            changes_first=changes_first, changes_none=statistics.median(idle), changes_some=changes_some,
            append=Spread.of(took), memory=memory,
            ram_before=ram_before, ram_opened=ram_opened, ram_after=memory_of([os.getpid()]),
        )  # fmt: skip


def home_of(url: str, otherwise: str) -> Path:
    """Return the home folder of a store: files lie in it."""
    return Path(url.removeprefix("jsonl:") if url.startswith("jsonl:") else otherwise)


def engine_of(url: str) -> str:
    """Return what `event_store` says of a store."""
    return "jsonl:" if url.startswith("jsonl:") else url


def _must_be(found: int, wanted: int) -> None:
    assert found == wanted, (found, wanted)


def _took(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(ask(sys.argv[1], int(sys.argv[2]))))
