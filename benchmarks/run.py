"""What things cost, as ratios of one thing to another in one run: the machine's own speed cancels out.

Each pair is timed in turn, A B A B, and the median of each is compared. Run it with `make bench`.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import orjson
from rich.console import Console
from rich.table import Table

from backstory.api import Backstory
from ledger.commands import Extract, Proposal
from ledger.commit import EMPTY, Cause, Draft, Event, inspect, replay_line, seal, unseal
from ledger.decide import decide
from ledger.events import Fact, FactAdded, FactRemoved, NewFact
from ledger.memory import Fold, Memory
from ledger.policy import Policy

ROUNDS = 7
FULL = 100


def fact(n: int) -> Fact:
    text = f"Ada keeps note {n} about the long walks that she takes in the woods behind the house"
    return Fact(
        id=f"fact_{n}_0",
        content=text,
        category="context",
        confidence=0.9,
        created_at="2026-03-12T10:30:00.123456Z",
        source="thread-1",
        seq=n,
    )


def lines(commits: int) -> list[bytes]:
    """A ledger at its cap: each commit adds a fact and evicts the oldest."""
    salts = itertools.count()
    head, made = EMPTY, []
    for n in range(1, commits + 1):
        events: list[Event] = [FactRemoved(fact(n - FULL), "cap")] if n > FULL else []
        draft = Draft("2026-03-12T10:30:00.123456Z", Cause(kind="extraction"), (*events, FactAdded(fact(n))))
        line = seal(draft, head, lambda: f"{next(salts):032x}")
        head = unseal(line, head, stream="bench", byte=0).head
        made.append(line)
    return made


def in_turn(a: Callable[[], object], b: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of each, run alternately."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for times, work in zip(took, (a, b), strict=True):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return statistics.median(took[0]), statistics.median(took[1])


def replay(made: list[bytes]) -> Memory:
    fold = Fold(Memory())
    for line in made:
        fold.advance(*replay_line(line))
    return fold.memory()


def replay_verified(made: list[bytes]) -> Memory:
    fold, head = Fold(Memory()), EMPTY
    for line in made:
        commit = unseal(line, head, stream="bench", byte=0)
        head = commit.head
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return fold.memory()


def bare_append(folder: Path, data: bytes, count: int) -> None:
    log = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    lock = os.open(folder / "bare.lock", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(count):
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(log, data)
        os.fdatasync(log)
        fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(log)
    os.close(lock)


def durable(table: Table) -> None:
    with tempfile.TemporaryDirectory() as folder, Backstory.open(folder, background=False) as bs:
        memory = bs.memory("ada")
        for n in range(FULL):
            memory.add_fact(f"note {n}")
        numbers = itertools.count(FULL)

        def commits() -> None:
            for _ in range(20):
                change = memory.add_fact(f"note {next(numbers)}")
                memory.remove_fact(change.fact.id)

        memory.set_policy(max_facts=FULL + 1)
        last = next(iter(bs.store.read("users/ada/ledger", memory.head().seq - 1))).line + b"\n"
        ours, bare = in_turn(commits, lambda: bare_append(Path(folder), last, 40))
        table.add_row("durable commit by hand, memory.json included / bare flock+write+fdatasync", _times(ours / bare))


def learning(table: Table) -> None:
    memory = replay(lines(500))
    memory = msgspec.structs.replace(
        memory, policy=Policy(max_facts=500), facts={f.id: f for f in map(fact, range(500))}
    )

    def update(candidates: int) -> Callable[[], object]:
        facts = tuple(
            NewFact(place=f"newFacts/{i}", content=f"quite new {i}", confidence=0.9) for i in range(candidates)
        )
        command = Extract(
            at="2026-03-12T10:30:00.123456Z", thread="t", proposal=Proposal(facts, "", 0), basis=memory.seq
        )
        return lambda: decide(memory, command)

    twenty, two_hundred = in_turn(update(20), update(200))
    table.add_row("decide 20 candidates on 500 facts", f"{1e3 * twenty:.2f} ms")
    table.add_row("decide 200 / 20 candidates on 500 facts", _times(two_hundred / twenty))


def reading(table: Table) -> None:
    made = lines(20_000)

    def each(read: Callable[[bytes], object]) -> None:
        for line in made:
            read(line)

    def parse() -> None:
        each(orjson.loads)

    folded, parsed = in_turn(lambda: replay(made), parse)
    table.add_row("cold replay, rate / orjson.loads", _times(parsed / folded))
    checked, parsed = in_turn(lambda: replay_verified(made), parse)
    table.add_row("cold replay with the chain verified, rate / orjson.loads", _times(parsed / checked))
    hashed, parsed = in_turn(lambda: each(inspect), parse)
    table.add_row("chain alone, rate / orjson.loads", _times(parsed / hashed))
    typed = msgspec.json.Decoder(_Typed)
    structs, parsed = in_turn(lambda: each(typed.decode), parse)
    table.add_row("events as msgspec structs, rate / orjson.loads", _times(parsed / structs))


class _Typed(msgspec.Struct):
    events: tuple[Event, ...]


def _times(ratio: float) -> str:
    return f"{ratio:.2f} ×"


def main() -> None:
    table = Table("what", "figure", title=f"{platform.machine()}, Python {platform.python_version()}")
    reading(table)
    durable(table)
    learning(table)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
