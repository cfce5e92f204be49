"""One update: how often a model is asked, what becomes of its answer, and what may happen while it thinks."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from fakes import PATIENCE, CountingSalts, FakeClock, Gate, ScriptedModel, Step, exchange, open_home, reply, updater_on

from backstory.ledger.core.commands import AddFact, Clear, Command, Revert
from backstory.ledger.core.commit import Cause, Commit
from backstory.ledger.core.errors import ConfigError, ModelError, ModelRejectedError, ModelUnavailableError, StoreError
from backstory.ledger.core.events import (
    CandidateRejected,
    FactAdded,
    FactRemoved,
    NewFact,
    TurnRange,
    UpdateFailed,
    UpdateProposed,
)
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.ledger.erasure.requests import ForgetMatching
from backstory.ledger.extraction.models.model import Answer, Prompt, Usage
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.learning.updater import Job, Outcome
from backstory.ledger.log.commits import read_commits
from backstory.ledger.log.writer import Writer
from backstory.ledger.messages import keep, read_message
from backstory.ledger.text.tokens import estimate_tokens
from backstory.memory import MemoryHandle

BUSY = ModelUnavailableError("busy")


class Desk:
    """A writer with one conversation recorded, and an updater beside it, on one fake clock."""

    def __init__(self, home: Path, *, turns: int = 2, **settings: object) -> None:
        self.clock = FakeClock()
        self.home = home
        self.writer = Writer(JsonlStore(home), Scope("ada"), clock=self.clock, salts=CountingSalts())
        self.updater = updater_on(self.clock, **settings)  # type: ignore[arg-type]
        self.say(turns // 2)
        self.job = Job("t", TurnRange(1, turns))

    def say(self, exchanges: int = 1, *, topic: str = "tea") -> None:
        self.tell([message for _ in range(exchanges) for message in exchange(topic)])

    def tell(self, messages: Sequence[dict[str, object]]) -> None:
        self.writer.record("t", keep([read_message(message) for message in messages]), mode="append")

    def run(self, *script: Step, job: Job | None = None) -> Outcome:
        """Run a job that is one update."""
        (outcome,) = self.run_all(*script, job=job)
        return outcome

    def run_all(self, *script: Step, job: Job | None = None, repeat: bool = False) -> tuple[Outcome, ...]:
        self.model = ScriptedModel(*script, repeat=repeat)
        return self.updater.run(self.writer, job or self.job, self.model)

    @property
    def failures(self) -> list[UpdateFailed]:
        commits = read_commits(self.writer.store, self.writer.ledger)
        return [event for commit in commits for event in commit.events if isinstance(event, UpdateFailed)]

    @property
    def memory(self) -> Memory:
        return self.writer.memory()

    @property
    def texts(self) -> list[str]:
        return [fact.content for fact in self.memory.in_order()]

    @property
    def pending(self) -> list[TurnRange]:
        with self.writer.state() as state:
            return state.coverage.pending(state.transcript.threads["t"])

    @property
    def parked(self) -> list[tuple[TurnRange, str, int]]:
        with self.writer.state() as state:
            found = state.coverage.parked(state.transcript.threads["t"])
        return [(item.turns, item.reason, item.attempts) for item in found]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# Asking


def test_an_answer_becomes_one_commit_that_says_where_it_comes_from(desk):
    outcome = desk.run(Answer(reply("Likes tea"), "served-model", Usage(11, 7)))
    commit = outcome.commit
    assert (outcome.covered, outcome.failed) == (True, False)
    assert desk.texts == ["Likes tea"]
    assert commit.seq == 2
    cause = commit.cause
    assert (cause.kind, cause.thread, cause.turns) == ("extraction", "t", TurnRange(1, 2))
    assert (cause.model, cause.tokens_in, cause.tokens_out) == ("served-model", 11, 7)
    assert cause.prompt == desk.model.prompts[0].digest
    assert cause.transcript.seq == 1
    assert desk.pending == []


def test_the_model_is_asked_about_the_turns_of_the_job_alone(tmp_path):
    desk = Desk(tmp_path, turns=6)
    desk.run(reply(), job=Job("t", TurnRange(3, 4)))
    (prompt,) = desk.model.prompts
    assert "[3] user" in prompt.user
    assert "[4] assistant" in prompt.user
    assert "[2]" not in prompt.user
    assert "[5]" not in prompt.user


def test_an_update_that_changes_nothing_is_a_commit_too(desk):
    assert desk.run(reply()).commit.seq == 2
    assert desk.pending == []


def test_turns_that_no_longer_stand_are_not_asked_about(desk):
    another_answer = [read_message(message) for message in (exchange("tea")[0], exchange("milk")[1])]
    assert desk.writer.record("t", keep(another_answer), mode="replace").turns == 1
    assert desk.run_all(reply("never"), job=Job("t", TurnRange(2, 2))) == ()
    assert desk.model.prompts == []
    assert desk.memory.seq == 0


BILLS = (
    Usage(-1, 2**80),
    Usage("11", 1.5),  # type: ignore[arg-type]
    Usage(True, False),
    Usage(None, None),
    None,
    True,
    "11 tokens",
    {"input": 11},
    [11, 7],
    11,
)


@pytest.mark.parametrize("usage", BILLS)
def test_a_bill_that_cannot_be_is_left_out(desk, usage):
    cause = desk.run(Answer(reply("Likes tea"), "m\ud800", usage)).commit.cause
    assert (cause.tokens_in, cause.tokens_out, cause.model) == (None, None, "m\ufffd")


# Trying again


def test_the_pause_doubles_from_a_second_to_a_minute(tmp_path):
    desk = Desk(tmp_path, max_attempts=9)
    outcome = desk.run(*[BUSY] * 9)
    assert desk.clock.slept == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(desk.model.prompts) == 9
    assert (outcome.failed, outcome.covered) == (True, False)
    assert desk.parked == [(TurnRange(1, 2), "unavailable", 9)]
    assert [failure.detail for failure in desk.failures] == ["busy"]


@pytest.mark.parametrize(
    ("asked", "slept"),
    [
        (None, 1),
        (0.0, 1),
        (0.5, 1),
        (17.0, 17),
        (299.0, 299),
        (86_400.0, 300),
        (float("inf"), 300),
        (float("nan"), 1),
        (-5.0, 1),
    ],
)
def test_a_server_s_wish_is_honoured_within_reason(desk, asked, slept):
    assert not desk.run(ModelUnavailableError("busy", retry_after=asked), reply("Likes tea")).failed
    assert desk.clock.slept == [slept]


def test_a_wish_never_shortens_the_pause(desk):
    desk.run(BUSY, BUSY, BUSY, ModelUnavailableError("busy", retry_after=3), reply())
    assert desk.clock.slept == [1, 2, 4, 8]


def test_what_comes_right_in_the_end_leaves_no_trace_of_the_failures(desk):
    assert not desk.run(BUSY, BUSY, reply("Likes tea")).failed
    assert desk.failures == []
    assert desk.texts == ["Likes tea"]
    assert desk.memory.seq == 2


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_after_the_last_attempt_the_turns_are_parked(tmp_path, attempts):
    desk = Desk(tmp_path, max_attempts=attempts)
    desk.run(*[BUSY] * 10)
    assert len(desk.model.prompts) == attempts
    assert desk.parked == [(TurnRange(1, 2), "unavailable", attempts)]


def test_what_was_rejected_is_not_asked_again(desk):
    assert desk.run(ModelRejectedError("check OPENAI_API_KEY"), reply("never")).failed
    assert len(desk.model.prompts) == 1
    assert desk.clock.slept == []
    assert desk.parked == [(TurnRange(1, 2), "rejected", 1)]
    assert desk.failures[0].detail == "check OPENAI_API_KEY"


def test_a_broken_reply_is_not_asked_for_again(desk):
    outcome = desk.run(Answer("half {", "served-model", Usage(3, 4)), reply("never"))
    assert outcome.failed
    assert len(desk.model.prompts) == 1
    assert desk.parked == [(TurnRange(1, 2), "reply", 1)]
    # It was paid for, all the same.
    assert (outcome.commit.cause.model, outcome.commit.cause.tokens_out) == ("served-model", 4)
    assert outcome.commit.cause.turns is None


def test_attempts_add_up_over_retries(desk):
    desk.run(*[BUSY] * 5)
    desk.run(BUSY, "half {", job=Job("t", TurnRange(1, 2), attempts=5))
    assert desk.parked == [(TurnRange(1, 2), "reply", 7)]
    assert not desk.run(reply("Likes tea"), job=Job("t", TurnRange(1, 2), attempts=7)).failed
    assert (desk.parked, desk.pending) == ([], [])


def test_a_long_complaint_is_clipped(desk):
    desk.run(ModelRejectedError("x" * 10_000 + "\ud800"))
    assert 1_900 < len(desk.failures[0].detail) <= 2_000


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyError("choices"), RecursionError(), OSError("reset")])
def test_a_model_that_breaks_its_word_is_tried_again_and_then_parked(desk, error):
    assert not desk.run(error, reply("Likes tea")).failed
    desk.say()
    desk.run(*[error] * 9, job=Job("t", TurnRange(3, 4)))
    assert len(desk.model.prompts) == 5
    assert desk.parked == [(TurnRange(3, 4), "unavailable", 5)]
    assert type(error).__name__ in desk.failures[0].detail


@pytest.mark.parametrize("said", [None, "text", {"newFacts": []}, Answer(None, "m"), Answer(b"{}", "m")])
def test_a_model_that_answers_with_no_answer_is_parked_at_once(desk, said):
    class Odd:
        name = "odd"

        def ask(self, prompt: Prompt) -> Answer:
            return said

    (outcome,) = desk.updater.run(desk.writer, desk.job, Odd())
    assert outcome.failed
    assert desk.parked == [(TurnRange(1, 2), "rejected", 1)]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_whoever_interrupts_the_program_interrupts_the_update(desk, stop):
    with pytest.raises(stop):
        desk.run(stop())
    assert desk.memory.seq == 0
    assert desk.pending == [TurnRange(1, 2)]


# Keeping calls apart


def test_calls_are_kept_apart(tmp_path):
    desk = Desk(tmp_path, turns=8, min_gap=0.5)
    for first in (1, 3, 5):
        desk.run(reply(), job=Job("t", TurnRange(first, first + 1)))
    assert desk.clock.slept == [0.5, 0.5]
    desk.clock.advance(0.2)
    desk.run(reply(), job=Job("t", TurnRange(7, 8)))
    assert desk.clock.slept == [0.5, 0.5, pytest.approx(0.3)]


def test_a_gap_that_has_passed_is_not_waited_for_again(tmp_path):
    desk = Desk(tmp_path, turns=4, min_gap=0.5)
    desk.run(BUSY, BUSY, reply())
    assert desk.clock.slept == [1, 2]


@pytest.mark.timeout(PATIENCE)
def test_a_clock_that_is_set_back_keeps_nobody_waiting(tmp_path):
    desk = Desk(tmp_path, turns=6, min_gap=0.5)
    desk.run(reply())
    desk.clock.advance(-365 * 86_400)
    for first in (3, 5):
        desk.run(reply(), job=Job("t", TurnRange(first, first + 1)))
    assert desk.clock.slept == [0.5, 0.5]


def test_recorded_replies_wait_for_nobody(tmp_path):
    desk = Desk(tmp_path, turns=4, min_gap=60)
    for first in (1, 3):
        desk.updater.run(desk.writer, Job("t", TurnRange(first, first + 1)), RecordedReply("t", reply()))
    assert desk.clock.slept == []


# Stopping


def test_after_a_stop_nobody_is_asked_and_nothing_is_committed(desk):
    desk.updater.stop()
    assert desk.run(reply("never")) == Outcome(None, covered=False, failed=False)
    assert desk.model.prompts == []
    assert desk.memory.seq == 0


@pytest.mark.parametrize("said", [reply("never"), "half {", BUSY, ModelRejectedError("no"), ValueError("a bug")])
def test_a_stop_while_the_model_thinks_leaves_the_turns_pending(desk, said):
    def think(prompt: Prompt) -> str:
        desk.updater.stop()
        if isinstance(said, Exception):
            raise said
        return said

    assert desk.run(think, reply("never")) == Outcome(None, covered=False, failed=False)
    assert len(desk.model.prompts) == 1
    assert (desk.memory.seq, desk.parked, desk.pending) == (0, [], [TurnRange(1, 2)])


def test_a_stop_during_a_pause_asks_nobody_again(tmp_path):
    desk = Desk(tmp_path)
    desk.clock.sleep = lambda seconds: desk.updater.stop()
    assert desk.run(BUSY, reply("never")) == Outcome(None, covered=False, failed=False)
    assert len(desk.model.prompts) == 1
    assert desk.memory.seq == 0


# While the model thinks


def meddling(meddle: Callable[[], object], text: str) -> Callable[[Prompt], str]:
    def think(prompt: Prompt) -> str:
        meddle()
        return text

    return think


def test_a_fact_entered_meanwhile_is_seen_by_the_decision(desk):
    fact = NewFact(place="facts/0", content="likes TEA.", by_hand=True)
    outcome = desk.run(
        meddling(
            lambda: desk.writer.commit(AddFact(at="", fact=fact), Cause(kind="manual")), reply("Likes tea", "Runs")
        )
    )
    assert outcome.covered
    assert desk.texts == ["likes TEA.", "Runs"]
    (rejected,) = [event for event in outcome.commit.events if isinstance(event, CandidateRejected)]
    assert rejected.rule == "duplicate"


def test_a_clear_meanwhile_discards_the_answer_and_covers_the_turns(desk):
    outcome = desk.run(
        meddling(lambda: desk.writer.commit(Clear(at=""), Cause(kind="clear")), reply("Likes tea", "Runs"))
    )
    assert (outcome.covered, outcome.failed) == (False, False)
    assert desk.texts == []
    assert (desk.pending, desk.parked) == ([], [])
    rules = [event.rule for event in outcome.commit.events if isinstance(event, CandidateRejected)]
    assert len(rules) == 2
    assert set(rules) <= {"basis", "covered"}


@pytest.mark.parametrize("said", ["half {", ModelRejectedError("no")])
def test_a_failure_after_a_clear_parks_nothing(desk, said):
    def think(prompt: Prompt) -> str:
        desk.writer.commit(Clear(at=""), Cause(kind="clear"))
        if isinstance(said, ModelError):
            raise said
        return said

    assert desk.run(think).failed
    assert (desk.pending, desk.parked) == ([], [])


def forgetting(desk: Desk, said: str | ModelError) -> Callable[[Prompt], str]:
    """A step that has the words about tea erased, and then says something, or fails."""

    def think(prompt: Prompt) -> str:
        desk.writer.forget(ForgetMatching("tea"))
        if isinstance(said, ModelError):
            raise said
        return said

    return think


QUOTING = ModelRejectedError("400: what was sent: I like tea.")


@pytest.mark.parametrize("said", [QUOTING, ModelUnavailableError("500: I like tea."), "I like tea. {"])
def test_a_failure_that_an_erasure_overtook_keeps_no_word_and_is_done_with_its_turns(tmp_path, said):
    desk = Desk(tmp_path, max_attempts=1)
    desk.say(topic="milk")
    outcome = desk.run(forgetting(desk, said), job=Job("t", TurnRange(1, 4)))
    assert (outcome.covered, outcome.failed) == (True, False)
    assert [failure.reason for failure in desk.failures] == ["basis"]
    assert (desk.pending, desk.parked) == ([], [])
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"tea" in path.read_bytes()]


def test_a_failure_that_an_erasure_overtakes_at_the_last_moment_parks_its_turns_without_a_word(tmp_path, monkeypatch):
    desk = Desk(tmp_path)
    desk.say(topic="milk")
    commit = desk.writer.commit

    def late(command: Command, cause: Cause, *, at: datetime | None = None, log: str | None = None) -> Commit:
        desk.writer.forget(ForgetMatching("tea"))
        return commit(command, cause, at=at, log=log)

    monkeypatch.setattr(desk.writer, "commit", late)
    assert desk.run(QUOTING, job=Job("t", TurnRange(1, 4))).failed
    assert desk.parked == [(TurnRange(3, 4), "rejected", 1)]
    assert desk.failures[0].detail == "the model failed after an erasure; what it said is not kept"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"tea" in path.read_bytes()]


def test_an_erasure_that_came_before_the_question_hides_no_complaint(desk):
    desk.say(topic="milk")
    desk.writer.forget(ForgetMatching("tea"))
    assert desk.run(ModelRejectedError("no milk"), job=Job("t", TurnRange(1, 4))).failed
    assert desk.failures[0].detail == "no milk"


def test_what_was_erased_between_two_attempts_is_not_sent_again(desk):
    desk.say(topic="milk")
    outcome = desk.run(forgetting(desk, BUSY), reply("Likes tea"), job=Job("t", TurnRange(1, 4)))
    assert len(desk.model.prompts) == 1
    assert (outcome.covered, outcome.failed) == (True, False)
    assert (desk.texts, desk.pending, desk.parked) == ([], [], [])


def test_what_was_erased_while_the_call_waited_for_its_turn_is_not_sent_at_all(tmp_path):
    def wait(_: float) -> None:
        desk.writer.forget(ForgetMatching("tea"))

    desk = Desk(tmp_path, min_gap=60)
    desk.clock.sleep = wait
    desk.say(topic="milk")
    desk.run(reply(), job=Job("t", TurnRange(3, 4)))
    assert desk.run(reply("Likes tea"), job=Job("t", TurnRange(1, 2))).covered
    assert desk.model.prompts == []


def test_after_an_undo_between_two_attempts_the_turns_stay_pending_for_the_next_update(desk):
    def undone(prompt: Prompt) -> str:
        desk.writer.commit(Revert(at="", target=2, events=first.commit.events), Cause(kind="revert", target=2))
        raise BUSY

    first = desk.run(reply("Likes tea"))
    desk.say(topic="milk")
    outcome = desk.run(undone, reply("Likes milk"), job=Job("t", TurnRange(3, 4)))
    assert len(desk.model.prompts) == 1
    assert (outcome.covered, outcome.failed) == (False, False)
    assert (desk.pending, desk.parked) == ([TurnRange(3, 4)], [])


@pytest.fixture
def scene(tmp_path: Path) -> tuple[MemoryHandle, ScriptedModel]:
    """A memory with one fact learned and a conversation pending; the script is the test's."""
    model = ScriptedModel(reply("Lives in Oslo"))
    memory = open_home(tmp_path, model).memory("ada")
    memory.record("t", exchange("fish", 1))
    memory.extract()
    memory.record("t", exchange("tea", 2))
    return memory, model


