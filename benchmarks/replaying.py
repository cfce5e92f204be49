"""What replay and a decision cost: a ledger in a file against parsing its lines, and the pure core of one commit.

Every pair is timed in turn, A B A B, and medians are compared. Both sides read the same file, line by line. The peak of
memory is that of a fresh process which replays the file, chain verified, through the store.
"""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import orjson

from backstory.ledger.core.commands import AddFact, Extract, Proposal
from backstory.ledger.core.commit import EMPTY, Cause, Draft, Head, head_of, seal, unseal
from backstory.ledger.core.events import (
    Access,
    Candidate,
    Consolidation,
    Event,
    Extension,
    Fact,
    FactAdded,
    FactRemoved,
    NewFact,
    Reinforcement,
    Removal,
    TurnRange,
    UpdateProposed,
)
from backstory.ledger.core.memory import Fold, Memory
from backstory.ledger.core.policy import Policy
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.log.commits import read_commits
from backstory.ledger.rules.decide import decide
from benchmarks.rows import Row, in_turn

__all__ = ["PER_COMMIT", "deciding", "fact", "replaying", "write_ledger"]

PER_COMMIT = (1, 2, 5, 15)
"""Events a commit; a model's update makes about fifteen."""

_STREAM = "ledger"
_AT, _LATER = "2026-03-12T10:30:00.123456Z", "2026-09-12T10:30:00.123456Z"
_LIVE = 100
_CAUSE = Cause(
    kind="extraction",
    thread="thread-1",
    turns=TurnRange(1, 18),
    transcript=Head(7, "ab" * 32),
    model="a-model-of-our-time",
    prompt="cd" * 32,
    tokens_in=2900,
    tokens_out=700,
)


def fact(n: int) -> Fact:
    """The n-th fact: about 300 bytes as an event, as real ones are."""
    return Fact(
        id=f"fact_{n}_0",
        content=f"Ada keeps note {n} about the long walks that she takes in the woods behind the house",
        category="context",
        confidence=0.9,
        created_at=_AT,
        source="thread-1",
        seq=n,
    )


def _events() -> Iterator[Event]:
    """A memory at its cap: one fact goes, another comes."""
    for n in itertools.count(1):
        if n > _LIVE:
            yield FactRemoved(fact(n - _LIVE), "cap", detail=f"confidence 0.9, created {_AT}")
        yield FactAdded(fact(n), f"newFacts/{n % 10}")


