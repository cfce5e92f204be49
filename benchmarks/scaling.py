"""Whether size is felt: a scope of a million commits against one of a thousand, and a home of 100,000 scopes."""

from __future__ import annotations

import itertools
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backstory.home import Backstory
from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, head_of, seal
from backstory.ledger.core.events import (
    Event,
    Fact,
    FactAdded,
    FactRemoved,
    PolicyChanged,
    Turn,
    TurnRange,
    TurnRecorded,
)
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from benchmarks.rows import Row, in_turn, ms, times

__all__ = ["at_time", "fact_of", "home_of", "many_scopes", "one_scope", "write_log"]

_LIVE = 100
_THREADS = 1_000
_ENDED_ONE_IN = 10


def at_time(n: int) -> str:
    """The time of the n-th commit: one a second."""
    day, second = divmod(n, 86_400)
    month, day = divmod(day, 28)
    return f"2026-{month + 1:02}-{day + 1:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000000Z"


def fact_of(seq: int) -> Fact:
    """The fact that a commit adds."""
    year, month = divmod(seq // _ENDED_ONE_IN, 12)
    return Fact(
        id=f"fact_{seq}_0",
        content=f"Ada keeps note {seq} about the long walks that she takes in the woods behind the house",
        category="context",
        confidence=0.9,
        created_at=at_time(seq),
        source=f"thread-{seq % _THREADS}",
        seq=seq,
        valid_from=None if seq % _ENDED_ONE_IN else f"{2000 + year % 20}-{month + 1:02}",
    )


def write_log(path: Path, drafts: Iterator[Draft]) -> None:
    """Write a log of these drafts."""
    salts = itertools.count()
    head: Head = EMPTY
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for draft in drafts:
            line = seal(draft, head, lambda: f"{next(salts):032x}")
            head = head_of(line)
            file.write(line + b"\n")


def _genesis(scope: Scope) -> Draft:
    return Draft(at_time(0), Cause(kind="genesis", user=scope.user), (PolicyChanged(None, Policy()),))


def _gone(fact: Fact) -> FactRemoved:
    """Evict a fact, or end one of those that say since when they are true, as true for two months."""
    if fact.valid_from is None:
        return FactRemoved(fact, "cap")
    year, month = divmod(int(fact.valid_from[:4]) * 12 + int(fact.valid_from[5:]), 12)
    return FactRemoved(fact, "ended", valid_until=f"{year}-{month + 1:02}")


def _ledger(commits: int) -> Iterator[Draft]:
    """A memory at its cap: each commit learns from one turn, adds a fact, and evicts the oldest or ends it."""
    yield _genesis(Scope())
    for seq in range(2, commits + 1):
        n = (seq - 2) // _THREADS + 1
        cause = Cause(kind="extraction", thread=f"thread-{seq % _THREADS}", turns=TurnRange(n, n), model="a-model")
        gone: list[Event] = [_gone(fact_of(seq - _LIVE))] if seq > _LIVE + 1 else []
        yield Draft(at_time(seq), cause, (*gone, FactAdded(fact_of(seq), "newFacts/0")))


def _transcript(commits: int) -> Iterator[Draft]:
    for seq in range(2, commits + 1):
        n = (seq - 2) // _THREADS + 1
        thread = f"thread-{seq % _THREADS}"
        cause = Cause(kind="record", thread=thread, turns=TurnRange(n, n))
        turn = Turn(
            n=n, id=f"t{n}", role="user", content=f"I took walk {seq} in the woods.", at=at_time(seq), anonymous=True
        )
        yield Draft(at_time(seq), cause, (TurnRecorded(turn),))


def home_of(folder: Path, commits: int) -> None:
    """Write a home whose global memory has logs of so many commits."""
    write_log(folder / "ledger.jsonl", _ledger(commits))
    write_log(folder / "transcript.jsonl", _transcript(commits))


def _opened(folder: Path) -> Callable[[], None]:
    def work() -> None:
        with Backstory.open(folder, background=False) as bs:
            assert len(bs.memory(scope="global").facts()) == _LIVE

    return work


def _each(work: Callable[[int], object], seqs: list[int], clock: Callable[[], float] = time.perf_counter) -> float:
    """Median seconds of one."""
    took = []
    for seq in seqs:
        start = clock()
        work(seq)
        took.append(clock() - start)
    return statistics.median(took)


def one_scope(commits: int) -> Iterator[Row]:
    """Measure opening and asking, with a warm index, where both logs have so many commits."""
    chosen = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large", Path(folder) / "small"
        home_of(large, commits)
        home_of(small, 1_000)
        start = time.perf_counter()
        _opened(large)()
        built = time.perf_counter() - start
        _opened(small)()
        many, few = in_turn(_opened(large), _opened(small), rounds=31)
        size = (large / "index.sqlite").stat().st_size / sum(p.stat().st_size for p in large.glob("*.jsonl"))
        with Backstory.open(large, background=False) as bs:
            memory = bs.memory(scope="global")
            seqs = [chosen.randrange(_LIVE + 2, commits) for _ in range(100)]
            shown = _each(lambda seq: memory.document(at=seq), seqs)
            then = _each(lambda seq: memory.document(at=at_time(seq)), seqs)
            months = {seq: f"{chosen.randrange(2000, 2020)}-{chosen.randrange(1, 13):02}" for seq in seqs}
            found = _each(memory.facts, seqs, time.process_time)
            true = _each(lambda seq: memory.facts(seq, valid_at=months[seq]), seqs, time.process_time)
            many_true = statistics.median(len(memory.facts(seq, valid_at=months[seq])) for seq in seqs)
            why = _each(lambda seq: memory.why(f"fact_{seq}_0"), seqs)
    name = f"{commits:,} commits"
    yield Row(f"opening a scope of {name} / of 1,000, index warm", times(many / few), "≤ 1.5 ×")
    yield Row("  opening, reading the facts and closing it", f"{ms(many)}, {ms(few)}")
    yield Row(f"show --at a random commit, a random time, of {name}, p50", f"{ms(shown)}, {ms(then)}", "≤ 20 ms")
    beyond, ended = f"facts(at, valid_at) beyond facts(at), of {name}, p50, of a processor", commits // _ENDED_ONE_IN
    yield Row(beyond, ms(true - found), "≤ 10 ms")
    yield Row(
        "  facts(at, valid_at), facts(at); facts found, of ended",
        f"{ms(true)}, {ms(found)}; {many_true:.0f} of {ended:,}",
    )
    yield Row(f"why a random fact, of {name}, p50", ms(why), "≤ 5 ms")
    yield Row("  building the index from nothing; its size / that of the logs", f"{ms(built)}; {times(size)}")


def _scopes(folder: Path, count: int) -> None:
    for number in range(count):
        scope = Scope(f"user{number}")
        added = Draft(at_time(1), Cause(kind="manual", action="add"), (FactAdded(fact_of(2)),))
        write_log(folder / scope.folder / "ledger.jsonl", iter([_genesis(scope), added]))


def many_scopes(count: int) -> Iterator[Row]:
    """Measure a home of so many scopes: to list them, and to open one of them against one of ten."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large", Path(folder) / "small"
        _scopes(large, count)
        _scopes(small, 10)
        numbers = itertools.count()

        def opening(home: Path, below: int) -> Callable[[], None]:
            def work() -> None:
                with Backstory.open(home, background=False) as bs:
                    assert len(bs.memory(f"user{next(numbers) % below}").facts()) == 1

            return work

        many, few = in_turn(opening(large, count), opening(small, 10), rounds=31)
        with Backstory.open(large, background=False) as bs:
            os.sync()
            start = time.perf_counter()
            assert len(bs.scopes()) == count
            listed = time.perf_counter() - start
    yield Row(f"opening one scope of {count:,} / of 10", times(many / few), "1 ×")
    yield Row(f"listing {count:,} scopes", ms(listed), "≤ 10 s")