@pytest.mark.parametrize("undo", [lambda memory: memory.revert(2), lambda memory: memory.rollback(1)])
def test_an_undo_meanwhile_discards_the_answer_and_the_turns_are_asked_about_again(scene, undo):
    memory, model = scene
    model._script += [meddling(lambda: undo(memory), reply("Likes tea")), reply("Likes green tea")]
    first = memory.extract()
    assert (first.updates, first.failed) == (1, 0)
    (entry,) = memory.log(limit=1)
    assert entry.cause.turns is None
    assert [event.rule for event in entry.events if isinstance(event, CandidateRejected)] == ["basis"]
    assert memory.facts() == ()
    assert [(thread.thread, thread.turns) for thread in memory.status().pending] == [("t", 2)]
    assert memory.extract().updates == 1
    assert [fact.content for fact in memory.facts()] == ["Likes green tea"]
    assert "Lives in Oslo" not in model.prompts[-1].user
    assert memory.status().pending == ()


def test_an_undo_that_came_before_the_question_discards_nothing(scene):
    memory, model = scene
    model._script.append(reply("Likes tea"))
    memory.revert(2)
    assert memory.extract().updates == 1
    assert [fact.content for fact in memory.facts()] == ["Likes tea"]
    # What was undone is not asked about again.
    assert "fish" not in model.prompts[-1].user