def write_ledger(home: Path, events: int, per_commit: int) -> Path:
    """Write a ledger of so many events, so many a commit; returns its file. An odd number begins with the proposal."""
    salts = itertools.count()
    changes, head = _events(), EMPTY
    proposed = per_commit % 2 and per_commit > 1
    path = home / f"{_STREAM}.jsonl"
    with path.open("wb") as file:
        for seq in range(1, events // per_commit + 1):
            said: tuple[Event, ...] = (UpdateProposed(seq - 1, "ef" * 32, 2500),) if proposed else ()
            said += tuple(itertools.islice(changes, per_commit - len(said)))
            line = seal(Draft(_AT, _CAUSE, said), head, lambda: f"{next(salts):032x}")
            head = head_of(line)
            file.write(line + b"\n")
    return path


def _parse(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


def _replay(home: Path) -> Memory:
    fold = Fold(Memory())
    for commit in read_commits(JsonlStore(home), _STREAM):
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
    return fold.memory()


def _peak() -> float:
    """This process's peak of resident memory, in MB.

    Where the kernel says it of this program alone, it is taken from there: the peak that getrusage tells begins with
    that of the process which started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        told = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(told.split()[1]) / 1000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def _peak_of_replay(home: Path) -> float:
    child = subprocess.run(
        [sys.executable, "-m", __name__, str(home)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return float(child.stdout)


def _rows_of(home: Path, events: int, per_commit: int, rounds: int, *, long: bool) -> Iterator[Row]:
    path = write_ledger(home, events, per_commit)
    parsed, checked = in_turn(lambda: _parse(path), lambda: _replay(home), rounds=rounds, clock=time.process_time)
    told = f"cold replay of {events:,} events, {per_commit} a commit"
    yield Row(f"{told}, chain verified, rate / orjson.loads", f"{parsed / checked:.2f} ×", "≥ 0.35 ×")
    if long:
        yield Row(f"peak memory of that replay, {path.stat().st_size / 1e6:.0f} MB of log", _megabytes(home), "≤ 80 MB")


def _megabytes(home: Path) -> str:
    return f"{_peak_of_replay(home):.0f} MB"


def replaying(events: int = 1_000_000, *, rounds: int = 3) -> list[Row]:
    """Measure cold replay of `events` as updates make them, and, on a tenth, with fewer events a commit."""
    rows: list[Row] = []
    for per_commit in reversed(PER_COMMIT):
        long = per_commit == max(PER_COMMIT)
        with tempfile.TemporaryDirectory() as folder:
            rows += _rows_of(Path(folder), events if long else events // 10, per_commit, rounds, long=long)
    return rows


def _full(facts: int) -> Memory:
    live = {f.id: f for f in map(fact, range(facts))}
    return Memory(seq=facts, at=_AT, facts=live, policy=Policy(max_facts=facts))


def _each(work: Callable[[], object], times: int) -> Callable[[], object]:
    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated


def deciding() -> list[Row]:
    """Measure what of one commit by hand is neither lock nor disk, and one update of a full memory."""
    hundred, many = _full(_LIVE), _full(500)
    salts = itertools.count()
    words = NewFact(place="newFacts/0", content="Ada would rather walk than run", confidence=0.95, by_hand=True)
    head = Head(_LIVE, "ab" * 32)

    def by_hand(memory: Memory) -> None:
        events = decide(memory, AddFact(at=_AT, fact=words))
        line = seal(Draft(_AT, Cause(kind="manual", action="add"), events), head, lambda: f"{next(salts):032x}")
        commit = unseal(line, head, stream=_STREAM, byte=0)
        fold = Fold(memory)
        fold.advance(commit.seq, commit.at, commit.cause.kind, commit.events)
        fold.memory()

    def update(candidates: int, memory: Memory = many, **more: dict[str, Access]) -> Callable[[], object]:
        facts = tuple(
            NewFact(place=f"newFacts/{i}", content=f"Ada has {i} quite new thoughts", confidence=0.9)
            for i in range(candidates)
        )
        proposal = Proposal(facts, "", 0)
        command = Extract(at=_LATER, thread="thread-1", proposal=proposal, basis=many.seq, **more)
        return lambda: decide(memory, command)

    hybrid = Policy(
        max_facts=500, fact_eviction_policy="hybrid", consolidation_enabled=True, staleness_max_removals_per_cycle=100
    )
    ranked = msgspec.structs.replace(many, policy=hybrid)
    heat = {fact_id: Access(float(n % 9), _AT) for n, fact_id in enumerate(many.facts)}

    def every_kind(candidates: int) -> Callable[[], object]:
        """Half of it new facts, the rest reviews, confirmations and mergings of facts that are all due."""
        fifth = candidates // 10
        asked: list[Candidate] = [
            NewFact(place=f"newFacts/{i}", content=f"Ada has {i} quite new thoughts", confidence=0.9, scope="user")
            for i in range(candidates - 5 * fifth)
        ]
        for i in range(fifth):
            ids = [f"fact_{6 * i + k}_0" for k in range(6)]
            asked += [
                Removal(place=f"factsToRemove/{i}", id=ids[0], replacement=i),
                Reinforcement(place=f"factsToReinforce/{i}", id=ids[1]),
                Removal(place=f"staleFactsToRemove/{i}", id=ids[2]),
                Extension(place=f"staleFactsToExtend/{i}", id=ids[3], days=90),
                Consolidation(
                    place=f"factsToConsolidate/{i}", sources=(ids[4], ids[5]), content=f"Ada's {i} old thoughts"
                ),
            ]
        command = Extract(
            at=_LATER, thread="thread-1", proposal=Proposal(tuple(asked), "", 0), basis=many.seq, heat=heat
        )
        return lambda: decide(ranked, command)

    roomy = msgspec.structs.replace(hundred, policy=Policy(max_facts=_LIVE + 1))
    with_room, at_the_cap = in_turn(
        _each(lambda: by_hand(roomy), 500), _each(lambda: by_hand(hundred), 500), rounds=7, clock=time.process_time
    )
    twenty, two_hundred = in_turn(_each(update(20), 10), update(200), rounds=7, clock=time.process_time)
    twenty /= 10
    hot_twenty, hot_two_hundred, every_twenty, every_two_hundred = in_turn(
        _each(update(20, ranked, heat=heat), 10),
        update(200, ranked, heat=heat),
        _each(every_kind(20), 10),
        every_kind(200),
        rounds=7,
        clock=time.process_time,
    )
    hot_twenty, every_twenty = hot_twenty / 10, every_twenty / 10
    return [
        Row("decide, seal, read back, fold: a fact by hand beside 100", f"{with_room / 500 * 1e6:.0f} µs", "≤ 40 µs"),
        Row("the same at the cap, one evicted", f"{at_the_cap / 500 * 1e6:.0f} µs", "≤ 40 µs"),
        Row("decide 20 candidates on 500 facts", f"{1e3 * twenty:.2f} ms", "≤ 2 ms"),
        Row("decide 200 / 20 candidates on 500 facts", f"{two_hundred / twenty:.1f} ×", "≤ 10 ×"),
        Row("decide 20 on 500, ranked by hybrid with heat", f"{1e3 * hot_twenty:.2f} ms", "≤ 2 ms"),
        Row("decide 200 / 20 on 500, ranked by hybrid with heat", f"{hot_two_hundred / hot_twenty:.1f} ×", "≤ 10 ×"),
        Row("decide 20 of every kind on 500, all of them due", f"{1e3 * every_twenty:.2f} ms", "≤ 2 ms"),
        Row("decide 200 / 20 of every kind on 500", f"{every_two_hundred / every_twenty:.1f} ×", "≤ 10 ×"),
    ]


if __name__ == "__main__":
    _replay(Path(sys.argv[1]))
    sys.stdout.write(f"{_peak()}\n")
