"""Rounds of faults: workers of two processes learn from what both record in the same memories, once from each turn."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from fakes import PATIENCE
from faults.logs import Scope
from rounds.child import Child
from rounds.engines import ENGINES, Engine
from rounds.learners import Learner, Step, open_learning
from rounds.test_rounds import wait
from rounds.writers import open_engine
from sizes import LONG, sized

from backstory.ledger.core.errors import BackstoryError
from backstory.memory import MemoryHandle

pytestmark = [
    pytest.mark.engine,
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

ROUNDS = sized(1, 100)
THREADS = sized(2, 3)
USERS = ["u0", "u1"]
MORE = sized(3, 6)
"""How often each process records, and asks the model, before the first fault and after each."""


class Learning(Child):
    """A process that records and learns, and the file of its steps."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.steps"
        super().__init__("learners", url, folder / name, self.file, str(THREADS), *USERS)

    def steps(self) -> list[Step]:
        """What has happened; the last line of a process that was killed may be cut short."""
        if not self.file.exists():
            return []
        *whole, _ = self.file.read_bytes().split(b"\n")
        return [msgspec.json.decode(line, type=Step) for line in whole]

    def counts(self) -> tuple[int, int]:
        """How often it has recorded, and asked."""
        self.must_run()
        steps = self.steps()
        asked = sum(step.what == "asked" for step in steps)
        return len(steps) - asked, asked


def wait_for_more(learning: Sequence[Learning]) -> None:
    """Wait until both have recorded more, and the model was asked more often."""
    before = [one.counts() for one in learning]
    for one, (recorded, _) in zip(learning, before, strict=True):
        wait(lambda one=one, recorded=recorded: one.counts()[0] >= recorded + MORE)  # type: ignore[misc]
    asked = sum(count for _, count in before)
    wait(lambda: sum(one.counts()[1] for one in learning) >= asked + MORE)


def scopes_of(url: str, folder: Path) -> list[Scope]:
    """Write what the engine holds into files, for a reader that is not under test."""
    store = open_engine(url)
    scopes = []
    for user in USERS:
        below = folder / user
        below.mkdir(parents=True, exist_ok=True)
        for name in ("ledger", "transcript"):
            lines = [record.line + b"\n" for record in store.read(f"users/{user}/{name}")]
            (below / f"{name}.jsonl").write_bytes(b"".join(lines))
        scopes.append(Scope(below))
    store.close()
    return scopes


def drain(url: str, home: Path) -> None:
    """Learn from all that is pending."""
    with open_learning(url, home, Learner()) as bs:
        for user in USERS:
            memory = bs.memory(user)
            wait(lambda memory=memory: is_drained(memory))  # type: ignore[misc]


def is_drained(memory: MemoryHandle) -> bool:
    """Learn from what is pending, and say whether nothing is left."""
    # An update of a process that was killed may still hold its lease.
    with suppress(BackstoryError):
        memory.flush(5)
    status = memory.status()
    return not status.pending and not status.parked


def problems_of(scopes: Sequence[Scope], steps: Sequence[Step]) -> list[str]:
    """Say which turns were lost, recorded twice, learned from twice or not at all, and which facts were added twice."""
    problems: list[str] = []
    acknowledged = {text for step in steps for text in step.texts}
    said: list[str] = []
    for scope in scopes:
        turns, covered = scope.turns(), scope.covered()
        said += turns.values()
        problems += [f"{where} was learned from {covered[where]} times" for where in turns if covered[where] != 1]
        problems += [f"{where} was learned from, and not recorded" for where in covered if where not in turns]
        problems += [f"{fact!r} was added {times} times" for fact, times in scope.added().items() if times != 1]
    problems += [f"{text!r} was recorded {said.count(text)} times" for text in set(said) if said.count(text) != 1]
    problems += [f"{text!r} is lost" for text in sorted(acknowledged - set(said))]
    return problems


def refused(scopes: Sequence[Scope]) -> int:
    """How many answers came too late, since another process had learned from the same turns."""
    events = (event for scope in scopes for event in scope.ledger.events("CandidateRejected"))
    return sum(event["rule"] == "covered" for event in events)


def play(engine: Engine, number: int, folder: Path) -> list[str]:
    """Play a round and return what is wrong."""
    chance = random.Random(number)  # noqa: S311 moments are chosen
    reached, direct = engine.begin(number)
    learning = [Learning(reached, folder, f"learner{one}") for one in range(2)]
    everyone = [*learning]
    others = sorted(set(engine.faults) - {"drop", "delay"})
    faults = ["learner", "drop", *(["delay"] if LONG else []), others[number % len(others)]]
    chance.shuffle(faults)
    try:
        for _ in range(sized(1, 2)):
            wait_for_more(learning)
        # No lease was lost so far: no answer was asked for that another process had asked for.
        problems = ["an answer came too late before any fault"] * refused(scopes_of(direct, folder / "before"))
        for fault in faults:
            time.sleep(chance.random() / 10)
            if fault == "learner":
                learning[0].kill()
                learning[0] = Learning(reached, folder, "again")
                everyone.append(learning[0])
            else:
                engine.faults[fault](chance)
            wait_for_more(learning)
        for one in learning:
            one.end()
    finally:
        for one in learning:
            one.kill()
    drain(direct, folder / "heir")
    problems += problems_of(scopes_of(direct, folder / "after"), [step for one in everyone for step in one.steps()])
    engine.end()
    return problems


@pytest.mark.torture
@pytest.mark.timeout(PATIENCE * 20 * ROUNDS)
@pytest.mark.parametrize("name", ENGINES)
def test_no_turn_is_learned_from_twice_whatever_fails(name: str, tmp_path: Path) -> None:
    with ENGINES[name]() as engine:
        for number in range(ROUNDS):
            begun = time.monotonic()
            folder = tmp_path / str(number)
            folder.mkdir()
            problems = play(engine, number, folder)
            print(f"round {number}: {time.monotonic() - begun:.1f} s")  # noqa: T201 shown beside a failure
            assert problems == [], f"round {number}"