def test_a_clear_meanwhile_through_the_public_surface(scene):
    memory, model = scene
    model._script.append(meddling(memory.clear, reply("Likes tea")))
    assert memory.extract().updates == 1
    assert memory.facts() == ()
    assert memory.status().pending == ()
    assert memory.extract().updates == 0


def test_words_recorded_meanwhile_wait_for_the_next_update(scene):
    memory, model = scene
    model._script += [
        meddling(lambda: memory.record("t", exchange("milk", 3)), reply("Likes tea")),
        reply("Likes milk"),
    ]
    memory.extract()
    assert [(thread.thread, thread.turns) for thread in memory.status().pending] == [("t", 2)]
    memory.extract()
    assert "tea" not in model.prompts[-1].user.partition("<conversation")[2]
    assert memory.status().pending == ()


def test_an_edit_meanwhile_is_learned_from_in_its_turn(scene):
    memory, model = scene
    model._script += [
        meddling(lambda: memory.record("t", exchange("milk", 2)), reply("Likes tea")),
        reply("Likes milk"),
    ]
    memory.extract()
    memory.extract()
    assert [fact.content for fact in memory.facts()] == ["Lives in Oslo", "Likes tea", "Likes milk"]
    assert memory.status().pending == ()


def test_a_model_may_use_the_memory_it_is_asked_about(scene):
    memory, model = scene
    model._script.append(meddling(lambda: (memory.add_fact("Runs"), memory.status()), reply("Likes tea")))
    memory.extract()
    assert [fact.content for fact in memory.facts()] == ["Lives in Oslo", "Runs", "Likes tea"]


# Two at once


@pytest.fixture
def no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose leases everybody gets: what is left is that no turn is covered twice."""
    monkeypatch.setattr(JsonlStore, "lease", lambda *_: contextlib.nullcontext(enter_result=True))


def covered(memory: MemoryHandle) -> list[int]:
    ranges = [entry.cause.turns for entry in memory.log() if entry.cause.turns is not None]
    return sorted(n for turns in ranges for n in range(turns.first, turns.last + 1))


@pytest.mark.usefixtures("no_leases")
def test_of_two_processes_at_one_thread_the_second_answer_is_refused_as_covered(tmp_path):
    clock = FakeClock()
    other = open_home(tmp_path, ScriptedModel(reply("from the other")), clock=clock).memory("ada")
    model = ScriptedModel(meddling(lambda: other.extract(), reply("from the one", "and more")))  # noqa: PLW0108 bound late
    one = open_home(tmp_path, model, clock=clock).memory("ada")
    one.record("t", exchange("tea"))
    result = one.extract()
    assert (result.updates, result.failed) == (1, 0)
    assert [fact.content for fact in one.facts()] == ["from the other"]
    (entry,) = one.log(limit=1)
    refused = [event for event in entry.events if isinstance(event, CandidateRejected)]
    assert [event.rule for event in refused] == ["covered", "covered"]
    assert covered(one) == [1, 2]
    assert one.facts() == other.facts()
    assert one.verify().ok


@pytest.mark.usefixtures("no_leases")
def test_of_two_threads_of_one_process_one_answer_counts(tmp_path):
    gates = [Gate(reply("one")), Gate(reply("two"))]
    memory = open_home(tmp_path, ScriptedModel(*gates)).memory("ada")
    memory.record("t", exchange("tea"))
    workers = [threading.Thread(target=memory.extract) for _ in gates]
    for worker in workers:
        worker.start()
    for gate in gates:
        assert gate.entered.wait(PATIENCE)
    for gate in gates:
        gate.opened.set()
    for worker in workers:
        worker.join(PATIENCE)
    assert covered(memory) == [1, 2]
    assert len(memory.facts()) == 1
    assert memory.verify().ok


@pytest.mark.usefixtures("no_leases")
def test_a_failure_in_one_process_parks_nothing_that_another_has_learned_from(tmp_path):
    clock = FakeClock()
    other = open_home(tmp_path, ScriptedModel(reply("Likes tea")), clock=clock).memory("ada")
    model = ScriptedModel(meddling(lambda: other.extract(), "half {"))  # noqa: PLW0108 bound late
    one = open_home(tmp_path, model, clock=clock).memory("ada")
    one.record("t", exchange("tea"))
    assert one.extract().failed == 1
    for memory in (one, other):
        assert (memory.status().parked, memory.status().pending) == ((), ())
    assert one.retry().updates == 0


@pytest.mark.usefixtures("no_leases")
def test_a_failure_over_more_turns_than_another_process_learned_from_can_be_retried(tmp_path):
    clock = FakeClock()
    gate = Gate(reply("Likes tea"))
    other = open_home(tmp_path, ScriptedModel(gate), clock=clock).memory("ada")
    other.record("t", exchange("tea", 1))
    worker = threading.Thread(target=other.extract)
    worker.start()
    assert gate.entered.wait(PATIENCE)

    def finish_the_other(prompt: Prompt) -> str:
        gate.opened.set()
        worker.join(PATIENCE)
        return "half {"

    one = open_home(tmp_path, ScriptedModel(finish_the_other, reply("Likes milk")), clock=clock).memory("ada")
    one.record("t", exchange("milk", 2))
    assert one.extract().failed == 1
    assert [(item.thread, item.turns) for item in one.status().parked] == [("t", 2)]
    assert one.retry().failed == 0
    assert [fact.content for fact in one.facts()] == ["Likes tea", "Likes milk"]
    assert covered(one) == [1, 2, 3, 4]
    assert (one.status().parked, one.status().pending) == ((), ())


# Long conversations, in portions

_BOUND = 4_000
"""Tokens; the packaged templates leave room for three exchanges about `_TOPIC` beside a small memory."""
_TOPIC = "tea " * 200


@pytest.fixture
def long(tmp_path: Path) -> Desk:
    """A desk with sixteen turns that take three portions: six, six and four."""
    desk = Desk(tmp_path, turns=0, prompt_max_tokens=_BOUND)
    desk.say(8, topic=_TOPIC)
    desk.job = Job("t", TurnRange(1, 16))
    return desk


PARTS = [TurnRange(1, 6), TurnRange(7, 12), TurnRange(13, 16)]


def numbers(prompt: Prompt) -> list[int]:
    """The turns that a prompt shows."""
    said = prompt.user.partition("<conversation")[2].partition("</conversation>")[0]
    return [int(line[1:].partition("]")[0]) for line in said.splitlines() if line.startswith("[")]


def within_bound(prompts: Sequence[Prompt], bound: int) -> bool:
    return all(estimate_tokens(prompt.system) + estimate_tokens(prompt.user) <= bound for prompt in prompts)


def test_a_long_thread_is_learned_from_in_portions_in_order_each_on_the_memory_as_it_is_then(long):
    outcomes = long.run_all(*[reply(f"fact {n}") for n in range(3)])
    assert [outcome.commit.cause.turns for outcome in outcomes] == PARTS
    assert [outcome.commit.seq for outcome in outcomes] == [2, 3, 4]
    assert [(outcome.covered, outcome.failed) for outcome in outcomes] == [(True, False)] * 3
    assert [numbers(prompt) for prompt in long.model.prompts] == [
        list(range(part.first, part.last + 1)) for part in PARTS
    ]
    assert within_bound(long.model.prompts, _BOUND)
    assert [f"fact {n}" in long.model.prompts[2].user for n in range(3)] == [True, True, False]
    assert long.texts == ["fact 0", "fact 1", "fact 2"]
    assert long.pending == []
    assert len({outcome.commit.cause.prompt for outcome in outcomes}) == 1


def test_a_thread_of_five_thousand_turns_stays_within_the_bound(tmp_path):
    desk = Desk(tmp_path, turns=0)
    desk.say(2_500, topic="tea, and that at great length, for there is a lot to say about it")
    outcomes = desk.run_all(reply(), job=Job("t", TurnRange(1, 5_000)), repeat=True)
    assert within_bound(desk.model.prompts, 24_000)
    assert [n for prompt in desk.model.prompts for n in numbers(prompt)] == list(range(1, 5_001))
    assert 5 <= len(outcomes) <= 12
    assert all(numbers(prompt)[0] % 2 == 1 for prompt in desk.model.prompts)
    assert desk.pending == []


def test_a_portion_that_fails_is_parked_and_the_next_go_on(long):
    outcomes = long.run_all(reply("fact 0"), "half {", reply("fact 2"))
    assert [outcome.failed for outcome in outcomes] == [False, True, False]
    assert long.parked == [(PARTS[1], "reply", 1)]
    assert long.pending == []
    assert long.texts == ["fact 0", "fact 2"]


def test_a_parked_portion_is_tried_again_alone(long):
    long.run_all(reply("fact 0"), ModelRejectedError("no"), reply("fact 2"))
    assert long.run(reply("fact 1"), job=Job("t", PARTS[1], attempts=1)).commit.cause.turns == PARTS[1]
    assert numbers(long.model.prompts[0]) == list(range(7, 13))
    assert (long.parked, long.pending) == ([], [])
    assert sorted(long.texts) == ["fact 0", "fact 1", "fact 2"]


def test_parked_turns_that_are_too_long_for_one_prompt_are_tried_again_in_portions(long):
    long.run(*[BUSY] * 9, job=Job("t", TurnRange(1, 6)))
    long.updater = updater_on(long.clock, prompt_max_tokens=3_200)
    outcomes = long.run_all(reply("a"), "half {", reply("c"), job=Job("t", PARTS[0], attempts=5))
    assert within_bound(long.model.prompts, 3_200)
    assert [outcome.failed for outcome in outcomes] == [False, True, False]
    assert long.parked == [(TurnRange(3, 4), "reply", 6)]
    assert long.texts == ["a", "c"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_crash_between_portions_loses_nothing_and_doubles_nothing(long, at):
    with pytest.raises(KeyboardInterrupt):
        long.run_all(*[reply(f"fact {n}") for n in range(at - 1)], KeyboardInterrupt())
    long.writer = Writer(JsonlStore(long.home), Scope("ada"), clock=long.clock)
    rest = TurnRange(PARTS[at - 1].first, 16)
    assert long.pending == [rest]
    long.run_all(*[reply(f"fact {n}") for n in range(at - 1, 3)], job=Job("t", rest))
    assert [n for prompt in long.model.prompts for n in numbers(prompt)] == list(range(rest.first, 17))
    assert long.texts == ["fact 0", "fact 1", "fact 2"]
    assert long.pending == []


def test_a_stop_between_portions_leaves_the_rest_pending(long):
    def think(prompt: Prompt) -> str:
        long.updater.stop()
        return reply("never")

    first, second = long.run_all(reply("fact 0"), think, reply("never"))
    assert (first.covered, second) == (True, Outcome(None, covered=False, failed=False))
    assert long.pending == [TurnRange(7, 16)]


def test_a_disk_that_fills_up_between_portions_leaves_the_rest_pending(long):
    store = Refusing(long.home)
    store.broken = False
    long.writer = Writer(store, Scope("ada"), clock=long.clock)

    def fill(prompt: Prompt) -> str:
        store.broken = True
        return reply("never")

    with pytest.raises(StoreError, match="full"):
        long.run_all(reply("fact 0"), fill)
    store.broken = False
    assert long.pending == [TurnRange(7, 16)]


def test_an_undo_between_portions_ends_the_job_so_that_the_order_stays(tmp_path):
    model = ScriptedModel(reply("Lives in Oslo"))
    memory = open_home(tmp_path, model, prompt_max_tokens=_BOUND).memory("ada")
    memory.record("t", exchange("fish"))
    memory.extract()
    memory.record("t", [message for _ in range(8) for message in exchange(_TOPIC)], mode="append")
    model._script += [reply("a"), meddling(lambda: memory.revert(2), reply("b"))]
    assert memory.extract().updates == 2
    assert covered(memory) == [1, 2, *range(3, 9)]
    model._script += [reply("b"), reply("c")]
    assert memory.extract().updates == 2
    assert covered(memory) == list(range(1, 19))
    assert [fact.content for fact in memory.facts()] == ["a", "b", "c"]


def test_after_a_clear_between_portions_nobody_is_asked_about_the_rest(long):
    def clear(prompt: Prompt) -> str:
        long.writer.commit(Clear(at=""), Cause(kind="clear"))
        return reply("never")

    assert len(long.run_all(reply("fact 0"), clear, reply("never"))) == 2
    assert len(long.model.prompts) == 2
    assert (long.texts, long.pending, long.parked) == ([], [], [])


def test_what_another_process_learned_from_meanwhile_is_not_asked_about_again(long):
    def elsewhere(prompt: Prompt) -> str:
        other = Writer(JsonlStore(long.home), Scope("ada"), clock=long.clock)
        updater_on(long.clock).run(other, Job("t", PARTS[1]), ScriptedModel(reply("fact 1")))
        return reply("fact 0")

    assert len(long.run_all(elsewhere, reply("fact 2"))) == 1
    assert long.pending == [PARTS[2]]
    assert long.texts == ["fact 1", "fact 0"]


@pytest.mark.parametrize(("attempts", "portions", "left"), [(0, 3, [TurnRange(17, 19)]), (1, 4, [])])
def test_words_without_an_answer_that_do_not_fit_any_more_wait_for_one_unless_a_person_asks(
    long, attempts, portions, left
):
    long.tell([{"role": "user", "content": _TOPIC * 3} for _ in range(3)])
    outcomes = long.run_all(reply(), job=Job("t", TurnRange(1, 19), attempts=attempts), repeat=True)
    assert len(outcomes) == portions
    assert long.pending == left


def test_an_answer_in_many_turns_is_learned_from_to_its_end(tmp_path):
    desk = Desk(tmp_path, turns=0, prompt_max_tokens=_BOUND)
    desk.tell([{"role": "user", "content": "Go on"}, *[{"role": "assistant", "content": _TOPIC}] * 24])
    outcomes = desk.run_all(reply(), job=Job("t", TurnRange(1, 25)), repeat=True)
    assert len(outcomes) > 2
    assert desk.pending == []


def test_a_recorded_reply_answers_for_the_whole_of_a_long_thread(long):
    (outcome,) = long.updater.run(long.writer, long.job, RecordedReply("t", reply("Likes tea")))
    assert outcome.commit.cause.turns == TurnRange(1, 16)
    assert long.pending == []


def test_a_recorded_reply_needs_no_template(tmp_path):
    desk = Desk(tmp_path, prompts=tmp_path / "nowhere", prompt_max_tokens=1)
    (outcome,) = desk.updater.run(desk.writer, desk.job, RecordedReply("t", reply("Likes tea")))
    assert outcome.commit.cause.prompt is None


@pytest.mark.parametrize("settings", [{"prompt_max_tokens": 1_000}, {"prompts": Path("nowhere")}])
def test_a_prompt_that_cannot_be_built_leaves_the_turns_pending(tmp_path, settings):
    desk = Desk(tmp_path, **settings)
    with pytest.raises(ConfigError):
        desk.run(reply("never"))
    assert desk.pending == [TurnRange(1, 2)]
    assert desk.memory.seq == 0


def test_portions_of_a_backfill_carry_the_time_of_the_last_turn_that_they_cover(tmp_path):
    desk = Desk(tmp_path, turns=0, prompt_max_tokens=_BOUND)
    messages = [message for _ in range(8) for message in exchange(_TOPIC)]
    desk.tell([{**message, "at": f"2020-01-{n:02}T10:00:00Z"} for n, message in enumerate(messages, 1)])
    outcomes = desk.run_all(reply(), job=Job("t", TurnRange(1, 16), backdate=True), repeat=True)
    covered = [outcome.commit.cause.turns.last for outcome in outcomes]
    assert len(covered) > 2
    assert covered[-1] == 16
    assert [outcome.commit.at[:10] for outcome in outcomes] == [f"2020-01-{n:02}" for n in covered]


def test_a_long_thread_is_learned_from_through_the_public_surface(tmp_path):
    model = ScriptedModel(reply("a"), "half {", reply("c"), reply("b"))
    memory = open_home(tmp_path, model, prompt_max_tokens=_BOUND).memory("ada")
    memory.record("t", [message for _ in range(8) for message in exchange(_TOPIC)], mode="append")
    result = memory.extract()
    assert (result.updates, result.failed, result.commits) == (3, 1, (2, 3, 4))
    assert [(item.thread, item.turns) for item in memory.status().parked] == [("t", 6)]
    assert memory.retry().failed == 0
    assert covered(memory) == list(range(1, 17))
    assert [fact.content for fact in memory.facts()] == ["a", "c", "b"]


# What the model was told


def proposed(outcome: Outcome) -> UpdateProposed:
    (found,) = [event for event in outcome.commit.events if isinstance(event, UpdateProposed)]
    return found


def test_signals_are_named_in_the_cause_and_become_hints(tmp_path):
    desk = Desk(tmp_path, turns=0)
    desk.tell([{"role": "user", "content": "No, that's wrong, use ruff instead."}, {"role": "ai", "content": "Right."}])
    outcome = desk.run(reply(), job=Job("t", TurnRange(1, 2)))
    assert "correction" in outcome.commit.cause.signals
    assert "0.95" in desk.model.prompts[0].user


def test_signals_are_those_of_each_portion_also_where_it_fails(long):
    long.tell([{"role": "user", "content": "No, that's wrong, use ruff instead."}, {"role": "ai", "content": "Right."}])
    outcomes = long.run_all(reply(), "half {", "half {", job=Job("t", TurnRange(1, 18)))
    assert ["correction" in outcome.commit.cause.signals for outcome in outcomes] == [False, False, True]
    assert ["0.95" in prompt.user for prompt in long.model.prompts] == [False, False, True]


def test_signals_are_named_of_recorded_replies_too(tmp_path):
    desk = Desk(tmp_path, turns=0)
    desk.tell([{"role": "user", "content": "No, that's wrong, use ruff instead."}, {"role": "ai", "content": "Right."}])
    (outcome,) = desk.updater.run(desk.writer, Job("t", TurnRange(1, 2)), RecordedReply("t", reply()))
    assert "correction" in outcome.commit.cause.signals


def test_patterns_of_one_s_own_are_looked_for(tmp_path):
    desk = Desk(tmp_path, patterns=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="nowhere"):
        desk.run(reply("never"))
    assert desk.pending == [TurnRange(1, 2)]


def enter(desk: Desk, contents: Sequence[str], *, days: int | None = None) -> None:
    facts = [{"content": text, "confidence": 0.9, "expectedValidDays": days} for text in contents]
    desk.say()
    with desk.writer.state() as state:
        last = len(state.transcript.threads["t"].turns)
    job = Job("t", TurnRange(last - 1, last))
    desk.updater.run(desk.writer, job, RecordedReply("t", json.dumps({"newFacts": facts})))


def test_the_commit_says_which_facts_were_shown_and_the_others_cannot_be_touched(tmp_path):
    desk = Desk(tmp_path, prompt_max_tokens=_BOUND)
    enter(desk, [f"{'tea ' * 200}{n}" for n in range(9)])
    outcome = desk.run(reply(remove=tuple(desk.memory.facts)))
    shown = proposed(outcome).shown
    assert shown is not None
    gone = [event.fact.id for event in outcome.commit.events if isinstance(event, FactRemoved)]
    refused = [event.candidate.id for event in outcome.commit.events if isinstance(event, CandidateRejected)]
    assert gone
    assert refused
    assert sorted(gone) == sorted(shown)


def test_a_memory_that_was_shown_whole_needs_no_list(desk):
    enter(desk, ["Likes tea"])
    assert proposed(desk.run(reply())).shown is None


def test_facts_put_up_for_review_are_named_in_the_commit_and_may_be_removed_as_stale(desk):
    enter(desk, ["Likes tea", "Lives in Oslo", "Runs"], days=30)
    desk.clock.advance(31 * 86_400)
    ids = [fact.id for fact in desk.memory.in_order()]
    outcome = desk.run(json.dumps({"staleFactsToRemove": [{"id": ids[0], "reason": "long ago"}]}))
    assert proposed(outcome).stale == tuple(ids)
    assert "31 days ago, expected to hold 30 days" in desk.model.prompts[0].user
    assert desk.texts == ["Lives in Oslo", "Runs"]


def test_where_no_review_was_asked_for_the_commit_says_so_and_none_is_made(desk):
    enter(desk, ["Likes tea", "Lives in Oslo", "Runs"], days=30)
    desk.clock.advance(29 * 86_400)
    (fact, *_) = desk.memory.in_order()

    def review_at_the_last_moment(prompt: Prompt) -> str:
        desk.clock.advance(5 * 86_400)
        return json.dumps({"staleFactsToRemove": [{"id": fact.id, "reason": "long ago"}]})

    outcome = desk.run(review_at_the_last_moment)
    assert proposed(outcome).stale == ()
    assert [event.rule for event in outcome.commit.events if isinstance(event, CandidateRejected)] == ["not_due"]


def test_a_clock_that_was_set_back_makes_no_fact_young_again(desk):
    enter(desk, ["Likes tea", "Lives in Oslo", "Runs"], days=30)
    desk.clock.advance(31 * 86_400)
    enter(desk, [])
    desk.clock.advance(-20 * 86_400)
    assert len(proposed(desk.run(reply())).stale) == 3


def test_a_recorded_reply_saw_no_prompt(desk):
    enter(desk, ["Likes tea"])
    (outcome,) = desk.updater.run(desk.writer, desk.job, RecordedReply("t", reply()))
    assert (proposed(outcome).shown, proposed(outcome).stale) == (None, None)


def test_a_recorded_reply_may_cite_what_stands_in_its_whole_thread(tmp_path):
    desk = Desk(tmp_path, turns=0)
    desk.tell([*exchange("tea", 1), *exchange("milk", 2)])
    fact = {"content": "Likes tea", "confidence": 0.9, "evidence": ["u1", "u2", "u3"]}
    job = Job("t", TurnRange(3, 4))
    desk.updater.run(desk.writer, job, RecordedReply("t", json.dumps({"newFacts": [fact]})))
    assert [fact.evidence for fact in desk.memory.in_order()] == [("u1", "u2")]


def test_a_model_may_cite_nothing_but_what_it_was_shown(tmp_path):
    desk = Desk(tmp_path, turns=0)
    desk.tell([*exchange("tea", 1), *exchange("milk", 2)])
    fact = {"content": "Likes tea", "confidence": 0.9, "evidence": ["u1", "u2"]}
    desk.run({"newFacts": [fact]}, job=Job("t", TurnRange(3, 4)))
    assert [fact.evidence for fact in desk.memory.in_order()] == [("u2",)]


def test_a_backfill_reviews_what_was_due_when_it_was_said(tmp_path):
    desk = Desk(tmp_path, turns=0)
    desk.tell([{**message, "at": "2026-06-01T10:00:00Z"} for message in exchange("tea")])
    enter(desk, ["Likes tea", "Lives in Oslo", "Runs"], days=30)
    desk.run(reply(), job=Job("t", TurnRange(1, 2), backdate=True))
    assert "92 days ago" not in desk.model.prompts[0].user
    assert "91 days ago" in desk.model.prompts[0].user


# A backfill


def said_at(*moments: str) -> list[dict[str, object]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": f"words {moment}", "at": moment} for i, moment in enumerate(moments)]


def test_a_backfill_is_dated_by_the_last_turn_and_never_goes_back(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    memory.record("t1", said_at("2020-01-01T10:00:00Z", "2020-01-01T10:05:00Z"))
    memory.record("t2", said_at("2019-06-01T10:00:00Z", "2019-06-01T10:05:00Z"))
    memory.record("t3", said_at("2021-01-01T10:00:00Z", "2021-01-01T10:05:00Z"))
    memory.extract([RecordedReply(thread, reply(thread)) for thread in ("t1", "t2", "t3")], backdate=True)
    assert {fact.content: fact.created_at[:16] for fact in memory.facts()} == {
        "t1": "2020-01-01T10:05",
        "t2": "2020-01-01T10:05",
        "t3": "2021-01-01T10:05",
    }


def test_without_a_backfill_the_clock_says_when(tmp_path):
    clock = FakeClock()
    memory = open_home(tmp_path, clock=clock).memory("ada")
    memory.record("t1", said_at("2020-01-01T10:00:00Z", "2020-01-01T10:05:00Z"))
    memory.extract([RecordedReply("t1", reply("x"))])
    assert datetime.fromisoformat(memory.facts()[0].created_at) == clock.now()


def test_a_failed_update_of_a_backfill_is_dated_too(tmp_path):
    memory = open_home(tmp_path).memory("ada")
    memory.record("t1", said_at("2020-01-01T10:00:00Z", "2020-01-01T10:05:00Z"))
    memory.extract([RecordedReply("t1", "half {")], backdate=True)
    assert memory.log(limit=1)[0].at.startswith("2020-01-01T10:05")


# The disk


class Refusing(JsonlStore):
    """A store that takes no commit of a ledger until it is mended."""

    broken = True

    def append(self, stream: str, lines: Sequence[bytes], expected: int) -> None:
        if self.broken and stream.endswith("ledger"):
            raise StoreError("the disk is full")
        super().append(stream, lines, expected)


def test_a_disk_that_refuses_leaves_the_turns_pending(tmp_path):
    desk = Desk(tmp_path)
    store = Refusing(tmp_path)
    desk.writer = Writer(store, Scope("ada"), clock=desk.clock)
    with pytest.raises(StoreError, match="full"):
        desk.run(reply("Likes tea"))
    assert desk.pending == [TurnRange(1, 2)]
    store.broken = False
    assert desk.run(reply("Likes tea")).covered
    assert desk.texts == ["Likes tea"]


def test_every_fact_of_an_update_comes_in_one_commit_with_its_refusals(desk):
    said = {
        "newFacts": [{"content": "good", "confidence": 0.9}, {"content": "weak", "confidence": 0.1}, 5],
        "factsToRemove": ["fact_0_0"],
    }
    outcome = desk.run(json.dumps(said))
    assert [event.fact.content for event in outcome.commit.events if isinstance(event, FactAdded)] == ["good"]
    rules = {
        event.candidate.place: event.rule for event in outcome.commit.events if isinstance(event, CandidateRejected)
    }
    assert rules == {"newFacts/1": "threshold", "newFacts/2": "malformed", "factsToRemove/0": "unknown_fact"}


def test_what_somebody_else_retried_while_this_one_waited_is_not_tried_again(tmp_path):
    clock = FakeClock()
    gate = Gate(reply("Likes tea"))
    one = open_home(tmp_path, ScriptedModel(ModelRejectedError("no"), gate), clock=clock).memory("ada")
    second = ScriptedModel()
    other = open_home(tmp_path, second, clock=clock).memory("ada")
    one.record("t", exchange("tea"))
    one.extract()
    working = threading.Thread(target=one.retry)
    working.start()
    assert gate.entered.wait(PATIENCE)
    told = []
    waiting = threading.Thread(target=lambda: told.append(other.retry().updates))
    waiting.start()
    while not clock.slept:
        assert waiting.is_alive()
    gate.opened.set()
    for thread in (working, waiting):
        thread.join(PATIENCE)
    assert (told, second.prompts) == ([0], [])
    assert [fact.content for fact in other.facts()] == ["Likes tea"]
